//! Quantities in scenario files: a number, a space, a unit.
//!
//! Numbers are decimal and exact: `"0.1 us"` is 100,000 ps, not the nearest binary fraction. A text without a unit, a
//! negative number, a text that is not a number, and a number that is too large are errors with a remedy.

use strandway_proto::units::{Bytes, Rate, Span};

/// An error in a quantity, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    /// The error.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// A number of bytes, perhaps in units that only the fabric and the profile define.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// A number of bytes.
    Bytes(Bytes),
    /// A multiple of the bandwidth-delay product of a plane's link.
    Bdp(f64),
    /// A number of full packets of the profile.
    Packets(f64),
}

impl Size {
    /// The size in bytes, given the BDP and the bytes of a full packet.
    pub fn resolve(self, bdp: Bytes, packet: Bytes) -> Bytes {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Bdp(factor) => Bytes((bdp.0 as f64 * factor) as u64),
            Size::Packets(count) => Bytes((packet.0 as f64 * count) as u64),
        }
    }
}

/// A unit: its accepted spellings (the first is the recommended one) and its size in base units.
type Unit = (&'static [&'static str], u64);

static TIME: &[Unit] = &[
    (&["us", "µs", "μs"], 1_000_000),
    (&["ms"], 1_000_000_000),
    (&["ns"], 1_000),
    (&["ps"], 1),
    (&["s"], 1_000_000_000_000),
];
static RATE: &[Unit] = &[
    (&["Gbps", "Gb/s", "Gbit/s", "G", "Gbit", "GbE"], 1_000_000_000),
    (&["Mbps", "Mb/s", "Mbit/s", "M", "Mbit"], 1_000_000),
    (&["kbps", "kb/s", "kbit/s"], 1_000),
    (&["bps", "b/s", "bit/s"], 1),
    (&["Tbps", "Tb/s", "Tbit/s", "T", "Tbit"], 1_000_000_000_000),
];
static BYTES: &[Unit] = &[
    (&["MB"], 1_000_000),
    (&["MiB"], 1 << 20),
    (&["kB", "KB"], 1_000),
    (&["KiB"], 1 << 10),
    (&["B"], 1),
    (&["GB"], 1_000_000_000),
    (&["GiB"], 1 << 30),
    (&["TB"], 1_000_000_000_000),
    (&["TiB"], 1 << 40),
];

static DISTANCE: &[Unit] = &[(&["km"], 1_000), (&["m"], 1)];

/// Limit on a quantity in base units: 2^53, so that reports can show it exactly.
const LIMIT: u128 = 1 << 53;

/// Parses a time such as `"2 us"`.
///
/// # Errors
/// With the reason and a remedy.
pub fn span(text: &str) -> Result<Span, QuantityError> {
    exact(text, TIME, "a time", "12 us").map(Span)
}

/// Parses a time such as `50ms`, for flags.
///
/// # Errors
/// The error and its remedy, in one line.
pub fn parse_span(text: &str) -> Result<Span, String> {
    span(text).map_err(|e| format!("{}; {}", e.what, e.remedy))
}

/// Parses a rate such as `1Gbps`, for flags.
///
/// # Errors
/// The error and its remedy, in one line.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    rate(text).map_err(|e| format!("{}; {}", e.what, e.remedy))
}

/// Parses a distance such as `"3750 km"`, in metres.
///
/// # Errors
/// With the reason and a remedy.
pub fn distance(text: &str) -> Result<u64, QuantityError> {
    exact(text, DISTANCE, "a distance", "1000 km")
}

/// Parses a rate such as `"400 Gbps"`.
///
/// # Errors
/// With the reason and a remedy.
pub fn rate(text: &str) -> Result<Rate, QuantityError> {
    let lower = text.to_lowercase();
    if text.contains('B') && (lower.ends_with("bps") || lower.ends_with("b/s")) {
        return Err(error("a rate is in bits per second, this is in bytes", "write 8 times the number and, say, Gbps"));
    }
    exact(text, RATE, "a rate", "400 Gbps").map(Rate)
}

/// Parses a number of bytes such as `"64 KiB"`.
///
/// # Errors
/// With the reason and a remedy.
pub fn bytes(text: &str) -> Result<Bytes, QuantityError> {
    exact(text, BYTES, "a size", "2 MB").map(Bytes)
}

/// Parses a size such as `"2 MB"`, `"0.2 BDP"` or `"15 packets"`.
///
/// # Errors
/// With the reason and a remedy.
pub fn size(text: &str) -> Result<Size, QuantityError> {
    let (_, unit) = split(text);
    let relative = |limit: f64| -> Result<f64, QuantityError> {
        let (mantissa, digits) = number(text, "a size", "0.2 BDP")?;
        let value = mantissa as f64 / 10f64.powi(digits as i32);
        if value > limit {
            return Err(error(format!("more than {limit} {unit}"), "write less"));
        }
        Ok(value)
    };
    match unit.to_lowercase().as_str() {
        "bdp" => relative(1e6).map(Size::Bdp),
        "packet" | "packets" => relative(1e9).map(Size::Packets),
        _ => exact(text, BYTES, "a size", "2 MB\", \"0.2 BDP\" or \"15 packets").map(|n| Size::Bytes(Bytes(n))),
    }
}

/// Parses a share: a text such as `"2%"`, or a number without a unit.
///
/// # Errors
/// With the reason and a remedy.
pub fn ratio(text: &str) -> Result<f64, QuantityError> {
    let (_, unit) = split(text);
    let (mantissa, digits) = number(text, "a number", "0.25\" or \"25 %")?;
    let value = mantissa as f64 / 10f64.powi(digits as i32);
    match unit {
        "" => Ok(value),
        "%" => Ok(value / 100.0),
        _ => Err(error(format!("`{unit}` is no unit of a plain number"), "write it without a unit, or in %")),
    }
}

fn error(what: impl Into<String>, remedy: impl Into<String>) -> QuantityError {
    QuantityError { what: what.into(), remedy: remedy.into() }
}

/// Number and unit of a quantity, trimmed.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_' | '+' | '-'))).unwrap_or(text.len());
    (text[..at].trim(), text[at..].trim())
}

/// The digits of the number, and how many of them are behind the decimal point.
fn number(text: &str, what: &str, example: &str) -> Result<(u128, usize), QuantityError> {
    let (number, unit) = split(text);
    let lower = text.trim().to_lowercase();
    let bare = lower.trim_start_matches(['+', '-']);
    if bare.starts_with("nan") || bare.starts_with("inf") {
        return Err(error(format!("{what} must be a finite number"), format!("write, say, \"{example}\"")));
    }
    if number.starts_with('-') {
        return Err(error(format!("{what} cannot be negative"), format!("write, say, \"{example}\"")));
    }
    if number.is_empty() {
        return Err(error(format!("{what} starts with a number"), format!("write, say, \"{example}\"")));
    }
    if unit.starts_with(['e', 'E']) && unit[1..].starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        return Err(error("powers of ten are written as units", format!("write, say, \"{example}\"")));
    }
    let digits: String = number.trim_start_matches('+').chars().filter(|c| *c != '_').collect();
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
        return Err(error(format!("`{number}` is no number"), format!("write, say, \"{example}\"")));
    }
    let significant = all.trim_start_matches('0');
    if significant.len() > 20 || fraction.len() > 18 {
        return Err(error(format!("`{number}` has too many digits"), "write it with a larger or smaller unit"));
    }
    Ok((significant.parse().unwrap_or(0), fraction.len()))
}

/// The remedy for a number without a unit, where `unit` is the usual one. A large number of a size is meant in bytes.
pub fn without_unit(number: &str, unit: &str) -> String {
    let bytes = number.parse::<u64>().ok().filter(|n| unit == "MB" && *n >= 1000);
    let shown = bytes.map(|n| (n, Bytes(n).to_string())).filter(|(n, shown)| bytes_of(shown) == Some(*n));
    match (bytes, shown) {
        (_, Some((n, shown))) => format!("write \"{n} B\" or \"{shown}\" if that is what you mean"),
        (Some(n), None) => format!("write \"{n} B\" if that is what you mean"),
        (None, _) => format!("write \"{number} {unit}\" if that is what you mean"),
    }
}

fn bytes_of(text: &str) -> Option<u64> {
    bytes(text).ok().map(|bytes| bytes.0)
}

fn exact(text: &str, units: &[Unit], what: &str, example: &str) -> Result<u64, QuantityError> {
    let (mantissa, digits) = number(text, what, example)?;
    let (plain, unit) = split(text);
    if unit.is_empty() {
        let remedy = without_unit(plain, units[0].0[0]);
        return Err(error(format!("{what} needs a unit"), remedy));
    }
    let found = units.iter().find(|(names, _)| names.contains(&unit)).or_else(|| {
        // Upper and lower case distinguish bits from bytes. Other units ignore case.
        if std::ptr::eq(units, BYTES) {
            return None;
        }
        let mut alike = units.iter().filter(|(names, _)| names.iter().any(|n| n.eq_ignore_ascii_case(unit)));
        alike.next().filter(|_| alike.next().is_none())
    });
    let Some(&(_, size)) = found else {
        let names: Vec<&str> = units.iter().map(|(names, _)| names[0]).collect();
        let remedy = format!("units: {}; for example \"{example}\"", names.join(", "));
        return Err(error(format!("`{unit}` is no unit of {}", what.trim_start_matches("a ")), remedy));
    };
    let scale = 10u128.pow(digits as u32);
    let value = mantissa.checked_mul(u128::from(size)).map(|v| (v + scale / 2) / scale);
    match value {
        Some(value) if value <= LIMIT => Ok(value as u64),
        _ => Err(error(
            format!("{what} of \"{}\" is more than a run can hold", text.trim()),
            format!("write, say, \"{example}\""),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_exact() {
        assert_eq!(span("0.1 us"), Ok(Span(100_000)));
        assert_eq!(span("12us"), Ok(Span(12_000_000)));
        assert_eq!(span("1_000 ns"), Ok(Span(1_000_000)));
        assert_eq!(span("0.5 s"), Ok(Span(500_000_000_000)));
        assert_eq!(rate("400 Gbps"), Ok(Rate(400_000_000_000)));
        assert_eq!(rate("400 Gb/s"), Ok(Rate(400_000_000_000)));
        assert_eq!(rate("1.6 Tbps"), Ok(Rate(1_600_000_000_000)));
        for text in ["400G", "400 G", "400gbit", "400 GbE", "400000M", "0.4T"] {
            assert_eq!(rate(text), Ok(Rate(400_000_000_000)), "{text}");
        }
        assert_eq!(bytes("2 MB"), Ok(Bytes(2_000_000)));
        assert_eq!(bytes("64 KiB"), Ok(Bytes(65_536)));
        assert_eq!(size("0.2 BDP"), Ok(Size::Bdp(0.2)));
        assert_eq!(size("15 packets"), Ok(Size::Packets(15.0)));
        assert_eq!(size("1 packet"), Ok(Size::Packets(1.0)));
        assert_eq!(distance("3750 km"), Ok(3_750_000));
        assert_eq!(distance("0.5 km"), Ok(500));
        assert_eq!(ratio("2 %"), Ok(0.02));
        assert_eq!(ratio("0.25"), Ok(0.25));
    }

    #[test]
    fn wrong_quantities_say_what_to_write() {
        type Show = fn(&str) -> String;
        let cases: &[(&str, Show, &str)] = &[
            ("400", |t| show(rate(t)), "needs a unit; write \"400 Gbps\""),
            ("2", |t| show(span(t)), "needs a unit; write \"2 us\""),
            ("2", |t| show(bytes(t)), "needs a unit; write \"2 MB\""),
            ("2000000", |t| show(bytes(t)), "needs a unit; write \"2000000 B\" or \"2 MB\""),
            ("1234567", |t| show(bytes(t)), "needs a unit; write \"1234567 B\" if"),
            ("2M", |t| show(bytes(t)), "no unit of size"),
            ("50 GBps", |t| show(rate(t)), "in bits per second"),
            ("-1 us", |t| show(span(t)), "cannot be negative"),
            ("nan us", |t| show(span(t)), "finite"),
            ("inf", |t| show(rate(t)), "finite"),
            ("", |t| show(span(t)), "starts with a number"),
            ("us", |t| show(span(t)), "starts with a number"),
            ("1e3 us", |t| show(span(t)), "powers of ten"),
            ("1.2.3 us", |t| show(span(t)), "is no number"),
            ("5 parsec", |t| show(span(t)), "no unit of time"),
            ("20 miles", |t| show(distance(t)), "no unit of distance"),
            ("5 Mb", |t| show(bytes(t)), "no unit of size"),
            ("999999999999 TB", |t| show(bytes(t)), "more than a run can hold"),
            ("123456789012345678901234 B", |t| show(bytes(t)), "too many digits"),
            ("3 bananas", |t| show(ratio(t)), "no unit of a plain number"),
        ];
        for (text, parse, fragment) in cases {
            let said = parse(text);
            assert!(said.contains(fragment), "{text}: {said}");
        }
    }

    fn show<T: std::fmt::Debug>(result: Result<T, QuantityError>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(e) => format!("{}; {}", e.what, e.remedy),
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_survive(n in 0u64..9_000_000, unit in 0usize..4) {
            let (name, size) = [("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000)][unit];
            prop_assert_eq!(span(&format!("{n} {name}")), Ok(Span(n * size)));
        }

        #[test]
        fn displayed_quantities_parse_back_to_a_thousandth(ps in 1u64..1_000_000_000_000) {
            let text = Span(ps).to_string();
            let back = span(&text).map_err(|e| TestCaseError::fail(format!("{text}: {e:?}")))?;
            prop_assert!((back.0 as f64 - ps as f64).abs() <= ps as f64 / 1000.0, "{} {:?}", text, back);
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,24}") {
            let _ = (span(&text), rate(&text), bytes(&text), size(&text), ratio(&text));
        }
    }
}
