//! Time, spans, rates and byte counts with their units in the type.
//!
//! Time counts in whole picoseconds. At 100, 200, 400, 800 and 1,600 Gb/s a byte takes a whole number of them (80, 40,
//! 20, 10 and 5 ps), so link arithmetic is exact.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// An instant, in picoseconds since the start of the run. Wraps after 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than every instant of a run: "no deadline".
    pub const NEVER: Time = Time(u64::MAX);

    /// The span from `earlier` to this instant, zero if `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// This instant in microseconds, for reports.
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// `n` nanoseconds.
    pub const fn from_ns(n: u64) -> Span {
        Span(n * 1_000)
    }

    /// `n` microseconds.
    pub const fn from_us(n: u64) -> Span {
        Span(n * 1_000_000)
    }

    /// `n` milliseconds.
    pub const fn from_ms(n: u64) -> Span {
        Span(n * 1_000_000_000)
    }

    /// This span in microseconds, for reports.
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This span times a factor, rounded down to a picosecond.
    #[inline]
    pub fn scaled(self, factor: f64) -> Span {
        Span((self.0 as f64 * factor) as u64)
    }
}

impl Rate {
    /// `n` gigabits per second (10^9 bits).
    pub const fn from_gbps(n: u64) -> Rate {
        Rate(n * 1_000_000_000)
    }

    /// This rate in Gb/s, for reports.
    pub fn as_gbps(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Picoseconds per byte if that is a whole number, as at 100 to 1,600 Gb/s.
    pub const fn whole_ps_per_byte(self) -> Option<u64> {
        if self.0 != 0 && 8_000_000_000_000 % self.0 == 0 { Some(8_000_000_000_000 / self.0) } else { None }
    }

    /// The time for `bytes` at this rate, rounded up to a whole picosecond; [`Span`]'s maximum at rate zero.
    #[inline]
    pub const fn time_for(self, bytes: Bytes) -> Span {
        if self.0 == 0 {
            return Span(u64::MAX);
        }
        match bytes.0.checked_mul(8_000_000_000_000) {
            Some(bits) => Span(bits.div_ceil(self.0)),
            None => Span((bytes.0 as u128 * 8_000_000_000_000).div_ceil(self.0 as u128) as u64),
        }
    }

    /// The number of whole bytes that pass in `span`.
    #[inline]
    pub const fn bytes_in(self, span: Span) -> Bytes {
        Bytes((self.0 as u128 * span.0 as u128 / 8_000_000_000_000) as u64)
    }

    /// This rate times a factor, rounded down to a bit per second.
    pub fn scaled(self, factor: f64) -> Rate {
        Rate((self.0 as f64 * factor) as u64)
    }
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
}

impl Add<Span> for Time {
    type Output = Time;
    #[inline]
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Time> for Time {
    type Output = Span;
    /// # Panics
    /// In debug builds, if `earlier` is later.
    #[inline]
    fn sub(self, earlier: Time) -> Span {
        debug_assert!(self >= earlier, "time runs backwards: {self:?} - {earlier:?}");
        Span(self.0.saturating_sub(earlier.0))
    }
}

macro_rules! arithmetic {
    ($($name:ident),*) => {$(
        impl Add for $name {
            type Output = $name;
            #[inline]
            fn add(self, other: $name) -> $name { $name(self.0 + other.0) }
        }
        impl Sub for $name {
            type Output = $name;
            #[inline]
            fn sub(self, other: $name) -> $name { $name(self.0 - other.0) }
        }
        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: $name) { self.0 += other.0 }
        }
        impl SubAssign for $name {
            #[inline]
            fn sub_assign(&mut self, other: $name) { self.0 -= other.0 }
        }
        impl Mul<u64> for $name {
            type Output = $name;
            #[inline]
            fn mul(self, factor: u64) -> $name { $name(self.0 * factor) }
        }
    )*};
}
arithmetic!(Span, Rate, Bytes);

/// Writes `value` with the largest of `units` (name, size) in which it is at least one, without trailing zeros.
fn with_unit(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let &(name, size) = units.iter().find(|(_, size)| value >= *size).unwrap_or(&units[units.len() - 1]);
    let text = format!("{:.3}", value as f64 / size as f64);
    write!(f, "{} {name}", text.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_unit(
            f,
            self.0,
            &[("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000), ("ps", 1)],
        )
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_unit(
            f,
            self.0,
            &[("Tbps", 1_000_000_000_000), ("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1_000), ("bps", 1)],
        )
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_unit(f, self.0, &[("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_takes_a_whole_number_of_picoseconds_at_every_training_rate() {
        for (gbps, ps) in [(100, 80), (200, 40), (400, 20), (800, 10), (1600, 5)] {
            assert_eq!(Rate::from_gbps(gbps).time_for(Bytes(1)), Span(ps));
            assert_eq!(Rate::from_gbps(gbps).whole_ps_per_byte(), Some(ps));
            assert_eq!(Rate::from_gbps(gbps).time_for(Bytes(4160)), Span(4160 * ps));
        }
        assert_eq!(Rate::from_gbps(3).whole_ps_per_byte(), None);
        assert_eq!(Rate::from_gbps(3).time_for(Bytes(1)), Span(2667));
    }

    #[test]
    fn long_transfers_do_not_overflow() {
        assert_eq!(Rate::from_gbps(1).time_for(Bytes(1_000_000_000_000)), Span(8_000_000_000_000_000));
        assert_eq!(Rate(0).time_for(Bytes(1)), Span(u64::MAX));
    }

    #[test]
    fn quantities_print_in_the_unit_an_engineer_would_use() {
        assert_eq!(Span(8_340_000).to_string(), "8.34 us");
        assert_eq!(Rate::from_gbps(400).to_string(), "400 Gbps");
        assert_eq!(Bytes(2_000_000).to_string(), "2 MB");
        assert_eq!(Span(0).to_string(), "0 ps");
    }
}
