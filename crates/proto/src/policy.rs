//! What the tables of policies become.
//!
//! Each kind of policy has one table, a macro that hands its rows to another one: `congestions!` in `congestion.rs`, `selectors!` in
//! `path.rs`, `reliabilities!` in `reliability.rs`. A row is documentation, the name in scenario files, the variant, and the types of
//! parameters and state. The parameters' type says everything else about the policy, in the policy's own file.

/// Of a table: the enum of configurations, with names and parameters.
///
/// `CongestionConfig: CongestionPolicy, Custom(CongestionFactory)` names the enum, what the parameters' types implement, and what
/// experiments from outside put in its place.
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
            /// The names that scenario files use, custom ones aside.
            pub const NAMES: [&'static str; [$(stringify!($name)),+].len()] = [$(stringify!($name)),+];

            /// The policy of that name with its default parameters.
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

            /// What its file says of it; `None` for a custom one.
            pub(crate) fn policy(&self) -> Option<&dyn $Policy> {
                match self {
                    $($Config::$Variant(parameters) => Some(parameters),)+
                    $($Config::$Custom(_) => None,)?
                }
            }

            /// The same, to be changed.
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

/// Of a table: the enum of states, in place. `AnyCongestion, Box<dyn Congestion>` names it, and the state of custom ones.
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

/// Of a table: a call of whichever state there is, by a `match`.
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
