//! Schedules of pipelines: the order in which a stage processes its micro-batches.

/// A schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipeline {
    /// All forward, then all backward (arXiv 1811.06965).
    Gpipe,
    /// One forward, one backward (arXiv 2104.04473, section 2.2.1).
    OneForwardOneBackward,
    /// The same with several chunks of layers per stage (section 2.2.2).
    Interleaved,
}

/// One pass of a stage over one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) backward: bool,
    pub(super) micro: u32,
    /// The number of the chunk of layers in its stage.
    pub(super) chunk: u32,
}

impl Pipeline {
    /// All passes of stage `stage` of `stages`, in order, with `micros` micro-batches and `chunks` chunks of layers per stage.
    pub(super) fn passes(self, stage: u32, stages: u32, micros: u32, chunks: u32) -> Vec<Pass> {
        let all = micros * chunks;
        let ahead = match self {
            Pipeline::Gpipe => all,
            Pipeline::OneForwardOneBackward => (stages - stage - 1).min(all),
            // Megatron-LM's schedules.py, forward_backward_pipelining_with_interleaving.
            Pipeline::Interleaved if micros == stages => all,
            Pipeline::Interleaved => ((stages - stage - 1) * 2 + (chunks - 1) * stages).min(all),
        };
        let forward = |k: u32| {
            let (round, place) = (k / (stages * chunks), k % (stages * chunks));
            Pass { backward: false, micro: round * stages + place % stages, chunk: place / stages }
        };
        let of = |k: u32, backward: bool| match self {
            Pipeline::Interleaved => {
                let pass = forward(k);
                Pass { backward, chunk: if backward { chunks - 1 - pass.chunk } else { pass.chunk }, ..pass }
            }
            _ => Pass { backward, micro: k, chunk: 0 },
        };
        let mut passes: Vec<Pass> = (0..ahead).map(|k| of(k, false)).collect();
        for k in ahead..all {
            passes.extend([of(k, false), of(k - ahead, true)]);
        }
        passes.extend((all - ahead..all).map(|k| of(k, true)));
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The end time of a pipeline, where a forward pass of a chunk takes 1, a backward pass takes 2, and messages take
    /// no time; `None` if the pipeline deadlocks.
    fn makespan(pipeline: Pipeline, stages: u32, micros: u32, chunks: u32) -> Option<u64> {
        let passes: Vec<Vec<Pass>> = (0..stages).map(|s| pipeline.passes(s, stages, micros, chunks)).collect();
        let mut next = vec![0; stages as usize];
        let mut free = vec![0u64; stages as usize];
        let mut ended: BTreeMap<(bool, u32, u32), u64> = BTreeMap::new();
        let last = stages * chunks - 1;
        loop {
            let mut moved = false;
            for stage in 0..stages {
                let s = stage as usize;
                while let Some(pass) = passes[s].get(next[s]) {
                    let place = pass.chunk * stages + stage;
                    let before = match pass.backward {
                        false if place == 0 => Some(0),
                        false => ended.get(&(false, pass.micro, place - 1)).copied(),
                        true if place == last => ended.get(&(false, pass.micro, place)).copied(),
                        true => ended.get(&(true, pass.micro, place + 1)).copied(),
                    };
                    let Some(before) = before else { break };
                    free[s] = free[s].max(before) + if pass.backward { 2 } else { 1 };
                    ended.insert((pass.backward, pass.micro, place), free[s]);
                    next[s] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let whole = passes.iter().zip(&next).all(|(passes, next)| passes.len() == *next);
        whole.then(|| free.into_iter().max().unwrap_or(0))
    }

    #[test]
    fn every_schedule_has_its_bubble_and_no_deadlock() {
        for (stages, micros) in [(1, 1), (2, 4), (4, 4), (4, 12), (8, 16), (3, 9)] {
            let ideal = u64::from(3 * (micros + stages - 1));
            for plain in [Pipeline::Gpipe, Pipeline::OneForwardOneBackward] {
                assert_eq!(makespan(plain, stages, micros, 1), Some(ideal), "{plain:?} {stages} {micros}");
            }
            for chunks in [2, 4] {
                let ideal = u64::from(3 * (micros * chunks + stages - 1));
                let found = makespan(Pipeline::Interleaved, stages, micros, chunks);
                // With as many micro-batches as stages Megatron runs all forward passes first, at the same bubble.
                assert_eq!(found, Some(ideal), "{stages} {micros} {chunks}");
            }
        }
    }

    #[test]
    fn fewer_micro_batches_than_stages_end_too() {
        assert_eq!(makespan(Pipeline::OneForwardOneBackward, 8, 2, 1), Some(3 * 9));
    }
}
