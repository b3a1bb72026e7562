//! Puts the replicas of a service on servers.

use super::{Pool, ServiceKeys, Skew};
use crate::maker::Maker;
use crate::plans::ServicePlan;
use crate::servers::Servers;
use strandway_proto::HostId;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Span, Time};
use strandway_serving::plan::{Dispatch, Exchange};
use strandway_serving::timing::{Roofline, ServerLinks, Shape, Timing, Work};
use strandway_serving::{Batcher, Limits, Replica, Role, Service};

/// The GPUs of a replica: servers and GPUs of them.
type Place = Vec<(u32, u32)>;

impl Maker<'_> {
    /// Adds a service.
    pub(crate) fn service(&mut self, written: &ServiceKeys) {
        self.traffic.uses_servers = true;
        let servers = self.context.servers.clone();
        let name = self.workload.class.clone();
        if self.traffic.services.iter().any(|other| other.service.name == name) {
            return self.complain("name", &name, "is the name of another service", "give each one a name of its own");
        }
        if let Some(nics) = written.kv_nics.filter(|nics| *nics > servers.nics) {
            let what = format!("is more than the {} NICs of a server", servers.nics);
            return self.complain("kv_nics", nics, what, "write at most that many, or more servers.nics");
        }
        let Some(places) = self.replica_places(written, &servers) else { return };
        let mut hosts: Vec<HostId> = places.iter().flatten().map(|(server, gpu)| servers.host(*server, *gpu)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let at = |host: HostId| hosts.binary_search(&host).unwrap_or_default() as u32;
        let mut server_of = vec![0; hosts.len()];
        for (server, gpu) in places.iter().flatten() {
            server_of[at(servers.host(*server, *gpu)) as usize] = *server;
        }
        let timing = self.timing(written, &servers);
        let mut replicas = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let decodes = number >= written.prefill.replicas as usize;
            let pool = if decodes { &written.decode } else { &written.prefill };
            let nics: Vec<Vec<u32>> = place
                .chunks(pool.stage() as usize)
                .map(|stage| {
                    let mut nics: Vec<u32> =
                        stage.iter().map(|(server, gpu)| at(servers.host(*server, *gpu))).collect();
                    nics.dedup();
                    nics
                })
                .collect();
            let role = match (decodes, written.decode.replicas) {
                (true, _) => Role::Decode,
                (false, 0) => Role::Both,
                (false, _) => Role::Prefill,
            };
            let Some(replica) = self.replica(written, pool, role, nics, &server_of, &servers) else { return };
            replicas.push(replica);
        }
        let start = Time(self.workload.common.start.0);
        let (mut requests, arrivals) = written.source.make(start, &mut self.random);
        let fits = |input, output| {
            replicas.iter().all(|replica| Batcher::need(replica.role, input, output) <= replica.limits.tokens)
        };
        let all = requests.len();
        requests.retain(|request| fits(request.input, request.output));
        let refused = all - requests.len();
        if requests.is_empty() {
            let what = "have room for no request in their memory";
            return self.complain("kv_tokens", "", what, "write shorter prompts, or more GPUs per replica");
        }
        if refused > 0 {
            self.traffic.notes.push(format!(
                "{name}: {refused} of {all} requests are longer than the KV cache of a replica and are left out"
            ));
        }
        let last = requests.last().map_or(Time::ZERO, |request| request.at);
        let shortest = self.context.topology.shortest_latency();
        let inside = ServerLinks { rate: servers.rate, latency: servers.latency.max(shortest) };
        let service = Service {
            name: name.clone(),
            router: at(servers.host(places[0][0].0, places[0][0].1)),
            hosts,
            servers: server_of,
            prefill: written.prefill.replicas,
            replicas,
            timing,
            kv_bytes: written.model.kv_bytes(u64::from(written.kv_bits) / 8),
            activation: written.model.hidden * 2,
            inside,
            transfer: written.transfer,
            policy: written.policy,
            sample: written.sample.unwrap_or(Span(((last.0 - start.0) / 400).max(1_000_000_000))),
            requests,
            arrivals,
            slo: written.slo,
            first_message: 0,
            width: 0,
            first_channel: 0,
            profile: self.profile,
            connections: self.workload.common.connections,
            order: 0,
        };
        let longest = self.longest(&service);
        self.traffic.notes.push(note(written, &service));
        self.update_weights(written, &servers, &places);
        self.traffic.services.push(ServicePlan { service, longest });
    }

    /// Takes servers for all replicas. Both pools have servers of their own.
    fn replica_places(&mut self, written: &ServiceKeys, servers: &Servers) -> Option<Vec<Place>> {
        let per_nic = servers.gpus / servers.nics;
        let mut free: Vec<u32> = if written.spread { servers.spread() } else { (0..servers.count).collect() };
        free.retain(|server| !self.traffic.taken.contains(server));
        let there = free.len();
        let mut free = free.into_iter();
        let mut places = Vec::new();
        let mut taken = Vec::new();
        for (pool, key) in [(&written.prefill, "prefill"), (&written.decode, "decode")] {
            let gpus = pool.gpus();
            if gpus < per_nic || !gpus.is_multiple_of(per_nic) {
                let what = format!("gives a replica {gpus} GPUs, and every NIC belongs to {per_nic}");
                let remedy = "write degrees whose product is a multiple of that, or more NICs (servers.nics)";
                self.complain(&format!("{key}_tp"), pool.tp, what, remedy);
                return None;
            }
            let whole = gpus.is_multiple_of(servers.gpus);
            if !whole && !servers.gpus.is_multiple_of(gpus) {
                let what = format!("gives a replica {gpus} GPUs, and a server has {}", servers.gpus);
                let remedy = "write degrees whose product divides the GPUs of a server, or is a multiple of them";
                self.complain(&format!("{key}_tp"), pool.tp, what, remedy);
                return None;
            }
            let per_server = (servers.gpus / gpus).max(1);
            let mut open: Option<(u32, u32)> = None;
            for _ in 0..pool.replicas {
                let mut place = Place::new();
                while (place.len() as u32) < gpus {
                    let (server, used) = match open.take().filter(|(_, used)| *used < per_server) {
                        Some(open) => open,
                        None => match free.next() {
                            Some(server) => {
                                taken.push(server);
                                (server, 0)
                            }
                            None => {
                                let needed = self.needed(written, servers);
                                let what = format!("needs {needed} servers, and {there} are free");
                                self.complain(key, pool.replicas, what, "enlarge the fabric, or write fewer");
                                return None;
                            }
                        },
                    };
                    let each = gpus.min(servers.gpus);
                    place.extend((used * each..(used + 1) * each).map(|gpu| (server, gpu)));
                    open = Some((server, used + 1));
                }
                places.push(place);
            }
        }
        self.traffic.taken.extend(taken);
        Some(places)
    }

    /// Servers that a service needs.
    fn needed(&self, written: &ServiceKeys, servers: &Servers) -> u32 {
        let of = |pool: &Pool| match servers.gpus / pool.gpus() {
            0 => pool.replicas * (pool.gpus() / servers.gpus),
            each => pool.replicas.div_ceil(each),
        };
        of(&written.prefill) + of(&written.decode)
    }

    fn timing(&self, written: &ServiceKeys, servers: &Servers) -> Timing {
        match &written.times {
            Some(table) => Timing::Table(table.clone()),
            None => Timing::Roofline(Box::new(roofline(written, servers))),
        }
    }

    fn replica(
        &mut self,
        written: &ServiceKeys,
        pool: &Pool,
        role: Role,
        stages: Vec<Vec<u32>>,
        server_of: &[u32],
        servers: &Servers,
    ) -> Option<Replica> {
        let shape = Shape { gpus: pool.stage(), tp: pool.tp, stages: pool.pp };
        let tokens = match written.kv_tokens {
            Some(tokens) => tokens,
            None => roofline(written, servers).capacity(&shape, written.memory),
        };
        if tokens == 0 {
            let key = if role == Role::Decode { "decode_tp" } else { "prefill_tp" };
            let what = format!("leaves no memory for KV caches besides the weights of {}", written.label);
            self.complain(key, pool.tp, what, "write more GPUs per replica, fewer weight_bits, or memory");
            return None;
        }
        let limits = Limits {
            budget: written.budget,
            batch: written.batch,
            tokens,
            block: written.block,
            chunked: written.chunked,
        };
        let exchange = self.exchange(written, pool, stages[0].len(), servers);
        // The first NICs of each server carry KV caches.
        let most = written.kv_nics.unwrap_or(servers.nics);
        let all: Vec<u32> = stages.iter().flatten().copied().collect();
        let lanes = all.iter().enumerate().filter(|(at, nic)| {
            let before = all[..*at].iter().filter(|other| server_of[**other as usize] == server_of[**nic as usize]);
            before.count() < most as usize
        });
        let mut lanes: Vec<u32> = lanes.map(|(_, nic)| *nic).collect();
        lanes.dedup();
        Some(Replica { role, shape, limits, stages, lanes, exchange })
    }

    /// The messages that the servers of a stage exchange in each layer; `None` if a stage is inside one server.
    fn exchange(&self, written: &ServiceKeys, pool: &Pool, nics: usize, servers: &Servers) -> Option<Exchange> {
        let model = &written.model;
        let reduce = (pool.tp > servers.gpus).then_some(model.hidden * 2);
        let spans = pool.ep > servers.gpus;
        let experts = model.experts.filter(|_| spans).map(|experts| {
            let mut random = Random::new(self.context.seed, StreamKind::Workload, 1 << 40);
            let layers = 0..model.expert_layers() / pool.pp;
            let shares = layers.map(|_| shares(written.skew, experts.count, nics as u64, &mut random)).collect();
            let compute = experts.top_k * model.expert() * u64::from(model.expert_layers()) * 1000 / model.active();
            // DeepEP: one byte per element there, two back (arXiv 2412.19437, section 3.2.2).
            Dispatch {
                top_k: experts.top_k,
                there: model.hidden,
                back: model.hidden * 2,
                shares,
                compute: compute as u32,
            }
        });
        let layers = if reduce.is_some() { model.layers } else { model.expert_layers() } / pool.pp;
        (reduce.is_some() || experts.is_some()).then_some(Exchange { layers, reduce, experts })
    }

    /// How long a service takes if every replica computes one request after the other: its run is over by then, unless
    /// it is stuck.
    fn longest(&self, service: &Service) -> Span {
        let prefill = &service.replicas[0];
        let decode = service.replicas.last().unwrap_or(prefill);
        let lanes = prefill.lanes.len().max(decode.lanes.len()) as u64;
        let mut sum = 0u64;
        for request in &service.requests {
            let input = u64::from(request.input);
            let prompt = Work { prompt: input, prompt_context: input * input / 2, ..Work::default() };
            let context = input + u64::from(request.output);
            let token = Work { decodes: 1, context, ..Work::default() };
            let stages = |replica: &Replica| u64::from(replica.shape.stages);
            let first = service.timing.stage(&prefill.shape, &prompt).0.saturating_mul(stages(prefill));
            let each = service.timing.stage(&decode.shape, &token).0.saturating_mul(stages(decode));
            let cache = service.cache_time(request.input, self.context.rate, lanes).0;
            let all = first.saturating_add(each.saturating_mul(request.output.into())).saturating_add(cache);
            sum = sum.saturating_add(all);
        }
        let last = service.requests.last().map_or(0, |request| request.at.0);
        Span(last.saturating_add(sum))
    }
}

fn roofline(written: &ServiceKeys, servers: &Servers) -> Roofline {
    let outside = written.prefill.tp.max(written.decode.tp) > servers.gpus;
    Roofline {
        model: written.model.clone(),
        gpu: written.gpu,
        weight_bytes: written.weight_bytes(),
        kv_bytes: u64::from(written.kv_bits) / 8,
        overhead: written.overhead,
        activation_bytes: 2,
        inside: ServerLinks { rate: servers.rate, latency: servers.latency },
        tp_outside: outside,
    }
}

/// The shares of all visits to the experts of each NIC, in millionths, for one layer.
fn shares(skew: Skew, experts: u64, nics: u64, random: &mut Random) -> Vec<u32> {
    let mut weights: Vec<f64> = match skew {
        Skew::Uniform => vec![1.0; experts as usize],
        Skew::Zipf => (1..=experts).map(|k| 1.0 / k as f64).collect(),
        Skew::Hot(share) => {
            let others = (1.0 - share) / (experts - 1).max(1) as f64;
            (0..experts).map(|k| if k == 0 { share } else { others }).collect()
        }
    };
    random.shuffle(&mut weights);
    let all: f64 = weights.iter().sum();
    let bounds = |nic: u64| (nic * experts / nics) as usize..((nic + 1) * experts / nics) as usize;
    (0..nics).map(|nic| (weights[bounds(nic)].iter().sum::<f64>() / all * 1e6 + 0.5) as u32).collect()
}

/// A note for the report, which describes the service.
fn note(written: &ServiceKeys, service: &Service) -> String {
    let pool = |pool: &Pool, what: &str, replica: &Replica| {
        let degrees = [("TP", pool.tp), ("PP", pool.pp), ("EP", pool.ep)];
        let degrees: Vec<String> =
            degrees.iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!("{name} {n}")).collect();
        let degrees = if degrees.is_empty() { String::new() } else { format!(" ({})", degrees.join(", ")) };
        let noun = if pool.replicas == 1 { "replica" } else { "replicas" };
        let tokens = strandway_report::numbers::count(replica.limits.tokens);
        format!(
            "{} {noun} for {what} of {} GPUs{degrees}, {tokens} tokens of KV cache each",
            pool.replicas,
            pool.gpus()
        )
    };
    let first = pool(
        &written.prefill,
        if written.decode.replicas == 0 { "both phases" } else { "prefill" },
        &service.replicas[0],
    );
    let second = match (written.decode.replicas, service.replicas.last()) {
        (1.., Some(replica)) => format!("; {}", pool(&written.decode, "decode", replica)),
        _ => String::new(),
    };
    format!(
        "{}: {}, {} B of KV cache per token; {} requests {}; {first}{second}",
        service.name,
        written.label,
        strandway_report::numbers::count(service.kv_bytes),
        strandway_report::numbers::count(service.requests.len() as u64),
        written.source.words(),
    )
}
