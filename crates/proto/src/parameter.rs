//! Parameters: one name, one default, one source, in one place.
//!
//! The [`parameters!`](crate::parameters) macro makes a configuration struct and its table. `strandway explain` prints
//! this table, scenario files are checked against it, and a test compares it with the tables in `docs/protocols/`.

use crate::units::{Bytes, Rate, Span};

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A number without a unit.
    Ratio(f64),
    /// A length of time.
    Span(Span),
    /// A data rate.
    Rate(Rate),
    /// A number of bytes.
    Bytes(Bytes),
    /// Yes or no.
    Flag(bool),
}

impl Value {
    /// The kind of value, in words for an error message.
    pub const fn kind(&self) -> &'static str {
        match self {
            Value::Count(_) => "a whole number",
            Value::Ratio(_) => "a number",
            Value::Span(_) => "a time such as \"12 us\"",
            Value::Rate(_) => "a rate such as \"400 Gbps\"",
            Value::Bytes(_) => "a size such as \"16 KiB\"",
            Value::Flag(_) => "true or false",
        }
    }
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Value::Count(n) => write!(f, "{n}"),
            Value::Ratio(x) => write!(f, "{x}"),
            Value::Span(s) => write!(f, "{s}"),
            Value::Rate(r) => write!(f, "{r}"),
            Value::Bytes(b) => write!(f, "{} B", b.0),
            Value::Flag(b) => write!(f, "{b}"),
        }
    }
}

/// A Rust type that a parameter can have.
pub trait ParameterType: Copy {
    /// As a [`Value`].
    fn to_value(self) -> Value;
    /// From a [`Value`] of the right kind and range.
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! parameter_type {
    ($($type:ty, $variant:ident, |$v:ident| $to:expr, |$w:ident| $from:expr;)*) => {$(
        impl ParameterType for $type {
            fn to_value(self) -> Value { let $v = self; Value::$variant($to) }
            fn from_value(value: Value) -> Option<Self> {
                match value { Value::$variant($w) => $from, _ => None }
            }
        }
    )*};
}
parameter_type! {
    u32, Count, |v| u64::from(v), |w| u32::try_from(w).ok();
    u64, Count, |v| v, |w| Some(w);
    Span, Span, |v| v, |w| Some(w);
    Rate, Rate, |v| v, |w| Some(w);
    Bytes, Bytes, |v| v, |w| Some(w);
    bool, Flag, |v| v, |w| Some(w);
}
impl ParameterType for f64 {
    fn to_value(self) -> Value {
        Value::Ratio(self)
    }
    fn from_value(value: Value) -> Option<f64> {
        match value {
            Value::Ratio(x) if x.is_finite() => Some(x),
            Value::Count(n) => Some(n as f64),
            _ => None,
        }
    }
}

/// One row of a parameter table.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// As scenario files write it.
    pub name: &'static str,
    /// Its default.
    pub default: Value,
    /// Its effect, in one line.
    pub what: &'static str,
    /// The paper and section it comes from, or "ours" with the reason.
    pub source: &'static str,
    /// The smallest and largest value that makes sense, in the value's base unit (1, bytes, b/s, ps).
    pub range: (f64, f64),
}

/// Why a parameter was not set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterError {
    /// No parameter of that name.
    Unknown,
    /// The value is of the wrong kind; this value shows the right kind.
    Kind(Value),
    /// The value is outside this range, in the value's base unit (1, bytes, b/s, ps).
    Range(f64, f64),
}

/// A group of parameters that can be listed, read and set by their names.
pub trait ParameterSet {
    /// The table, in order of declaration.
    fn table(&self) -> Vec<Parameter>;
    /// The present value.
    fn get(&self, name: &str) -> Option<Value>;
    /// Sets a value.
    ///
    /// # Errors
    /// If there is no such parameter, or the value is of the wrong kind or out of range.
    fn set(&mut self, name: &str, value: Value) -> Result<(), ParameterError>;
}

/// The value as a number in its base unit (1, bytes, b/s, ps), for range checks.
pub fn magnitude(value: Value) -> f64 {
    match value {
        Value::Count(n) => n as f64,
        Value::Ratio(x) => x,
        Value::Span(s) => s.0 as f64,
        Value::Rate(r) => r.0 as f64,
        Value::Bytes(b) => b.0 as f64,
        Value::Flag(b) => f64::from(u8::from(b)),
    }
}

/// Declares a configuration struct and its parameter table at once.
///
/// ```
/// strandway_proto::parameters! {
///     /// A window that never changes.
///     pub struct FixedConfig {
///         /// The window as a multiple of the bandwidth-delay product.
///         window_bdp: f64 = 1.0, 0.01..=100.0, "ours: for experiments";
///     }
/// }
/// use strandway_proto::parameter::{ParameterSet, Value};
/// let mut config = FixedConfig::default();
/// config.set("window_bdp", Value::Ratio(1.5)).unwrap();
/// assert_eq!(config.window_bdp, 1.5);
/// assert_eq!(config.table()[0].source, "ours: for experiments");
/// ```
#[macro_export]
macro_rules! parameters {
    ($(#[doc = $doc:expr])* pub struct $name:ident {
        $($(#[doc = $what:expr])* $field:ident : $type:ty = $default:expr, $low:literal ..= $high:literal, $source:expr;)*
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name { $($(#[doc = $what])* pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self { $name { $($field: $default,)* } }
        }

        impl $crate::parameter::ParameterSet for $name {
            fn table(&self) -> Vec<$crate::parameter::Parameter> {
                let default = $name::default();
                let _ = &default;
                vec![$($crate::parameter::Parameter {
                    name: stringify!($field),
                    default: $crate::parameter::ParameterType::to_value(default.$field),
                    what: concat!($($what),*).trim_ascii(),
                    source: $source,
                    range: (f64::from($low), f64::from($high)),
                },)*]
            }
            fn get(&self, name: &str) -> Option<$crate::parameter::Value> {
                match name {
                    $(stringify!($field) => Some($crate::parameter::ParameterType::to_value(self.$field)),)*
                    _ => None,
                }
            }
            fn set(&mut self, name: &str, value: $crate::parameter::Value) -> Result<(), $crate::parameter::ParameterError> {
                let _ = &value;
                match name {
                    $(stringify!($field) => {
                        let wanted = $crate::parameter::ParameterType::to_value(self.$field);
                        let new = <$type as $crate::parameter::ParameterType>::from_value(value)
                            .ok_or($crate::parameter::ParameterError::Kind(wanted))?;
                        let (low, high) = (f64::from($low), f64::from($high));
                        let size = $crate::parameter::magnitude(value);
                        if !(low..=high).contains(&size) {
                            return Err($crate::parameter::ParameterError::Range(low, high));
                        }
                        self.$field = new;
                        Ok(())
                    })*
                    _ => Err($crate::parameter::ParameterError::Unknown),
                }
            }
        }
    };
}
