//! Errors as stable numbers, each with its text.

use std::fmt;
use strandway_ffi::Failure;
use strandway_udp::{Error, Reason, Refusal};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// The kind of an error, as a number that never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Code {
            $($(#[$doc])* $name = $number,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// The text of the code, without the particulars of a call.
            pub const fn text(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// The code with this number.
            pub fn from_number(number: i32) -> Option<Code> {
                match number { $($number => Some(Code::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// No error.
    Ok = 0, "no error";
    /// An argument is not valid.
    Invalid = -1, "an argument is not valid";
    /// There is no such node: it was never opened, or it was closed.
    NoNode = -2, "there is no such node: it was never opened, or it was closed";
    /// There is no such connection: it was never opened, or it has ended.
    NoConnection = -3, "there is no such connection: it was never opened, or it has ended";
    /// There is no such memory: it was never registered, or it was released.
    NoMemory = -4, "there is no such memory: it was never registered, or it was released";
    /// The range does not lie within the memory.
    Range = -5, "the range does not lie within the memory";
    /// A limit is reached: take events, then try again.
    Busy = -6, "a limit is reached: take events, then try again";
    /// Unfinished operations use the memory.
    InUse = -7, "unfinished operations use the memory: take their events first, or close their connection";
    /// The memory overlaps memory that is registered, and does not lie within it.
    Overlap = -8, "the memory overlaps registered memory and does not lie within it: register the whole first";
    /// The memory was registered for reading only.
    ReadOnly = -9, "the memory was registered for reading only";
    /// The connection is not established yet.
    NotConnected = -10, "the connection is not established yet: wait for its event";
    /// A message is longer than the receive that waits for it.
    TooLong = -11, "the message is longer than the receive with its tag";
    /// The configuration is not valid.
    Config = -12, "the configuration is not valid";
    /// The operating system refused something.
    System = -13, "the operating system refused something";
    /// The peer closed the connection.
    ClosedByPeer = -14, "the peer closed the connection";
    /// The connection was closed on this side.
    ClosedHere = -15, "the connection was closed on this side";
    /// The peer has fallen silent.
    PeerSilent = -16, "the peer has fallen silent: its process may have died, or no plane leads there any more";
    /// No answer came to the call.
    NoAnswer = -17, "no answer: is a node running at that address, is the port right, does a firewall drop UDP?";
    /// The two sides have different keys.
    WrongKey = -18, "the key is wrong: give both sides the same one";
    /// The two sides speak different versions.
    WrongVersion = -19, "the peer speaks another version: update the older side";
    /// The two sides are set up differently.
    Mismatch = -20, "the peer has another profile, payload size, number of planes or protection: give both the same";
    /// The peer takes no more connections.
    PeerFull = -21, "the peer takes no more connections";
    /// A write named memory that its owner has not exposed.
    RemoteAccess = -22, "a write named memory that is not exposed to this connection, or bytes beyond its end";
    /// The peer broke the protocol.
    Violation = -23, "the peer broke the protocol";
    /// Full packets do not pass.
    Payload = -24, "full packets do not pass: lower the payload size, or raise the MTU";
    /// An error of this library.
    Internal = -25, "an error of this library: please report it";
    /// The caller's structure is of another version of the interface.
    Version = -26, "the structure is of another version of the interface: compile with the header of this library";
    /// A read named a key that opens nothing.
    NoKey = -27, "the key opens nothing to this connection: it is wrong, or the peer has taken it back";
    /// A read named memory that its owner has not exposed for reading.
    NoRight = -28, "the peer has not exposed that memory for this: ask it for another right";
    /// A read named bytes beyond what its owner has exposed.
    RemoteRange = -29, "the bytes do not lie within the range that the peer has exposed";
}

/// A call that failed: its code, and a text with the particulars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverError {
    /// The kind.
    pub code: Code,
    /// One line for people.
    pub text: String,
}

impl MoverError {
    /// An error with the text of its code.
    pub fn of(code: Code) -> MoverError {
        MoverError { code, text: code.text().to_string() }
    }

    /// An error with a text of its own.
    pub fn new(code: Code, text: impl Into<String>) -> MoverError {
        MoverError { code, text: text.into() }
    }
}

impl fmt::Display for MoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for MoverError {}

/// For functions of a C interface, whose own failures have the same numbers.
impl From<Failure> for MoverError {
    fn from(failure: Failure) -> MoverError {
        MoverError::new(Code::from_number(failure.code).unwrap_or(Code::Internal), failure.text)
    }
}

impl From<MoverError> for Failure {
    fn from(error: MoverError) -> Failure {
        Failure::new(error.code as i32, error.text)
    }
}

impl From<Error> for MoverError {
    fn from(error: Error) -> MoverError {
        let code = match &error {
            Error::Config(_) | Error::OnlyPartial | Error::IsPartial | Error::OnlyWrites => Code::Config,
            Error::Socket { .. } | Error::Wait(_) | Error::Random => Code::System,
            Error::NoRegion => Code::NoMemory,
            Error::Range { .. } => Code::Range,
            Error::RegionInUse => Code::InUse,
            Error::ReadOnly => Code::ReadOnly,
            Error::NoConnection => Code::NoConnection,
            Error::NotConnected => Code::NotConnected,
            Error::Busy { .. } | Error::TooManyConnections { .. } | Error::TooManyKeys { .. } => Code::Busy,
            Error::NoRight => Code::NoRight,
            Error::NoGroup | Error::NoSlot | Error::NotOpen => Code::Internal,
        };
        MoverError { code, text: error.to_string() }
    }
}

/// The code of an operation that the peer has refused.
pub(crate) const fn code_of_refusal(refusal: Refusal) -> Code {
    match refusal {
        Refusal::NoKey => Code::NoKey,
        Refusal::NoRight => Code::NoRight,
        Refusal::Range => Code::RemoteRange,
        Refusal::TooMany => Code::Busy,
    }
}

/// The code of a connection's end.
pub(crate) const fn code_of(reason: Reason) -> Code {
    match reason {
        Reason::ByPeer => Code::ClosedByPeer,
        Reason::PeerSilent | Reason::Aged => Code::PeerSilent,
        Reason::NoAnswer => Code::NoAnswer,
        Reason::WrongKey => Code::WrongKey,
        Reason::WrongVersion => Code::WrongVersion,
        Reason::OtherProfile | Reason::OtherPayload | Reason::OtherPlanes | Reason::OtherProtection => Code::Mismatch,
        Reason::PeerFull => Code::PeerFull,
        Reason::RemoteAccess => Code::RemoteAccess,
        Reason::TooLong | Reason::Violation | Reason::Unheeded => Code::Violation,
        Reason::PayloadTooLarge => Code::Payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_number_and_a_text_of_its_own() {
        for (at, &code) in Code::ALL.iter().enumerate() {
            assert_eq!(code as i32, -(at as i32));
            assert_eq!(Code::from_number(code as i32), Some(code));
            assert!(Code::ALL[..at].iter().all(|other| other.text() != code.text()), "{code:?}");
        }
        assert_eq!(Code::from_number(1), None);
        assert_eq!(Code::from_number(-(Code::ALL.len() as i32)), None);
    }
}
