//! A connection's use of its receiver's credit (`crate::credit`), if its congestion control uses it.

use super::{Connection, Replies};
use crate::control_message::ControlMessage;
use crate::packet::{Data, Flags, Header, Packet};
use crate::reliability::Reliability;
use crate::units::Time;

impl Connection {
    /// Does it have credit, or need none?
    #[inline]
    pub(super) fn has_credit(&self) -> bool {
        self.credit.as_ref().is_none_or(|credit| credit.sender.is_open())
    }

    /// A data packet of `bytes` leaves: pays for it, and returns the target that it carries.
    #[inline]
    pub(super) fn spend_credit(&mut self, now: Time, bytes: u64) -> u16 {
        let Some(credit) = &mut self.credit else { return 0 };
        let unsent = self.reliability.unsent() * u64::from(self.packet);
        credit.sender.spend(now, bytes, unsent, self.window)
    }

    /// Asks for credit, if it has waited for some long enough.
    pub(super) fn ask_for_credit(&mut self, now: Time, reply: Replies<'_>) {
        let Some(credit) = &mut self.credit else { return };
        if credit.sender.asks(now, self.outlook.has_next) {
            let unsent = self.reliability.unsent() * u64::from(self.packet);
            let target = credit.sender.target(unsent, self.window);
            let path = credit.receiver.path;
            reply(self.control(path, Flags::NONE, Header::Control(ControlMessage::CreditRequest { target })));
        }
    }

    /// A data packet arrived: notes the credit that its sender wants. A trimmed packet must be sent again, so its sender
    /// wants a grant in any case.
    #[inline]
    pub(crate) fn note_target(&mut self, packet: &Packet, data: &Data) -> bool {
        let Some(credit) = &mut self.credit else { return false };
        credit.receiver.on_target(packet.path, data.target, packet.flags.has(Flags::TRIMMED));
        credit.receiver.take_wanted()
    }

    /// A grant or a request of credit arrived. Returns true if the sender at the other end is to get credit.
    pub(crate) fn handle_credit(&mut self, now: Time, packet: &Packet, message: ControlMessage) -> bool {
        let Some(credit) = &mut self.credit else {
            self.record.stats.invalid += 1;
            return false;
        };
        match message {
            ControlMessage::Credit { granted } => credit.sender.on_grant(now, granted),
            ControlMessage::CreditRequest { target } => credit.receiver.on_target(packet.path, target, true),
            _ => unreachable!("other messages take another way"),
        }
        credit.receiver.take_wanted()
    }
}
