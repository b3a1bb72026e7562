//! All-reduces and reduce-scatters of a process group by a switch that adds.

use super::super::element::{Element, Reduction, divide};
use super::super::memory::Bytes;
use super::{Lent, Performed};
use crate::aggregation::{InNetwork, NetworkOptions, Numbers, terms};
use crate::error::GroupError;
use crate::team::Team;
use std::borrow::Cow;
use std::ops::Range;
use strandway_collective::plan::{BufferRange, CollectiveCall};
use strandway_proto::Rate;

/// Can a switch add such numbers in this way? Averages are divided afterwards.
pub(super) const fn adds(element: Element, reduction: Reduction) -> bool {
    matches!(element, Element::F32 | Element::I32) && matches!(reduction, Reduction::Sum | Reduction::Average)
}

/// A team's use of a switch, from its first call on.
pub(super) struct BySwitch {
    options: Option<NetworkOptions>,
    network: Option<InNetwork>,
    /// The reason was told why calls do not go by the switch.
    said: bool,
}

impl BySwitch {
    pub(super) fn new(options: Option<NetworkOptions>) -> BySwitch {
        BySwitch { options, network: None, said: false }
    }

    /// Performs a call on the caller's memory. If the switch cannot be used, the memory is unchanged.
    pub(super) fn perform(
        &mut self,
        team: &mut Team,
        call: &CollectiveCall,
        (element, reduction): (Element, Reduction),
        lent: &mut Lent,
        stop: &impl Fn() -> bool,
    ) -> Result<Performed, GroupError> {
        let own = team.rank() as usize;
        let (inputs, output, scatter) = match call {
            CollectiveCall::AllReduce(at) => (std::slice::from_ref(at), at, false),
            CollectiveCall::ReduceScatter { inputs, output } => (inputs.as_slice(), output, true),
            other => return Err(GroupError::Config(format!("no switch performs {}", other.name()))),
        };
        let mut network = match self.network.take() {
            Some(network) => network,
            None => {
                let options = self.options.as_ref().map(|options| NetworkOptions {
                    scatter,
                    window: window_of(team.options.rate, options.elements),
                    ..options.clone()
                });
                let (network, why) = team.try_switch(options, stop)?;
                if let Some(why) = why {
                    self.note(team, &why);
                }
                network
            }
        };
        let whole = in_one(inputs, lent);
        let numbers = match element {
            Element::F32 => Numbers::Floats(bytemuck::cast_slice(&whole)),
            _ => Numbers::Integers(bytemuck::cast_slice(&whole)),
        };
        let length = 4 * whole.len();
        let made = match team.reduce_by_switch(&mut network, numbers, scatter, stop)? {
            Ok(made) => made,
            Err((rank, why)) => {
                self.note(team, &format!("rank {rank} says: {why}"));
                self.network = Some(network);
                return Ok(Performed::ByMessages);
            }
        };
        let sums: &[u8] = bytemuck::cast_slice(&made.sums);
        let sums = match scatter && !made.scattered {
            true => &sums[own * output.len()..(own + 1) * output.len()],
            false => sums,
        };
        debug_assert!(sums.len() == if scatter { length / inputs.len() } else { length }, "sums of one buffer");
        if let Bytes::Write(bytes) = &mut lent.buffers[output.buffer] {
            let bytes = &mut bytes[output.bytes.clone()];
            bytes.copy_from_slice(sums);
            if reduction == Reduction::Average {
                divide(element, bytes, team.ranks());
            }
        }
        network.keep(made);
        self.network = Some(network);
        Ok(Performed::Done)
    }

    /// Says once why calls do not go by the switch.
    fn note(&mut self, team: &Team, why: &str) {
        if team.rank() == 0 && !std::mem::replace(&mut self.said, true) {
            eprintln!(
                "strandway: the switch does not add for this group of {} ranks ({why}); sums go by messages between \
                 all ranks until it does",
                team.ranks()
            );
        }
    }
}

/// The window of a rank: the fragments that fill two slices of the scheduler at this rate. Ours: a program computes
/// beside its collectives, so its threads wake up late, and its port would idle with the window of `perf collective`.
fn window_of(rate: Rate, elements: u16) -> u32 {
    (2 * terms::usual_window(rate, elements)).min(1_024)
}

/// The numbers of ranges one after another; copied only if they are not so already.
fn in_one<'a>(ranges: &[BufferRange], lent: &'a Lent) -> Cow<'a, [u32]> {
    let follow = |pair: &[BufferRange]| pair[0].buffer == pair[1].buffer && pair[0].bytes.end == pair[1].bytes.start;
    let numbers = |buffer: usize, bytes: Range<usize>| bytemuck::cast_slice::<u8, u32>(&lent.bytes(buffer)[bytes]);
    match ranges {
        [only] => Cow::Borrowed(numbers(only.buffer, only.bytes.clone())),
        [first, .., last] if ranges.windows(2).all(follow) => {
            Cow::Borrowed(numbers(first.buffer, first.bytes.start..last.bytes.end))
        }
        _ => ranges.iter().flat_map(|range| numbers(range.buffer, range.bytes.clone())).copied().collect(),
    }
}
