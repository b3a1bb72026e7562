//! Counters: plain fields that add up. Reading them changes nothing.

/// Defines a structure of counters, each field with its doc comment. It gets `NONE`, all counters zero, and `+=`.
///
/// ```
/// strandway_proto::counters! {
///     /// What a host has counted.
///     pub struct Counted {
///         /// Packets.
///         pub packets: u64,
///         /// Their bytes.
///         pub bytes: u64,
///     }
/// }
///
/// let mut all = Counted::NONE;
/// all += Counted { packets: 1, bytes: 4160 };
/// all += Counted { packets: 1, bytes: 64 };
/// assert_eq!(all, Counted { packets: 2, bytes: 4224 });
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$doc:meta])* pub $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind,)*
        }

        impl $name {
            /// All counters zero.
            pub const NONE: $name = $name { $($field: 0,)* };
        }

        impl core::ops::AddAssign for $name {
            fn add_assign(&mut self, one: $name) {
                $(self.$field += one.$field;)*
            }
        }
    };
}
