//! The operations of one thread block, as nodes.

use super::made::{Act, Made, Pull, Signal, Way};
use super::{Block, Buffer, CHUNKS_MAX, Gpu, Op, Plan, STEPS_MAX, Wrong};
use std::collections::BTreeMap;

/// Writes the nodes of one thread block.
pub(super) struct Writer<'a> {
    pub(super) made: &'a mut Made,
    pub(super) plan: &'a Plan,
    pub(super) gpu: &'a Gpu,
    pub(super) block: &'a Block,
    pub(super) previous: Option<u32>,
    /// Messages to a GPU since the last signal to it.
    pub(super) pending: BTreeMap<u32, Vec<usize>>,
    /// The last signal of a GPU that was waited for.
    pub(super) waited: BTreeMap<u32, (Way, usize)>,
    /// The number of times that it has met each barrier.
    pub(super) barriers: BTreeMap<u32, usize>,
}

impl Writer<'_> {
    pub(super) fn then(&mut self, act: Act) -> usize {
        let node = self.made.node(self.gpu.id, act, self.previous.into_iter().collect());
        self.previous = Some(node as u32);
        node
    }

    /// The GPU at the other end of a channel of the thread block, and the channel's number among those of the two.
    pub(super) fn peer(&self, op: &Op, id: u32) -> Result<(u32, usize), Wrong> {
        let missing = || (format!("`{}` names a channel that is not there", op.name), "correct channel_ids");
        let own = self.block.channels.iter().find(|own| own.channel_type == op.channel_type).ok_or_else(missing)?;
        let id = *own.channel_ids.get(id as usize).ok_or_else(missing)? as usize;
        let all = self.gpu.channels.iter().find(|all| all.channel_type == op.channel_type).ok_or_else(missing)?;
        let peer = *all.connected_to.get(id).ok_or_else(missing)?;
        if peer as usize >= self.plan.gpus.len() || peer == self.gpu.id {
            return Err((format!("a channel leads to GPU {peer}"), "correct connected_to"));
        }
        Ok((peer, all.connected_to[..id].iter().filter(|other| **other == peer).count()))
    }

    /// The GPU whose memory a buffer is in, and the kind of memory; `None` if it is in this GPU's.
    pub(super) fn owner(&self, op: &Op, buffer: &Buffer) -> Result<Option<(u32, &str)>, Wrong> {
        let Some(id) = buffer.buffer_id else { return Ok(None) };
        let missing = || (format!("`{}` names a buffer that is not there", op.name), "correct buffer_id");
        let mut own = self.block.remote_buffer_refs.iter().filter(|own| own.access_channel_type == op.channel_type);
        let id = own.next().and_then(|own| own.remote_buffer_ids.get(id as usize)).ok_or_else(missing)?;
        let remote = self.gpu.remote_buffers.get(*id as usize).ok_or_else(missing)?;
        if remote.rank as usize >= self.plan.gpus.len() || remote.rank == self.gpu.id {
            return Err((format!("a remote buffer is at GPU {}", remote.rank), "correct remote_buffers"));
        }
        Ok(Some((remote.rank, &remote.buffer)))
    }

    pub(super) fn chunks(&self, buffer: &Buffer) -> Result<Vec<u32>, Wrong> {
        if buffer.size > CHUNKS_MAX || buffer.index > CHUNKS_MAX {
            return Err((
                format!("a buffer of {} chunks from {} on", buffer.size, buffer.index),
                "correct index and size",
            ));
        }
        Ok((buffer.index..buffer.index + buffer.size).collect())
    }

    pub(super) fn ops(&mut self, ops: &[Op]) -> Result<(), Wrong> {
        for op in ops {
            self.made.steps += 1;
            if self.made.steps > STEPS_MAX {
                return Err((format!("there are more than {STEPS_MAX} operations"), "cut the plan"));
            }
            self.op(op)?;
        }
        Ok(())
    }

    pub(super) fn op(&mut self, op: &Op) -> Result<(), Wrong> {
        match op.name.as_str() {
            "nop" | "flush" | "start" | "copy" | "re" => {}
            "pipeline" => self.ops(&op.ops)?,
            "signal" | "rlxsignal" => self.signal(op)?,
            "wait" | "rlxwait" => self.wait(op)?,
            "barrier" => {
                let node = self.then(Act::Nothing);
                let id = op.barrier_id.unwrap_or(0);
                let round = self.barriers.entry(id).or_insert(0);
                self.made.barriers.entry((self.gpu.id, id)).or_default().push((*round, node));
                *round += 1;
            }
            "sem_release" => {
                let node = self.then(Act::Nothing);
                for semaphore in &op.semaphore_ids {
                    self.made.releases.entry((self.gpu.id, *semaphore)).or_default().push(node);
                }
            }
            "sem_acquire" => {
                let node = self.then(Act::Nothing);
                for semaphore in &op.semaphore_ids {
                    let place = self.made.acquired.entry((self.gpu.id, *semaphore)).or_insert(0);
                    self.made.acquires.push((self.gpu.id, node, *semaphore, *place));
                    *place += 1;
                }
            }
            "gstore" | "gstorepkt" | "glre" | "glres" => {
                let what =
                    format!("`{}` adds or copies in the switch of a server (NVLS), which recipes do not have", op.name);
                return Err((what, "take a plan without channels of the type switch"));
            }
            "get" | "put" | "ppkt" | "rppkt" | "pws" | "pwsf" | "res" | "respkt" | "recspkt" | "rre" | "rres"
            | "cpkt" | "upkt" | "repkt" | "recpkt" => self.moves(op)?,
            other => return Err((format!("`{other}` is no operation that is understood"), "correct its name")),
        }
        Ok(())
    }

    pub(super) fn signal(&mut self, op: &Op) -> Result<(), Wrong> {
        for id in &op.channel_ids {
            let (peer, number) = self.peer(op, *id)?;
            let message = self.made.message(self.gpu.id, peer, number, Vec::new(), false);
            let node = self.then(Act::Send(message));
            let data = self.pending.remove(&peer).unwrap_or_default();
            let way = (self.gpu.id, peer, op.channel_type.clone(), number);
            self.made.signals.entry(way).or_default().push(Signal { message, node, data });
        }
        Ok(())
    }

    pub(super) fn wait(&mut self, op: &Op) -> Result<(), Wrong> {
        for id in &op.channel_ids {
            let (peer, number) = self.peer(op, *id)?;
            let way: Way = (peer, self.gpu.id, op.channel_type.clone(), number);
            let count = self.made.counts.entry(way.clone()).or_insert(0);
            let place = *count;
            *count += 1;
            let node = self.then(Act::Nothing);
            self.made.waits.push((self.gpu.id, node, way.clone(), place));
            self.waited.insert(peer, (way, place));
        }
        Ok(())
    }

    /// Reads from other GPUs, then waits for packets, then writes to other GPUs.
    pub(super) fn moves(&mut self, op: &Op) -> Result<(), Wrong> {
        // Of the thread blocks that do one operation together, the first one moves its bytes.
        let whole = op.tbg_info.as_ref().is_none_or(|part| part.tb_id == 0);
        let packets = op.name.ends_with("pkt");
        for buffer in &op.src_buff {
            if let Some((owner, _)) = self.owner(op, buffer)? {
                if whole {
                    let chunks = self.wrapped(self.chunks(buffer)?);
                    let adds = op.name.starts_with("rre");
                    let message = self.made.message(owner, self.gpu.id, 0, chunks, adds);
                    self.made.messages[message].received = true;
                    let after = self.waited.get(&owner).cloned();
                    self.made.pulls.push(Pull { message, after });
                    self.then(Act::Receive(message));
                }
            } else if packets && op.name != "ppkt" && op.name != "cpkt" && buffer.own.as_deref() == Some("s") {
                let chunks = self.chunks(buffer)?;
                let node = self.then(Act::Nothing);
                self.made.readers.push((self.gpu.id, node, chunks));
            }
        }
        let source = op.src_buff.first().map_or(1, |buffer| buffer.size);
        for buffer in &op.dst_buff {
            let Some((owner, kind)) = self.owner(op, buffer)? else { continue };
            if !whole {
                continue;
            }
            let size = if buffer.size == 0 { source } else { buffer.size };
            let there = self.chunks(&Buffer { own: None, buffer_id: None, index: buffer.index, size })?;
            let is_scratch = kind == "s";
            let message = self.made.message(self.gpu.id, owner, 0, self.wrapped(there.clone()), false);
            self.then(Act::Send(message));
            if packets && is_scratch {
                for chunk in there {
                    self.made.packets.entry((owner, chunk)).or_default().push(message);
                }
            } else {
                self.pending.entry(owner).or_default().push(message);
            }
        }
        if matches!(op.name.as_str(), "pws" | "pwsf") {
            self.signal(op)?;
        }
        Ok(())
    }

    /// Chunks of scratch memory count like those of the buffers.
    pub(super) fn wrapped(&self, chunks: Vec<u32>) -> Vec<u32> {
        chunks.into_iter().map(|chunk| chunk % self.made.chunks).collect()
    }
}
