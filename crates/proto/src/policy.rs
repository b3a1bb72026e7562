//! Macros that turn a table of policies into enums.
//!
//! Each kind of policy has one table, a macro that passes its rows to another macro: `congestions!` in `congestion.rs`,
//! `selectors!` in `path.rs`, `reliabilities!` in `reliability.rs`. A row has the documentation, the name in scenario
//! files, the variant, and the types of parameters and state. Everything else about a policy is in its own file, in the
//! methods of its parameters' type.

/// Makes the enum of configurations from a table, with names and parameters.
///
/// `CongestionConfig: CongestionPolicy, Custom(CongestionFactory)` gives the name of the enum, the trait of the
/// parameters' types, and the variant for experiments from outside.
macro_rules! configurations {
    (
        [$(#[$doc:meta])* $Config:ident: $Policy:ident $(, $(#[$why:meta])* $Custom:ident($Factory:ty))?]
        $($(#[$what:meta])* $name:ident: $Variant:ident($Parameters:ty $(, $State:ty)?),)+
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub enum $Config {
            $($(#[$what])* $Variant($Parameters),)+
            $($(#[$why])* $Custom($Factory),)?
        }

        impl $Config {
            /// The names that scenario files use, without custom ones.
            pub const NAMES: [&'static str; [$(stringify!($name)),+].len()] = [$(stringify!($name)),+];

            /// The policy with this name and its default parameters.
            pub fn named(name: &str) -> Option<$Config> {
                Some(match name {
                    $(stringify!($name) => $Config::$Variant(<$Parameters>::default()),)+
                    _ => return None,
                })
            }

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self {
                    $($Config::$Variant(_) => stringify!($name),)+
                    $($Config::$Custom(_) => "custom",)?
                }
            }

            /// The trait object of its parameters; `None` for a custom one.
            pub(crate) fn policy(&self) -> Option<&dyn $Policy> {
                match self {
                    $($Config::$Variant(parameters) => Some(parameters),)+
                    $($Config::$Custom(_) => None,)?
                }
            }

            /// The trait object of its parameters, to change them; `None` for a custom one.
            pub(crate) fn policy_mut(&mut self) -> Option<&mut dyn $Policy> {
                match self {
                    $($Config::$Variant(parameters) => Some(parameters),)+
                    $($Config::$Custom(_) => None,)?
                }
            }
        }

        impl core::fmt::Debug for $Config {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $($Config::$Variant(parameters) => parameters.fmt(f),)+
                    $($Config::$Custom(_) => f.write_str("Custom"),)?
                }
            }
        }
    };
}

/// Makes the enum of states from a table. `AnyCongestion, Box<dyn Congestion>` gives its name, and the state of custom
/// ones.
macro_rules! states {
    (
        [$(#[$doc:meta])* $Any:ident, $Custom:ty]
        $($(#[$what:meta])* $name:ident: $Variant:ident($Parameters:ty, $State:ty),)+
    ) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "each variant holds the type it is named after")]
        pub enum $Any {
            $($Variant($State),)+
            Custom($Custom),
        }
    };
}

/// Makes a `match` from a table that calls the present state.
macro_rules! dispatch {
    (
        [$Any:ident, $self:expr, $state:ident => $call:expr]
        $($(#[$what:meta])* $name:ident: $Variant:ident($Parameters:ty, $State:ty),)+
    ) => {
        match $self {
            $($Any::$Variant($state) => $call,)+
            $Any::Custom($state) => $call,
        }
    };
}

pub(crate) use {configurations, dispatch, states};
