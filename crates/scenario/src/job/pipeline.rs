//! Schedules of pipelines: the order in which a stage processes its micro-batches.

/// A schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pipeline {
    /// All forward, then all backward (arXiv 1811.06965).
    Gpipe,
    /// One forward, one backward (arXiv 2104.04473, section 2.2.1).
    OneForwardOneBackward,
    /// One forward, one backward, with several chunks of layers per stage (arXiv 2104.04473, section 2.2.2).
    Interleaved,
    /// ZB-H1 (arXiv 2401.10241, section 2.2): the gradients of weights are computed later than those of inputs, when
    /// the stage would wait. No stage keeps more micro-batches than the first one does with 1F1B.
    ZeroBubble,
}

/// The work of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Forward,
    /// The gradients of inputs and weights.
    Backward,
    /// The gradients of inputs, which the previous stage waits for.
    Inputs,
    /// The gradients of weights.
    Weights,
}

/// One pass of a stage over one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) part: Part,
    pub(super) micro: u32,
    /// The number of the chunk of layers in its stage.
    pub(super) chunk: u32,
}

impl Pipeline {
    /// All passes of stage `stage` of `stages`, in order, with `micros` micro-batches and `chunks` chunks of layers per
    /// stage.
    pub(super) fn passes(self, stage: u32, stages: u32, micros: u32, chunks: u32) -> Vec<Pass> {
        let all = micros * chunks;
        let ahead = match self {
            Pipeline::ZeroBubble => return zero_bubble(stage, stages, micros),
            Pipeline::Gpipe => all,
            Pipeline::OneForwardOneBackward => (stages - stage - 1).min(all),
            // Megatron-LM's schedules.py, forward_backward_pipelining_with_interleaving.
            Pipeline::Interleaved if micros == stages => all,
            Pipeline::Interleaved => ((stages - stage - 1) * 2 + (chunks - 1) * stages).min(all),
        };
        let forward = |k: u32| {
            let (round, place) = (k / (stages * chunks), k % (stages * chunks));
            Pass { part: Part::Forward, micro: round * stages + place % stages, chunk: place / stages }
        };
        let of = |k: u32, backward: bool| {
            let part = if backward { Part::Backward } else { Part::Forward };
            match self {
                Pipeline::Interleaved => {
                    let pass = forward(k);
                    Pass { part, chunk: if backward { chunks - 1 - pass.chunk } else { pass.chunk }, ..pass }
                }
                _ => Pass { part, micro: k, chunk: 0 },
            }
        };
        let mut passes: Vec<Pass> = (0..ahead).map(|k| of(k, false)).collect();
        for k in ahead..all {
            passes.extend([of(k, false), of(k - ahead, true)]);
        }
        passes.extend((all - ahead..all).map(|k| of(k, true)));
        passes
    }
}

/// ZB-H1: the order of 1F1B. Stage `stage` computes the gradients of the weights of a micro-batch when it has computed
/// those of the inputs of `stage` later ones, and the remaining ones at the end.
fn zero_bubble(stage: u32, stages: u32, micros: u32) -> Vec<Pass> {
    let of = |part: Part, micro: u32| Pass { part, micro, chunk: 0 };
    let ahead = (stages - stage - 1).min(micros);
    let mut passes: Vec<Pass> = (0..ahead).map(|micro| of(Part::Forward, micro)).collect();
    for micro in 0..micros {
        if micro + ahead < micros {
            passes.push(of(Part::Forward, micro + ahead));
        }
        passes.push(of(Part::Inputs, micro));
        if micro >= stage {
            passes.push(of(Part::Weights, micro - stage));
        }
    }
    let late = micros.saturating_sub(stage);
    passes.extend((late..micros).map(|micro| of(Part::Weights, micro)));
    passes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The end time of a pipeline, where a forward pass of a chunk takes 1, a backward pass takes 2, and messages take
    /// no time; `None` if the pipeline deadlocks.
    fn makespan(pipeline: Pipeline, stages: u32, micros: u32, chunks: u32) -> Option<u64> {
        timed(pipeline, (stages, micros, chunks), [1, 1, 1])
    }

    /// The end time of a pipeline if a forward pass, the gradients of inputs and those of weights take these times;
    /// `None` if the pipeline deadlocks.
    fn timed(
        pipeline: Pipeline,
        (stages, micros, chunks): (u32, u32, u32),
        [forward, inputs, weights]: [u64; 3],
    ) -> Option<u64> {
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
                    let (before, time) = match pass.part {
                        Part::Forward if place == 0 => (Some(0), forward),
                        Part::Forward => (ended.get(&(false, pass.micro, place - 1)).copied(), forward),
                        Part::Weights => (ended.get(&(true, pass.micro, place)).copied(), weights),
                        part => {
                            let from =
                                if place == last { (false, pass.micro, place) } else { (true, pass.micro, place + 1) };
                            (ended.get(&from).copied(), inputs + if part == Part::Backward { weights } else { 0 })
                        }
                    };
                    let Some(before) = before else { break };
                    free[s] = free[s].max(before) + time;
                    if pass.part != Part::Weights {
                        ended.insert((pass.part != Part::Forward, pass.micro, place), free[s]);
                    }
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

    /// arXiv 2401.10241, table 1: (p - 1)(T_F + T_B - T_W), where 1F1B has (p - 1)(T_F + T_B + T_W).
    #[test]
    fn zero_bubble_has_the_bubble_of_its_paper() {
        for (stages, micros) in [(1, 1), (2, 3), (4, 4), (4, 12), (8, 16), (3, 9)] {
            for times @ [forward, inputs, weights] in [[1, 1, 1], [10, 12, 8], [10, 20, 10], [10, 10, 5]] {
                let work = u64::from(micros) * (forward + inputs + weights);
                let bubble = u64::from(stages - 1) * (forward + inputs - weights);
                let found = timed(Pipeline::ZeroBubble, (stages, micros, 1), times);
                assert_eq!(found, Some(work + bubble), "{stages} {micros} {times:?}");
                let plain = timed(Pipeline::OneForwardOneBackward, (stages, micros, 1), times);
                assert_eq!(plain, Some(work + bubble + 2 * u64::from(stages - 1) * weights));
            }
        }
    }

    /// A stage keeps a micro-batch from its forward pass until the gradients of its weights are there.
    #[test]
    fn zero_bubble_keeps_as_many_micro_batches_as_1f1b() {
        for (stages, micros) in [(4, 8), (8, 16), (8, 5), (3, 1)] {
            for stage in 0..stages {
                let passes = Pipeline::ZeroBubble.passes(stage, stages, micros, 1);
                let count = |part: Part| passes.iter().filter(|pass| pass.part == part).count() as u32;
                assert_eq!([Part::Forward, Part::Inputs, Part::Weights].map(count), [micros; 3]);
                let (mut kept, mut most) = (0u32, 0);
                for pass in passes {
                    match pass.part {
                        Part::Forward => kept += 1,
                        Part::Weights => kept -= 1,
                        _ => {}
                    }
                    most = most.max(kept);
                }
                assert!(most <= stages, "stage {stage} of {stages} keeps {most}");
            }
        }
    }
}
