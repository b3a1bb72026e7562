//! Congestion controls: curves against stored tables, DCQCN against a model that fires every timer, and conditions that
//! hold for all of them with any input.

use super::operations::CongestionOperation;
use proptest::prelude::*;
use strandway_proto::congestion::{
    AckSample, AnyCongestion, Congestion, CongestionConfig, Dcqcn, DcqcnConfig, Hpcc, HpccConfig, LossKind, LossSample,
};
use strandway_proto::telemetry::{HopRecord, Telemetry};
use strandway_proto::{Bytes, Environment, Rate, Span, Time};

const PACKET: u64 = 4160;
const RTT: Span = Span(8_340_000);

fn environment(trimming: bool) -> Environment {
    Environment {
        rate: Rate::from_gbps(400),
        ports: 1,
        base_rtt: RTT,
        packet: Bytes(PACKET),
        trimming,
        uplinks: [0; 2],
        paths_in_order: 0,
        queue: Bytes(417_000),
        packet_life: Span::from_ms(10),
    }
}

/// Plays a script round by round, and returns the window after each round in whole packets.
///
/// Rounds are separated by `;`. Each is `[COUNTx] KIND DELAY [LOSS]`: all packets of the window are acknowledged one by
/// one within a round trip that is `DELAY` us longer than the base; `KIND` is `clean`, `marked` or `half` (every other
/// one marked); `LOSS` is `trim N`, `lose N` or `timeout N`: the first N packets are lost like that instead.
fn curve(policy: &mut AnyCongestion, script: &str) -> Vec<u64> {
    let mut now = Time::ZERO + RTT;
    let mut windows = Vec::new();
    for round in script.split(';') {
        let words: Vec<&str> = round.split_whitespace().collect();
        let (count, words) = match words[0].strip_suffix('x') {
            Some(count) => (count.parse().expect("a count"), &words[1..]),
            None => (1, &words[..]),
        };
        let delay: f64 = words[1].parse().expect("a delay in us");
        let lost: u64 = words.get(3).map_or(0, |n| n.parse().expect("a number of packets"));
        for _ in 0..count {
            let rtt = Span(RTT.0 + (delay * 1e6) as u64);
            let packets = (policy.window().0 / PACKET).max(1);
            let start = now;
            for i in 0..packets {
                now = start + Span(rtt.0 * (i + 1) / packets);
                // Each acknowledgement makes room for a new packet, so the flight stays full.
                let (bytes, in_flight) = (Bytes(PACKET), Bytes((packets - 1) * PACKET));
                if i < lost {
                    let kind = match words[2] {
                        "trim" => LossKind::Trimmed { last_hop: false },
                        "lose" => LossKind::Inferred,
                        "timeout" => LossKind::TimedOut,
                        other => panic!("no loss is called {other}"),
                    };
                    policy.on_loss(&LossSample { now, kind, bytes, in_flight });
                } else {
                    let marked = match words[0] {
                        "clean" => false,
                        "marked" => true,
                        "half" => i % 2 == 1,
                        other => panic!("no kind of round is called {other}"),
                    };
                    policy.on_ack(&AckSample { now, rtt: Some(rtt), bytes, packets: 1, marked, lost: None, in_flight });
                }
            }
            windows.push(policy.window().0 / PACKET);
        }
    }
    windows
}

fn check(name: &str, trimming: bool, script: &str, expect: &[u64]) {
    let mut policy = CongestionConfig::named(name).expect("a name").build(&environment(trimming));
    assert_eq!(curve(&mut policy, script), expect, "{name}: {script}");
}

#[test]
fn nscc_falls_under_marks_and_delay_and_grows_back_in_proportion_to_the_room() {
    check(
        "nscc",
        true,
        "2x clean 0; 8x marked 12; 4x marked 3; 4x clean 8; 6x clean 3; 6x clean 0",
        &[
            150, 150, 110, 48, 12, 5, 2, 1, 1, 1, 1, 2, 2, 3, 12, 23, 35, 48, 52, 55, 59, 62, 66, 69, 75, 124, 150,
            150, 150, 150,
        ],
    );
}

#[test]
fn nscc_falls_at_once_to_what_got_through() {
    check(
        "nscc",
        true,
        "2x clean 2; marked 8 trim 140; 3x marked 8 trim 10; 4x clean 2",
        &[150, 150, 10, 10, 1, 1, 1, 5, 9, 13],
    );
    check(
        "nscc",
        false,
        "2x clean 2; 2x marked 40; 2x marked 40 lose 8; 4x clean 2",
        &[150, 150, 5, 8, 8, 8, 14, 19, 23, 30],
    );
}

#[test]
fn dctcp_cuts_by_the_share_of_marks() {
    check(
        "dctcp",
        false,
        "4x clean 0; 6x half 2; 6x marked 4; 4x clean 0; clean 0 lose 3; 3x clean 0; clean 0 timeout 2; 8x clean 0",
        &[
            150, 150, 150, 150, 150, 147, 143, 137, 129, 120, 110, 98, 85, 72, 59, 47, 48, 49, 50, 51, 26, 27, 28, 29,
            15, 16, 17, 18, 19, 20, 21, 22, 23,
        ],
    );
}

#[test]
fn swift_holds_the_delay_at_its_target() {
    check(
        "swift",
        false,
        "4x clean 2; 6x clean 12; 6x clean 30; 4x clean 6; clean 0 lose 3; 2x clean 0; 5x clean 0 timeout 1; 12x clean 0",
        &[
            101, 102, 103, 104, 78, 59, 45, 34, 26, 20, 10, 5, 2, 1, 1, 1, 1, 2, 2, 3, 1, 2, 3, 2, 2, 2, 2, 2, 2, 3, 4,
            5, 6, 7, 7, 8, 9, 10, 11, 12,
        ],
    );
}

#[test]
fn strack_grows_by_delay_holds_on_marks_alone_and_falls_to_what_got_through() {
    check(
        "strack",
        false,
        "2x clean 0; 2x marked 4; 4x clean 8; 8x marked 20; 2x marked 40; 4x clean 0; 4x clean 12; 4x clean 40; 3x marked 4; 3x clean 2 timeout 3",
        &[
            150, 150, 150, 150, 150, 150, 150, 150, 37, 7, 1, 1, 1, 1, 1, 1, 1, 1, 12, 21, 30, 40, 41, 42, 43, 44, 58,
            73, 87, 103, 103, 104, 104, 110, 116, 121,
        ],
    );
}

#[test]
fn swift_below_one_packet_paces() {
    let mut swift = CongestionConfig::named("swift").expect("a name").build(&environment(false));
    assert_eq!(swift.rate(Time::ZERO), None);
    curve(&mut swift, "40x clean 400");
    let rate = swift.rate(Time::ZERO).expect("a window below one packet");
    // 0.01 packets of 4160 B in each round trip of 408.34 us.
    assert_eq!(rate.0, 815_007);
    assert_eq!(swift.window(), Bytes(PACKET));
}

/// The rate in tenths of Gb/s at each of `at` (in us), with notifications at `notify` (in us), while sending at that
/// rate.
fn rates(config: &DcqcnConfig, notify: &[u64], at: &[u64]) -> Vec<u64> {
    let mut dcqcn = Dcqcn::new(config, &environment(false));
    let (mut now, mut next_packet) = (Time::ZERO, Time::ZERO);
    let mut out = Vec::new();
    let mut notify = notify.iter().peekable();
    for &instant in at {
        while now < Time::ZERO + Span::from_us(instant) {
            if notify.next_if(|&&t| Time::ZERO + Span::from_us(t) <= now).is_some() {
                dcqcn.on_notification(now);
            }
            if next_packet <= now {
                dcqcn.on_sent(now, Bytes(PACKET), Bytes(PACKET));
                let rate = dcqcn.rate(now).unwrap_or(Rate::from_gbps(400));
                next_packet = now + rate.time_for(Bytes(PACKET));
            }
            now = now + Span::from_ns(50);
        }
        out.push(dcqcn.rate(now).map_or(4000, |rate| rate.0 / 100_000_000));
    }
    out
}

#[test]
fn dcqcn_halves_recovers_and_then_probes() {
    let at = [10, 40, 100, 150, 200, 300, 400, 600, 1000, 2000, 4000, 8000, 20_000];
    assert_eq!(
        rates(&DcqcnConfig::default(), &[30, 80, 130], &at),
        [4000, 2000, 1000, 500, 750, 937, 968, 1010, 1039, 1123, 1276, 3999, 4000]
    );
    assert_eq!(
        rates(&DcqcnConfig::aggressive(), &[30, 80, 130], &at),
        [4000, 2000, 1000, 500, 750, 937, 968, 1610, 3200, 3999, 4000, 4000, 4000]
    );
}

/// Records of one link at 400 Gb/s: 50 bytes per nanosecond.
fn records(at: Time, sent: u64, queue: u32) -> Telemetry {
    let mut telemetry = Telemetry::NONE;
    telemetry.push(HopRecord { link: 7, queue, time: at, sent, rate: Rate::from_gbps(400) });
    telemetry
}

/// Plays a script for HPCC round by round, and returns the window after each round in whole packets.
///
/// Rounds are separated by `;`. Each is `[COUNTx] LOAD QUEUE`: for a base RTT, the link carries `LOAD` percent of its
/// rate and holds a queue of `QUEUE` packets, while all packets of the window are acknowledged one by one.
fn hpcc_curve(script: &str) -> Vec<u64> {
    let mut hpcc = CongestionConfig::named("hpcc").expect("a name").build(&environment(false));
    let (mut now, mut sent) = (Time::ZERO + RTT, 0);
    let mut windows = Vec::new();
    for round in script.split(';') {
        let words: Vec<&str> = round.split_whitespace().collect();
        let (count, words) = match words[0].strip_suffix('x') {
            Some(count) => (count.parse().expect("a count"), &words[1..]),
            None => (1, &words[..]),
        };
        let load: u64 = words[0].parse().expect("a load in percent");
        let queue: u32 = words[1].parse().expect("a queue in packets");
        for _ in 0..count {
            let packets = hpcc.window().0 / PACKET;
            for _ in 0..packets {
                let step = RTT.0 / packets;
                now = now + Span(step);
                sent += step * load / 100 / 20;
                hpcc.on_telemetry(now, &records(now, sent, queue * PACKET as u32));
                let in_flight = Bytes((packets - 1) * PACKET);
                let (rtt, bytes) = (Some(RTT), Bytes(PACKET));
                hpcc.on_ack(&AckSample { now, rtt, bytes, packets: 1, marked: false, lost: None, in_flight });
            }
            windows.push(hpcc.window().0 / PACKET);
        }
    }
    windows
}

#[test]
fn hpcc_divides_its_window_by_the_excess_load_and_grows_slowly_below_the_target() {
    assert_eq!(
        hpcc_curve("3x 95 0; 4x 100 0; 4x 100 100; 3x 95 0; 12x 30 0; 4x 100 20"),
        [
            98, 97, 97, 94, 90, 85, 81, 47, 24, 11, 5, 4, 4, 4, 4, 4, 4, 4, 15, 15, 15, 15, 15, 15, 49, 49, 49, 43, 35,
            28
        ]
    );
}

#[test]
fn hpcc_measures_the_busiest_link_of_a_path() {
    let bdp = environment(false).bdp().0;
    let config = HpccConfig::default();
    let hops = |at: Time, sent: [u64; 2], queues: [u64; 2]| {
        let mut telemetry = Telemetry::NONE;
        for (link, gbps) in [(1, 400), (2, 100)] {
            let i = link as usize - 1;
            let (queue, rate) = (queues[i] as u32, Rate::from_gbps(gbps));
            telemetry.push(HopRecord { link, queue, time: at, sent: sent[i], rate });
        }
        telemetry
    };
    let start = Time::ZERO + RTT;
    // In a base RTT the first link carries half of its rate and has a queue of a tenth of a BDP at both ends: 0.6. The
    // second one, at a quarter of the rate, carries 40 % and has a queue of a twentieth, which is a fifth of its own
    // BDP: 0.6 too. Then it carries one half: 0.7.
    for (second, expect) in [(10, 0.6), (8, 0.7)] {
        let mut hpcc = Hpcc::new(&config, &environment(false));
        hpcc.on_telemetry(start, &hops(start, [1_000, 0], [bdp / 10, bdp / 20]));
        assert_eq!(hpcc.utilisation(), 1.0, "one record of a link gives no rate");
        // Of two queues the shorter one counts.
        hpcc.on_telemetry(start + RTT, &hops(start + RTT, [1_000 + bdp / 2, bdp / second], [bdp, bdp / 20]));
        assert!((hpcc.utilisation() - expect).abs() < 1e-4, "{} for {expect}", hpcc.utilisation());
        // A quarter of a base RTT without traffic has a quarter of the weight.
        let later = start + RTT + Span(RTT.0 / 4);
        hpcc.on_telemetry(later, &hops(later, [1_000 + bdp / 2, bdp / second], [0, 0]));
        assert!((hpcc.utilisation() - 0.75 * expect).abs() < 1e-4, "{} for {expect}", hpcc.utilisation());
    }
}

#[test]
fn hpcc_learns_nothing_from_two_links_or_from_one_instant() {
    let mut hpcc = Hpcc::new(&HpccConfig::default(), &environment(false));
    let first = hpcc.window();
    let ack = |hpcc: &mut Hpcc, now| {
        let (bytes, in_flight) = (Bytes(PACKET), Bytes(0));
        hpcc.on_ack(&AckSample { now, rtt: None, bytes, packets: 1, marked: false, lost: None, in_flight });
    };
    let mut now = Time::ZERO + RTT;
    for link in 1..20 {
        now = now + RTT;
        let mut telemetry = Telemetry::NONE;
        telemetry.push(HopRecord { link, queue: 1 << 20, time: now, sent: 0, rate: Rate::from_gbps(400) });
        for _ in 0..2 {
            hpcc.on_telemetry(now, &telemetry);
            ack(&mut hpcc, now);
        }
    }
    assert_eq!((hpcc.utilisation(), hpcc.window()), (1.0, first));
}

proptest! {
    /// Utilisation, from any records of up to five links in any order of time, equals the paper's formula in
    /// nanoseconds and bytes; the window stays between a packet and a BDP, and the rate below the line rate.
    #[test]
    fn hpcc_measures_what_the_formula_says(
        steps in prop::collection::vec((0u64..20_000, prop::collection::vec((0u64..2_000_000, 0u32..3_000_000), 1..=5)), 1..60),
    ) {
        let environment = environment(false);
        let mut hpcc = Hpcc::new(&HpccConfig::default(), &environment);
        let rtt = RTT.0 as f64 / 1e3;
        let (mut now, mut totals) = (1_000_000_u64, [0u64; 5]);
        let mut last: Vec<(u64, u64, u32)> = Vec::new();
        let mut expect = 1.0;
        let mut settled = 0;
        for (ns, hops) in steps {
            now += ns;
            let mut telemetry = Telemetry::NONE;
            let mut records = Vec::new();
            for (i, (bytes, queue)) in hops.into_iter().enumerate() {
                totals[i] += bytes;
                let (link, rate) = (i as u32, Rate::from_gbps(100 << (i % 3)));
                telemetry.push(HopRecord { link, queue, time: Time(now * 1000), sent: totals[i], rate });
                records.push((now, totals[i], queue));
            }
            let loads = records.iter().zip(&last).enumerate().filter(|(_, (new, old))| new.0 > old.0).map(|(i, (new, old))| {
                // Bytes per nanosecond.
                let line = 12.5 * f64::from(1 << (i % 3));
                let time = (new.0 - old.0) as f64;
                ((new.1 - old.1) as f64 / time / line + f64::from(new.2.min(old.2)) / (line * rtt), time)
            });
            if let Some((load, time)) = loads.max_by(|a, b| a.0.total_cmp(&b.0)) {
                let time = time.min(rtt);
                expect = ((rtt - time) * expect + time * load) / rtt;
            }
            last = records;
            hpcc.on_telemetry(Time(now * 1000), &telemetry);
            prop_assert!((hpcc.utilisation() - expect).abs() <= 1e-9 * expect.max(1.0), "{} for {expect}", hpcc.utilisation());
            settled += PACKET;
            let (now, in_flight) = (Time(now * 1000), Bytes(settled % (20 * PACKET)));
            let bytes = Bytes(PACKET);
            hpcc.on_ack(&AckSample { now, rtt: None, bytes, packets: 1, marked: false, lost: None, in_flight });
            prop_assert!(hpcc.window().0 >= PACKET && hpcc.window() <= environment.bdp());
            prop_assert!(hpcc.rate(now).is_none_or(|rate| rate.0 > 0 && rate < environment.rate));
        }
    }
}

/// DCQCN's sender as a loop that fires every timer in its time.
struct NaiveDcqcn {
    config: DcqcnConfig,
    line: f64,
    current: f64,
    target: f64,
    alpha: f64,
    alpha_at: Time,
    increase_at: Time,
    timer: u32,
    byte: u32,
    bytes: u64,
}

impl NaiveDcqcn {
    fn new(config: DcqcnConfig, environment: &Environment) -> NaiveDcqcn {
        let line = environment.rate.0 as f64;
        NaiveDcqcn {
            config,
            line,
            current: line,
            target: line,
            alpha: 1.0,
            alpha_at: Time::NEVER,
            increase_at: Time::NEVER,
            timer: 0,
            byte: 0,
            bytes: 0,
        }
    }

    fn increase(&mut self) {
        let f = self.config.fast_recovery;
        if self.timer.max(self.byte) < f {
        } else if self.timer.min(self.byte) > f {
            self.target += f64::from(self.timer.min(self.byte) - f) * (self.config.hyper * self.line);
        } else {
            self.target += self.config.additive * self.line;
        }
        self.target = self.target.min(self.line);
        self.current = ((self.target + self.current) / 2.0).min(self.line);
    }

    fn until(&mut self, now: Time) {
        while self.alpha_at.min(self.increase_at) <= now {
            if self.alpha_at <= self.increase_at {
                self.alpha *= 1.0 - self.config.gain;
                self.alpha_at = self.alpha_at + self.config.alpha_timer;
            } else {
                self.timer += 1;
                self.increase();
                self.increase_at = self.increase_at + self.config.increase_timer;
            }
        }
    }

    fn sent(&mut self, now: Time, bytes: u64) {
        self.until(now);
        self.bytes += bytes;
        while self.bytes >= self.config.byte_counter.0 {
            self.bytes -= self.config.byte_counter.0;
            self.byte += 1;
            self.increase();
        }
    }

    fn notified(&mut self, now: Time) {
        self.until(now);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(self.config.rate_min.0 as f64);
        self.alpha = (1.0 - self.config.gain) * self.alpha + self.config.gain;
        self.alpha_at = now + self.config.alpha_timer;
        self.increase_at = now + self.config.increase_timer;
        (self.timer, self.byte, self.bytes) = (0, 0, 0);
    }

    fn rate(&mut self, now: Time) -> Option<Rate> {
        self.until(now);
        (self.current < self.line).then_some(Rate(self.current as u64))
    }
}

fn dcqcn_operation() -> impl Strategy<Value = CongestionOperation> {
    prop_oneof![
        4 => (0u64..200_000_000).prop_map(CongestionOperation::Wait),
        // Up to a second: timers fire 18,000 times, alpha decays to nothing.
        1 => (0u64..1_000_000_000_000).prop_map(CongestionOperation::Wait),
        4 => (0u32..4_000_000).prop_map(CongestionOperation::Send),
        2 => Just(CongestionOperation::Notify),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn dcqcn_is_what_a_loop_that_fires_every_timer_makes_it(
        operations in prop::collection::vec(dcqcn_operation(), 1..60),
        aggressive in any::<bool>(),
        alpha_timer in 1u64..100,
        increase_timer in 5u64..100,
        byte_counter in 10_000u64..20_000_000,
    ) {
        let base = if aggressive { DcqcnConfig::aggressive() } else { DcqcnConfig::default() };
        let config = DcqcnConfig {
            alpha_timer: Span::from_us(alpha_timer),
            increase_timer: Span::from_us(increase_timer),
            byte_counter: Bytes(byte_counter),
            ..base
        };
        let mut lazy = Dcqcn::new(&config, &environment(false));
        let mut naive = NaiveDcqcn::new(config, &environment(false));
        let (mut now, mut in_flight) = (Time::ZERO, 0);
        for operation in operations {
            operation.apply(&mut lazy, &mut now, &mut in_flight);
            match operation {
                CongestionOperation::Send(bytes) => naive.sent(now, u64::from(bytes)),
                CongestionOperation::Notify => naive.notified(now),
                _ => {}
            }
            prop_assert_eq!(lazy.rate(now), naive.rate(now));
        }
    }

    #[test]
    fn windows_hold_a_packet_and_rates_stay_below_the_line_for_any_feedback(
        bytes in prop::collection::vec(any::<[u8; 8]>(), 1..200),
        trimming in any::<bool>(),
    ) {
        let environment = environment(trimming);
        for name in CongestionConfig::NAMES {
            let mut policy = CongestionConfig::named(name).expect("a name").build(&environment);
            let first = policy.window();
            let (mut now, mut in_flight) = (Time::ZERO, 0);
            for &bytes in &bytes {
                CongestionOperation::from_bytes(bytes).apply(&mut policy, &mut now, &mut in_flight);
                let window = policy.window();
                prop_assert!(window.0 >= PACKET, "{name}: window {window}");
                if name == "nscc" {
                    prop_assert!(window <= first, "{name}: window {window} above the largest");
                }
                if let Some(rate) = policy.rate(now) {
                    prop_assert!(rate.0 > 0 && rate.0 < environment.rate.0, "{name}: rate {rate}");
                }
            }
        }
    }
}

#[test]
fn an_hour_of_idleness_costs_dcqcn_no_more_than_a_moment() {
    let mut dcqcn = Dcqcn::new(&DcqcnConfig::default(), &environment(false));
    let mut now = Time::ZERO;
    // A loop over timers would take 65 million steps for each of these hours.
    for _ in 0..1000 {
        dcqcn.on_notification(now);
        now = now + Span::from_ms(3_600_000);
        assert_eq!(dcqcn.rate(now), None);
    }
    // Alpha has decayed to nearly zero, so the next notification cuts the rate by nearly nothing.
    dcqcn.on_notification(now);
    assert_eq!(dcqcn.rate(now), None);
    dcqcn.on_notification(now);
    assert!(dcqcn.rate(now).expect("a cut").as_gbps() > 399.0);
}
