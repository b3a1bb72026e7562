//! Processes of one host talk through memory that they share, instead of the kernel's UDP.
//!
//! Two processes that share a network stack and a user open a *link* beside their connection of the node: each makes
//! memory that only it writes, and gives it to the other one. Messages and writes of the engine then go by the link.
//! Everything else stays with the connection: it shows whether the peer answers, and it is used where no link is made.

mod bell;
mod carrier;
mod frame;
mod greeting;
mod link;
mod links;
mod mapping;
mod meetings;
mod ring;

pub(super) use carrier::{Carrier, Event};
pub(super) use links::Local;
