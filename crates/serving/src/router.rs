//! The router: which replicas a request gets.

use crate::blocks::Blocks;
use crate::requests::Request;
use std::collections::BTreeMap;

/// How requests are spread over replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The replica with the fewest prompt tokens that are not computed, or in a decode pool with the fewest requests.
    Load,
    /// As `Load`, but tokens that the replica probably has in its prefix cache do not count.
    Prefix,
    /// One after the other.
    RoundRobin,
}

/// The replicas of a request: their numbers in their pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The replica that computes its prompt.
    pub prefill: u32,
    /// The replica that computes its tokens, if there is a decode pool.
    pub decode: Option<u32>,
}

/// The work under way at a replica.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    requests: u64,
    tokens: u64,
}

/// The router's knowledge: what it has sent, and what replicas told it. A report takes as long as a message.
#[derive(Clone, Debug)]
pub struct Router {
    policy: Policy,
    block: u32,
    prefill: Vec<Load>,
    decode: Vec<Load>,
    /// The blocks that each prefill replica has probably cached, and the number that fits there.
    seen: Vec<Blocks>,
    fits: usize,
    turn: u64,
    /// Requests under way: their choice, and the tokens that they count at their prefill replica.
    under_way: BTreeMap<u32, (Choice, u64)>,
}

/// The place of the least value; the first one of equal ones.
fn least<K: Ord>(count: usize, key: impl Fn(usize) -> K) -> usize {
    (0..count).min_by_key(|&at| (key(at), at)).unwrap_or(0)
}

impl Router {
    /// A router of pools with these numbers of replicas. Blocks of the prefix cache have `block` tokens, and `fits` of
    /// them fit a replica.
    pub fn new(policy: Policy, prefill: u32, decode: u32, block: u32, fits: usize) -> Router {
        let loads = |count: u32| vec![Load::default(); count as usize];
        let seen = vec![Blocks::default(); prefill as usize];
        let (prefill, decode) = (loads(prefill), loads(decode));
        Router { policy, block: block.max(1), prefill, decode, seen, fits, turn: 0, under_way: BTreeMap::new() }
    }

    /// Chooses the replicas of a request.
    pub fn route(&mut self, number: u32, request: &Request) -> Choice {
        let new = |at: usize| {
            let most = (request.input as usize - 1) / self.block as usize;
            let here = self.seen[at].matching(&request.hashes).min(most) as u64 * u64::from(self.block);
            u64::from(request.input) - here
        };
        let (prefill, decode) = match self.policy {
            Policy::RoundRobin => {
                let turn = self.turn as usize;
                self.turn += 1;
                (turn % self.prefill.len(), turn.checked_rem(self.decode.len()).unwrap_or(0))
            }
            policy => {
                let tokens = |at: usize| {
                    let own = if policy == Policy::Prefix { new(at) } else { 0 };
                    self.prefill[at].tokens + own
                };
                let prefill = least(self.prefill.len(), tokens);
                (prefill, least(self.decode.len(), |at| (self.decode[at].requests, self.decode[at].tokens)))
            }
        };
        let tokens = if self.policy == Policy::Prefix { new(prefill) } else { u64::from(request.input) };
        let decode = (!self.decode.is_empty()).then_some(decode as u32);
        self.prefill[prefill].tokens += tokens;
        self.prefill[prefill].requests += 1;
        if let Some(decode) = decode {
            self.decode[decode as usize].requests += 1;
            self.decode[decode as usize].tokens += u64::from(request.input);
        }
        if self.policy == Policy::Prefix {
            let whole = (request.input / self.block) as usize;
            self.seen[prefill].note(&request.hashes[..whole.min(request.hashes.len())], self.fits);
        }
        let choice = Choice { prefill: prefill as u32, decode };
        self.under_way.insert(number, (choice, tokens));
        choice
    }

    /// The prompt of a request is computed.
    pub fn computed(&mut self, number: u32) {
        if let Some((choice, tokens)) = self.under_way.get_mut(&number) {
            self.prefill[choice.prefill as usize].tokens -= std::mem::take(tokens);
        }
    }

    /// A request has ended; `input` is the length of its prompt.
    pub fn done(&mut self, number: u32, input: u32) {
        self.computed(number);
        let Some((choice, _)) = self.under_way.remove(&number) else { return };
        self.prefill[choice.prefill as usize].requests -= 1;
        if let Some(decode) = choice.decode {
            self.decode[decode as usize].requests -= 1;
            self.decode[decode as usize].tokens -= u64::from(input);
        }
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use strandway_proto::units::Time;

    fn request(input: u32, hashes: &[u64]) -> Request {
        Request { at: Time::ZERO, input, output: 1, hashes: Arc::from(hashes) }
    }

    #[test]
    fn load_goes_where_the_fewest_tokens_wait() {
        let mut router = Router::new(Policy::Load, 2, 3, 16, 100);
        let choices: Vec<(u32, Option<u32>)> = [100, 30, 30, 30, 30]
            .iter()
            .zip(0..)
            .map(|(&input, number)| router.route(number, &request(input, &[])))
            .map(|choice| (choice.prefill, choice.decode))
            .collect();
        assert_eq!(choices, [(0, Some(0)), (1, Some(1)), (1, Some(2)), (1, Some(1)), (1, Some(2))]);
        router.done(0, 100);
        assert_eq!(router.route(9, &request(10, &[])).prefill, 0);
        assert_eq!(router.under_way(), 5);
    }

    #[test]
    fn prefixes_stay_together_until_the_queue_costs_more() {
        let mut router = Router::new(Policy::Prefix, 2, 0, 10, 100);
        let hashes: Vec<u64> = (0..10).collect();
        assert_eq!(router.route(0, &request(100, &hashes)).prefill, 0);
        router.computed(0);
        assert_eq!(router.route(1, &request(105, &hashes)).prefill, 0, "5 tokens are new there");
        assert_eq!(router.route(2, &request(3, &[])).prefill, 1);
        assert_eq!(router.route(3, &request(200, &[])).prefill, 1, "3 tokens wait there, and 5 at the other");
        assert_eq!(router.route(4, &request(105, &hashes)).prefill, 0);
        let turns = Router::new(Policy::RoundRobin, 3, 2, 10, 100);
        let mut turns = turns;
        let order: Vec<_> = (0..4).map(|number| turns.route(number, &request(1, &[]))).collect();
        assert_eq!(
            order.iter().map(|c| (c.prefill, c.decode.unwrap())).collect::<Vec<_>>(),
            [(0, 0), (1, 1), (2, 0), (0, 1)]
        );
    }
}
