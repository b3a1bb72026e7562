//! The calls of collectives, as PyTorch makes them: the kind, and ranges of the caller's buffers.

use super::BufferRange;
use crate::schedule::Collective;

/// A call of a collective; all ranks make the same call. Ranges name the caller's buffers.
#[derive(Clone, Debug)]
pub enum CollectiveCall {
    /// The numbers of all ranks are replaced by their reduction.
    AllReduce(BufferRange),
    /// The root's numbers are replaced by the reduction; those of other ranks stay.
    Reduce {
        /// The numbers, at the root also the result.
        at: BufferRange,
        /// The root's rank.
        root: u32,
    },
    /// All ranks get the root's bytes.
    Broadcast {
        /// The bytes.
        at: BufferRange,
        /// The root's rank.
        root: u32,
    },
    /// All ranks get the bytes of all ranks.
    AllGather {
        /// Our bytes; `None` if they are in their place already.
        input: Option<BufferRange>,
        /// The places for the bytes of each rank; lengths may differ between ranks.
        outputs: Vec<BufferRange>,
    },
    /// Rank `r` gets the reduction of all ranks' inputs `r`.
    ReduceScatter {
        /// Our inputs, one for each rank; lengths may differ between ranks.
        inputs: Vec<BufferRange>,
        /// The result.
        output: BufferRange,
    },
    /// Rank `r` gets the inputs `r` of all ranks.
    AllToAll {
        /// Our inputs, one for each rank.
        inputs: Vec<BufferRange>,
        /// The places for the input of each rank.
        outputs: Vec<BufferRange>,
    },
    /// The root gets the bytes of all ranks.
    Gather {
        /// Our bytes.
        input: BufferRange,
        /// At the root, the places for the bytes of each rank.
        outputs: Vec<BufferRange>,
        /// The root's rank.
        root: u32,
    },
    /// Rank `r` gets the root's input `r`.
    Scatter {
        /// At the root, the inputs for each rank.
        inputs: Vec<BufferRange>,
        /// The place for our input.
        output: BufferRange,
        /// The root's rank.
        root: u32,
    },
    /// A rank goes on when all ranks are here.
    Barrier,
}

impl CollectiveCall {
    const NAMES: [&'static str; 9] = [
        "all_reduce",
        "reduce",
        "broadcast",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "gather",
        "scatter",
        "barrier",
    ];

    /// Its name in PyTorch, such as `all_reduce`.
    pub const fn name(&self) -> &'static str {
        CollectiveCall::NAMES[self.place()]
    }

    const fn place(&self) -> usize {
        match self {
            CollectiveCall::AllReduce(_) => 0,
            CollectiveCall::Reduce { .. } => 1,
            CollectiveCall::Broadcast { .. } => 2,
            CollectiveCall::AllGather { .. } => 3,
            CollectiveCall::ReduceScatter { .. } => 4,
            CollectiveCall::AllToAll { .. } => 5,
            CollectiveCall::Gather { .. } => 6,
            CollectiveCall::Scatter { .. } => 7,
            CollectiveCall::Barrier => 8,
        }
    }

    /// Its number in messages between processes, from 1 on.
    pub const fn code(&self) -> u8 {
        self.place() as u8 + 1
    }

    /// The name of the call with this number in messages.
    pub fn name_of(code: u8) -> &'static str {
        usize::from(code)
            .checked_sub(1)
            .and_then(|at| CollectiveCall::NAMES.get(at))
            .copied()
            .unwrap_or("an unknown call")
    }

    /// The rank of its root; 0 if it has none.
    pub const fn root(&self) -> u32 {
        match self {
            CollectiveCall::Reduce { root, .. }
            | CollectiveCall::Broadcast { root, .. }
            | CollectiveCall::Gather { root, .. }
            | CollectiveCall::Scatter { root, .. } => *root,
            _ => 0,
        }
    }

    /// Does it reduce numbers?
    pub const fn reduces(&self) -> bool {
        matches!(
            self,
            CollectiveCall::AllReduce(_) | CollectiveCall::Reduce { .. } | CollectiveCall::ReduceScatter { .. }
        )
    }

    /// Bytes of the longest buffer of a rank: of the blocks of all ranks, where a rank has blocks of all. All ranks
    /// compute the same number, but for gather and scatter, where only the root has them.
    pub fn bytes(&self) -> usize {
        let sum = |ranges: &[BufferRange]| ranges.iter().map(BufferRange::len).sum();
        match self {
            CollectiveCall::AllReduce(at)
            | CollectiveCall::Reduce { at, .. }
            | CollectiveCall::Broadcast { at, .. } => at.len(),
            CollectiveCall::AllGather { outputs, .. } | CollectiveCall::Gather { outputs, .. } => sum(outputs),
            CollectiveCall::ReduceScatter { inputs, .. }
            | CollectiveCall::AllToAll { inputs, .. }
            | CollectiveCall::Scatter { inputs, .. } => sum(inputs),
            CollectiveCall::Barrier => 0,
        }
    }

    /// Are the blocks of an all-gather or a reduce-scatter equally long? True for other calls.
    pub fn has_equal_blocks(&self) -> bool {
        match self {
            CollectiveCall::AllGather { outputs: blocks, .. }
            | CollectiveCall::ReduceScatter { inputs: blocks, .. } => {
                blocks.windows(2).all(|pair| pair[0].len() == pair[1].len())
            }
            _ => true,
        }
    }

    /// The result that it produces; `None` for a barrier.
    pub const fn collective(&self) -> Option<Collective> {
        Some(match self {
            CollectiveCall::AllReduce(_) => Collective::AllReduce,
            CollectiveCall::Reduce { .. } => Collective::Reduce,
            CollectiveCall::Broadcast { .. } => Collective::Broadcast,
            CollectiveCall::AllGather { .. } => Collective::AllGather,
            CollectiveCall::ReduceScatter { .. } => Collective::ReduceScatter,
            CollectiveCall::AllToAll { .. } => Collective::AllToAll,
            CollectiveCall::Gather { .. } => Collective::Gather,
            CollectiveCall::Scatter { .. } => Collective::Scatter,
            CollectiveCall::Barrier => return None,
        })
    }

    /// The call of a rank whose buffers have the sizes that nccl-tests gives to a collective of `bytes` bytes: all
    /// blocks of all ranks together, where a rank has blocks. Input and output are different buffers, except for
    /// all-reduce, reduce and broadcast. `rank` is the caller; blocks are whole numbers of `element` bytes.
    ///
    /// `None` for a message from one rank to another, which is not a call.
    pub fn of_size(
        collective: Collective,
        bytes: usize,
        element: usize,
        (rank, ranks): (u32, u32),
        root: u32,
    ) -> Option<CollectiveCall> {
        let whole = BufferRange::whole(0, bytes);
        let block = |buffer: usize, rank: u32| {
            let cut = |rank: u32| super::direct::cut(bytes, element, ranks, rank);
            BufferRange { buffer, bytes: cut(rank)..cut(rank + 1) }
        };
        let blocks = |buffer: usize| (0..ranks).map(|rank| block(buffer, rank)).collect::<Vec<_>>();
        let own = |buffer: usize| BufferRange::whole(buffer, block(0, rank).len());
        Some(match collective {
            Collective::AllReduce => CollectiveCall::AllReduce(whole),
            Collective::Reduce => CollectiveCall::Reduce { at: whole, root },
            Collective::Broadcast => CollectiveCall::Broadcast { at: whole, root },
            Collective::AllGather => CollectiveCall::AllGather { input: Some(own(0)), outputs: blocks(1) },
            Collective::ReduceScatter => CollectiveCall::ReduceScatter { inputs: blocks(0), output: own(1) },
            Collective::AllToAll => {
                // The blocks that a rank gets are as long as its own.
                let length = own(0).len();
                let places = (0..ranks as usize)
                    .map(|from| BufferRange { buffer: 1, bytes: from * length..(from + 1) * length });
                CollectiveCall::AllToAll { inputs: blocks(0), outputs: places.collect() }
            }
            Collective::Gather => {
                let outputs = if rank == root { blocks(1) } else { Vec::new() };
                CollectiveCall::Gather { input: own(0), outputs, root }
            }
            Collective::Scatter => {
                let inputs = if rank == root { blocks(0) } else { Vec::new() };
                CollectiveCall::Scatter { inputs, output: own(1), root }
            }
            Collective::SendReceive => return None,
        })
    }
}
