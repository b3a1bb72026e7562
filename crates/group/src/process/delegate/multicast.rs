//! All-gathers and broadcasts of a process group by the multicast of a team.

use super::Lent;
use crate::error::GroupError;
use crate::multicast::What;
use crate::team::Team;
use std::ops::Range;
use strandway_collective::plan::{BufferRange, CollectiveCall};

/// Performs a call on the caller's memory. `staging` is memory for a call whose buffer is not in one piece.
pub(super) fn perform(
    team: &mut Team,
    staging: &mut Vec<u8>,
    call: &CollectiveCall,
    lent: &mut Lent,
    stop: &impl Fn() -> bool,
) -> Result<(), GroupError> {
    match call {
        CollectiveCall::AllGather { input, outputs } => gather(team, staging, input.as_ref(), outputs, lent, stop),
        CollectiveCall::Broadcast { at, root } => {
            let what = What::Broadcast { root: *root };
            match lent.take_writable(at.buffer) {
                Some(bytes) => on_lent(team, what, bytes, at.bytes.clone(), stop),
                // The root's buffer may be one that is only read; nothing is copied back to it.
                None => {
                    let source = lent.bytes(at.buffer)[at.bytes.clone()].to_vec();
                    on_staging(team, what, staging, source.len(), |area| area.copy_from_slice(&source), stop)
                }
            }
        }
        other => Err(GroupError::Config(format!("{} has no multicast", other.name()))),
    }
}

fn gather(
    team: &mut Team,
    staging: &mut Vec<u8>,
    input: Option<&BufferRange>,
    outputs: &[BufferRange],
    lent: &mut Lent,
    stop: &impl Fn() -> bool,
) -> Result<(), GroupError> {
    let own = &outputs[team.rank() as usize];
    let length = own.len();
    let in_one =
        outputs.windows(2).all(|pair| pair[0].buffer == pair[1].buffer && pair[0].bytes.end == pair[1].bytes.start);
    let separate = input.is_none_or(|input| input.buffer != own.buffer);
    if in_one
        && separate
        && let Some(bytes) = lent.take_writable(own.buffer)
    {
        if let Some(input) = input {
            let source = &lent.bytes(input.buffer)[input.bytes.clone()];
            let place = &mut bytes[own.bytes.clone()];
            // The caller may have its block in place already, under another name.
            if source.as_ptr() != place.as_ptr() {
                place.copy_from_slice(source);
            }
        }
        let whole = outputs[0].bytes.start..outputs[outputs.len() - 1].bytes.end;
        return on_lent(team, What::AllGather, bytes, whole, stop);
    }
    let at = input.unwrap_or(own);
    let (first, source) = (team.rank() as usize * length, &lent.bytes(at.buffer)[at.bytes.clone()]);
    let fill = |area: &mut [u8]| area[first..first + length].copy_from_slice(source);
    on_staging(team, What::AllGather, staging, length * outputs.len(), fill, stop)?;
    for (block, output) in staging.chunks_exact(length).zip(outputs) {
        if let super::Bytes::Write(bytes) = &mut lent.buffers[output.buffer] {
            bytes[output.bytes.clone()].copy_from_slice(block);
        }
    }
    Ok(())
}

/// Performs an operation on a range of memory that stays with its owner.
fn on_lent(
    team: &mut Team,
    what: What,
    bytes: &'static mut [u8],
    range: Range<usize>,
    stop: &impl Fn() -> bool,
) -> Result<(), GroupError> {
    let region = team.node_mut().register_static(bytes);
    let done = team.multicast(what, region, range, stop);
    // The operation is over, so nothing uses the region.
    team.node_mut().deregister(region)?;
    done.map(drop)
}

/// Performs an operation on memory of the delegate, which `fill` prepares.
fn on_staging(
    team: &mut Team,
    what: What,
    staging: &mut Vec<u8>,
    length: usize,
    fill: impl FnOnce(&mut [u8]),
    stop: &impl Fn() -> bool,
) -> Result<(), GroupError> {
    let mut area = std::mem::take(staging);
    area.resize(length, 0);
    fill(&mut area);
    let region = team.node_mut().register(area);
    let done = team.multicast(what, region, 0..length, stop);
    *staging = team.node_mut().deregister(region)?;
    done.map(drop)
}
