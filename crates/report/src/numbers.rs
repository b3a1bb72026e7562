//! Formats of numbers, which all renderers share.

/// Microseconds with three to four significant digits, in a suitable unit.
pub fn us(value: Option<f64>) -> String {
    match value {
        None => "–".to_string(),
        Some(0.0) => "0 us".to_string(),
        Some(v) if v < 0.1 => format!("{:.1} ns", v * 1e3),
        Some(v) if v < 999.95 => format!("{v:.1} us"),
        Some(v) if v < 9_999.95 => {
            let tenths = (v * 10.0).round() as u64;
            format!("{}.{} us", count(tenths / 10), tenths % 10)
        }
        Some(v) if v < 999_995.0 => format!("{:.2} ms", v / 1e3),
        Some(v) => format!("{:.2} s", v / 1e6),
    }
}

/// A rate in Gb/s, in a suitable unit.
pub fn gbps(value: f64) -> String {
    match value {
        v if v >= 999.5 => format!("{:.2} Tb/s", v / 1e3),
        v if v >= 100.0 => format!("{v:.0} Gb/s"),
        v if v >= 1.0 => format!("{v:.1} Gb/s"),
        v => format!("{:.1} Mb/s", v * 1e3),
    }
}

/// Bytes in a suitable decimal unit.
pub fn bytes(value: u64) -> String {
    match value as f64 {
        v if v >= 1e12 => format!("{:.2} TB", v / 1e12),
        v if v >= 1e9 => format!("{:.2} GB", v / 1e9),
        v if v >= 1e6 => format!("{:.2} MB", v / 1e6),
        v if v >= 1e3 => format!("{:.1} kB", v / 1e3),
        v => format!("{v} B"),
    }
}

/// A count with commas between thousands.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in percent.
pub fn percent(value: f64) -> String {
    format!("{:.1} %", 100.0 * value)
}

/// A number with a suitable number of digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        _ if value == value.trunc() && value.abs() < 1e9 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(us(Some(54.12)), "54.1 us");
        assert_eq!(us(Some(1_240.16)), "1,240.2 us");
        assert_eq!(us(Some(9_999.97)), "10.00 ms");
        assert_eq!(us(Some(21_029.3)), "21.03 ms");
        assert_eq!(us(Some(2_517_970.0)), "2.52 s");
        assert_eq!(us(None), "–");
        assert_eq!(gbps(51_200.0), "51.20 Tb/s");
        assert_eq!(bytes(417_000), "417.0 kB");
    }
}
