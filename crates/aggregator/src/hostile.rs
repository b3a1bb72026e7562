//! A worker of one job that sends arbitrary fragments, while another job shares the switch.

use crate::{JobConfig, Switch, SwitchConfig, SwitchStatus};
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandway_group::aggregation::message::{Join, Welcome};
use strandway_group::aggregation::switch_connection::{SwitchAccess, SwitchConnection};
use strandway_group::aggregation::worker::{Operation, Session};
use strandway_group::aggregation::{Numbers, Scale, Sums};
use strandway_proto::aggregate::{Fragment, Kind, Marks, number_of};
use strandway_proto::rng::{Random, StreamKind};
use strandway_switch::{Esa, ResultPath, System};
use strandway_udp::fragments::{FragmentSocket, Received, Sealing};

pub(crate) const LANES: u16 = 16;
pub(crate) const SLOTS: u32 = 64;
/// This time is longer than a busy machine keeps a thread waiting.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

pub(crate) fn key(job: u16) -> Vec<u8> {
    [&[7; 32][..], &job.to_be_bytes()].concat()
}

/// Sets its flag when it goes out of scope, also by a panic. A thread that waits for the flag then ends, and the test
/// fails instead of hanging.
pub(crate) struct SetAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves two jobs while `work` runs with their admission addresses. The first job may hold a quarter of the slots.
fn serving(system: System, work: impl FnOnce(&[SocketAddrV6]) + Send) -> SwitchStatus {
    let jobs = [(1, 0.25), (2, 1.0)].map(|(number, share)| JobConfig { number, key: key(number), share });
    let config = SwitchConfig::new("[::1]:0".parse().expect("an address"), system);
    let config = SwitchConfig { jobs: jobs.into(), slots: SLOTS, elements: LANES, silence: SILENCE, ..config };
    let mut switch = Switch::start(config).expect("it starts");
    let admissions = [1, 2].map(|job| switch.admission(job).expect("an admission address"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = SetAtEnd(&done);
            work(&admissions);
        });
        let mut worst = switch.status();
        while !done.load(Ordering::Relaxed) {
            switch.turn(Duration::from_millis(10)).expect("sockets work");
            let now = switch.status();
            let held = |status: &SwitchStatus| status.ports[0].jobs.get(&1).map_or((0, 0), |job| (job.0, job.1));
            let most = (held(&now).0.max(held(&worst).0), held(&now).1.max(held(&worst).1));
            worst = now;
            if let Some(job) = worst.ports[0].jobs.get_mut(&1) {
                (job.0, job.1) = most;
            }
        }
        worst
    })
}

pub(crate) fn join(worker: u16, workers: u16) -> Join {
    Join { worker, workers, elements: LANES, window: 16, epoch: 1, token: [3; 16], exponents: false, scatter: false }
}

pub(crate) fn way(admission: SocketAddrV6, key: &[u8]) -> SwitchAccess<'_> {
    let (patience, rate) = (Duration::from_secs(120), strandway_proto::Rate::from_gbps(1));
    SwitchAccess {
        ours: Ipv6Addr::LOCALHOST,
        admission,
        key,
        patience,
        silence: SILENCE,
        socket_buffer: 1 << 20,
        loss: 0.0,
        rate,
    }
}

/// Two honest workers of job 2 add up until `stop`; returns the number of rounds. Every sum is right.
pub(crate) fn honest(admission: SocketAddrV6, stop: &AtomicBool) -> u32 {
    let key = key(2);
    // A switch that takes racks answers when both are there.
    let mut sessions: Vec<Session> = std::thread::scope(|scope| {
        let joining = [0, 1].map(|worker| {
            let key = &key;
            scope.spawn(move || {
                let joined = Session::join(&way(admission, key), join(worker, 2), &|| false);
                joined.unwrap_or_else(|apart| panic!("worker {worker}: {apart}"))
            })
        });
        joining.map(|thread| thread.join().expect("it joins")).into()
    });
    let scale = Scale::new(2, 16.0);
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) || rounds == 0 {
        let buffers = [0, 1].map(|worker| (0..800).map(|i| ((i * 7 + worker + rounds) % 97) as f32 / 8.0).collect());
        let [a, b]: [Vec<f32>; 2] = buffers;
        let mut operations: Vec<Operation<'_>> = Vec::new();
        for (session, buffer) in sessions.iter_mut().zip([&a, &b]) {
            operations.push(session.begin(Numbers::Floats(buffer), scale, 1, Vec::new()).expect("small numbers"));
        }
        let until = Instant::now() + Duration::from_secs(120);
        while !operations.iter().all(Operation::is_done) {
            assert!(Instant::now() < until, "results come");
            for (session, operation) in sessions.iter_mut().zip(&mut operations) {
                session.turn(operation, Duration::from_micros(200));
            }
        }
        for operation in &operations {
            let mut sums = vec![0.0; 800];
            assert!(operation.restore(scale, Sums::Floats(&mut sums)));
            assert!(sums.iter().zip(a.iter().zip(&b)).all(|(sum, (a, b))| *sum == a + b), "round {rounds}");
        }
        sessions.iter_mut().for_each(Session::end);
        rounds += 1;
    }
    rounds
}

/// A fragment that a hostile worker might send. Its fields are random, and in many cases nearly right.
fn anything(random: &mut Random, worker: u16, job: u16) -> Fragment {
    let mut one = |of: &[u32]| of[random.below(of.len() as u32) as usize];
    let kind = Kind::ALL[one(&(0..Kind::ALL.len() as u32).collect::<Vec<_>>()) as usize];
    let kind = if one(&[0, 1]) == 0 { Kind::Data } else { kind };
    let near = one(&(0..4_096).collect::<Vec<_>>());
    let sender = one(&[u32::from(worker), u32::from(worker), u32::from(worker), 1 - u32::from(worker), 0xffff, 0xfffe]);
    Fragment {
        kind,
        marks: Marks(one(&[0, 0, 0, 0, 1, 2, 3, 0x20, 0x23, 0x40, 0x80, 0xff]) as u8),
        priority: one(&[255, 255, 0, 128]) as u8,
        job: one(&[u32::from(job), u32::from(job), u32::from(job), 2, 0, 0xffff]) as u16,
        fan_in: [one(&[2, 2, 1, 0, 32]) as u8, one(&[1, 1, 0, 9]) as u8],
        number: one(&[
            number_of((1 << 40) + u64::from(near)),
            number_of((1 << 40) + u64::from(near)),
            near,
            0,
            u32::MAX,
        ]),
        workers: one(&[1 << worker, 1 << worker, 1 << worker, 3, 0, u32::MAX]),
        racks: one(&[1, 1, 1, 0, 3, u32::MAX]),
        slot: one(&[near, near % SLOTS, u32::MAX, 1 << 31 | near]),
        watermark: one(&[0, near, u32::MAX]),
        elements: LANES,
        sender: sender as u16,
    }
}

fn attack(admission: SocketAddrV6, stop: &AtomicBool) {
    let _stop = SetAtEnd(stop);
    let key = key(1);
    let mut parts: Vec<(SwitchConnection, Welcome)> = Vec::new();
    for worker in 0..2 {
        let joined = SwitchConnection::open(&way(admission, &key), join(worker, 2), &|| false);
        parts.push(joined.unwrap_or_else(|apart| panic!("worker {worker}: {apart}")));
    }
    let mut socket = FragmentSocket::open("[::1]:0".parse().expect("an address"), 1 << 20, 1 << 20).expect("a socket");
    let mut random = Random::new(5, StreamKind::Workload, 9);
    let port = SocketAddrV6::new(Ipv6Addr::LOCALHOST, parts[0].1.ports[0], 0, 0);
    let to: Arc<[SocketAddrV6]> = Arc::new([port]);
    let mut channels: Vec<Sealing> = parts.iter().map(|(_, welcome)| Sealing::new(&welcome.up, 0)).collect();
    let stranger = UdpSocket::bind("[::1]:0").expect("a socket");
    let mut received = Received::new();
    for burst in 0..400 {
        for _ in 0..64 {
            let worker = random.below(2) as u16;
            let mut fragment = anything(&mut random, worker, 1);
            let elements = if random.chance(0.9) { LANES } else { random.below(300) as u16 };
            if random.chance(0.5) {
                fragment.elements = elements;
            }
            let numbers = if fragment.kind.has_elements() { vec![i32::MAX; usize::from(elements)] } else { Vec::new() };
            socket.push(&to, &mut channels[usize::from(worker)], &fragment, &numbers);
        }
        socket.flush();
        let bytes: Vec<u8> =
            (0..random.below(1_200)).map(|i| if i == 0 { 0x2c } else { random.next_u64() as u8 }).collect();
        let _ = stranger.send_to(&bytes, port);
        while socket.receive(&mut received) {}
        if burst % 20 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_hostile_worker_harms_its_own_job_only() {
    let kept = System::Esa(Esa { results: ResultPath::ViaServer, ..Esa::default() });
    for system in [System::Esa(Esa::default()), kept, System::Atp, System::SwitchMl { strict_order: true }] {
        let status = serving(system, |admissions| {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| attack(admissions[0], &stop));
                assert!(honest(admissions[1], &stop) > 0);
            });
        });
        let port = &status.ports[0];
        assert!(port.odd > 1_000 && port.strangers > 0 && port.refused > 0, "{}: {port:?}", system.name());
        let (held, registers, _) = port.jobs[&1];
        let most = if matches!(system, System::SwitchMl { .. }) { SLOTS / 2 } else { SLOTS / 4 };
        assert!(held <= most, "{}: {held} slots of {most}", system.name());
        // A window has 16 keys. The server keeps the keys of 24 windows above the watermark, and for each key at most
        // five parts more than workers.
        assert!(registers <= 16 * 25 * 7, "{}: {registers} registers", system.name());
        assert_eq!(status.jobs.iter().map(|job| job.sessions).collect::<Vec<_>>(), [1, 1]);
    }
}
