use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { budget: 100, batch: 4, tokens: 1000, block: 10, chunked: true };

fn none() -> Arc<[u64]> {
    Arc::from([])
}

#[test]
fn a_prompt_takes_the_budget_that_decodes_leave() {
    let mut replica = Batcher::new(Role::Both, LIMITS);
    replica.push(0, 50, 3, none());
    replica.push(1, 170, 1, none());
    assert_eq!(replica.admit(), [0, 1]);
    let first = replica.next_step().expect("two prompts");
    let part = |request, prompt, before, last| Part { request, prompt, before, last };
    assert_eq!(first.parts, [part(0, 50, 0, true), part(1, 50, 0, false)]);
    assert_eq!(first.work.prompt_context, 2 * (50 * 49 / 2));
    assert_eq!(replica.finish(&first), [Progress::Computed(0), Progress::Token(0, 1)]);
    let second = replica.next_step().expect("a token and a chunk");
    assert_eq!(second.parts, [part(0, 0, 51, false), part(1, 99, 50, false)]);
    assert_eq!(replica.finish(&second), [Progress::Token(0, 2)]);
    let third = replica.next_step().expect("the last ones");
    let ends = replica.finish(&third);
    assert_eq!(ends[..2], [Progress::Token(0, 3), Progress::Finished(0)]);
    assert_eq!(ends[2..], [Progress::Computed(1), Progress::Token(1, 1), Progress::Finished(1)]);
    assert!(replica.is_empty() && replica.next_step().is_none());
    assert_eq!(replica.used(), 0);
}

#[test]
fn whole_prompts_share_a_step_only_if_they_fit() {
    let mut replica = Batcher::new(Role::Prefill, Limits { chunked: false, ..LIMITS });
    for (request, input) in [(0, 150), (1, 60), (2, 50), (3, 40)] {
        replica.push(request, input, 1, none());
    }
    replica.admit();
    let steps: Vec<Vec<u32>> = std::iter::from_fn(|| replica.next_step())
        .map(|step| step.parts.iter().map(|part| part.request).collect())
        .collect();
    assert_eq!(steps, [vec![0], vec![1], vec![2, 3]]);
}

#[test]
fn a_cached_prefix_is_not_computed_again() {
    let mut replica = Batcher::new(Role::Prefill, LIMITS);
    let hashes: Arc<[u64]> = Arc::from([1, 2, 3]);
    replica.push(0, 25, 1, Arc::clone(&hashes));
    replica.admit();
    let step = replica.next_step().expect("a prompt");
    replica.finish(&step);
    assert_eq!(replica.used(), 25, "two whole blocks and five tokens");
    replica.release(0);
    assert_eq!((replica.used(), replica.held()), (20, 0));
    replica.push(1, 25, 1, Arc::clone(&hashes));
    replica.push(2, 20, 1, hashes);
    assert_eq!(replica.admit(), [1, 2]);
    let step = replica.next_step().expect("the rest of two prompts");
    assert_eq!(step.parts.iter().map(|part| (part.prompt, part.before)).collect::<Vec<_>>(), [(5, 20), (10, 10)]);
    assert_eq!((replica.cached(1), replica.cached(2)), (20, 10), "the last token is always computed");
}

#[test]
fn a_decode_pool_admits_in_order_and_waits_for_caches() {
    let mut replica = Batcher::new(Role::Decode, Limits { batch: 1, ..LIMITS });
    replica.push(0, 600, 2, none());
    replica.push(1, 500, 2, none());
    replica.push(2, 10, 2, none());
    assert_eq!(replica.admit(), [0], "request 2 would fit, but request 1 comes first");
    assert!(replica.next_step().is_none());
    replica.arrived(0);
    for token in 1..=2 {
        let step = replica.next_step().expect("a token");
        assert_eq!(replica.finish(&step)[0], Progress::Token(0, token));
    }
    assert_eq!(replica.admit(), [1, 2]);
    replica.arrived(2);
    replica.arrived(1);
    let step = replica.next_step().expect("one at a time");
    assert_eq!(step.parts[0].request, 2, "in the order of caches");
}

proptest! {
    /// Any requests, limits and roles: memory is never over its limit, prompts begin in the order in which they came,
    /// and every request ends.
    #[test]
    fn no_request_is_lost_and_memory_has_a_limit(
        role in 0usize..3,
        budget in 1u32..200, batch in 1u32..6, tokens in 400u64..900, block in 1u32..40, chunked: bool,
        requests in prop::collection::vec((1u32..300, 1u32..20, 0u64..4, any::<bool>()), 1..40),
        order in prop::collection::vec(0usize..5, 0..300),
    ) {
        let role = [Role::Prefill, Role::Decode, Role::Both][role];
        let mut replica = Batcher::new(role, Limits { budget, batch, tokens, block, chunked });
        let mut next = requests.iter().zip(0u32..);
        let (mut steps, mut caches, mut computed) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (mut begun, mut ended, mut admitted) = (Vec::new(), 0, 0);
        let rest = std::iter::repeat_n(0..5, 1000 * (requests.len() + 1)).flatten();
        for action in order.into_iter().chain(rest) {
            match action {
                0 => if let Some((&(input, output, family, plain), request)) = next.next() {
                    let hashes = (0..input.div_ceil(block)).map(|i| family << 32 | u64::from(i));
                    replica.push(request, input, output, if plain { none() } else { hashes.collect() });
                },
                1 => for request in replica.admit() {
                    prop_assert_eq!(request, admitted, "first in, first out");
                    admitted += 1;
                    if role == Role::Decode { caches.push_back(request) }
                },
                2 => if let Some(step) = replica.next_step() {
                    for part in &step.parts {
                        if begun.last().is_none_or(|last| *last < part.request) {
                            begun.push(part.request);
                        }
                    }
                    let prompt: u32 = step.parts.iter().map(|part| part.prompt).sum();
                    let alone = step.parts.iter().filter(|part| part.prompt > 0).count() == 1;
                    prop_assert!(prompt <= budget || !chunked && alone);
                    prop_assert_eq!(step.work.tokens(), u64::from(prompt) + step.work.decodes);
                    steps.push_back(step);
                },
                3 => if let Some(step) = steps.pop_front() {
                    for progress in replica.finish(&step) {
                        match progress {
                            Progress::Computed(request) if role == Role::Prefill => computed.push_back(request),
                            Progress::Finished(_) => ended += 1,
                            _ => {}
                        }
                    }
                },
                _ => {
                    if let Some(request) = caches.pop_front() { replica.arrived(request) }
                    if let Some(request) = computed.pop_front() { replica.release(request); ended += 1; }
                }
            }
            prop_assert!(replica.held() <= replica.used() && replica.used() <= tokens);
        }
        prop_assert_eq!(ended, requests.len());
        prop_assert!(replica.is_empty() && replica.held() == 0);
        prop_assert_eq!(begun, (0..requests.len() as u32).collect::<Vec<_>>());
    }
}
