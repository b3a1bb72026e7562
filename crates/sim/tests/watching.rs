//! Time series of an MRC run with failures: the states of a connection's entropy values, and the load of each plane.

use super::support::{US, build, fault, link, plan, preset, run};
use strandway_fabric::fault::FaultKind;
use strandway_fabric::plan::Routing;
use strandway_fabric::topology::Shape;
use strandway_fabric::{LinkId, Measurements, Plan, Topology};
use strandway_proto::path::PlaneStates;
use strandway_proto::{Profile, Span};

/// 64 hosts with four ports of 100 Gb/s, eight paths per plane.
fn four_planes() -> Topology {
    build(Shape { hosts: 64, planes: 4, hosts_per_leaf: 8, spines: 8, leaf_bundle: 1, pods: None }, 100)
}

/// 8 MB from host 0 to host 60, 160 us at line rate; looked at every 2 us.
fn flow(profile: Profile) -> Plan {
    let mut plan = plan(four_planes(), profile, &[(0, 60, 8_000_000)]);
    plan.routing = Routing::Source;
    plan.ports.ecn = None;
    plan.sample_every = Some(Span::from_us(2));
    plan.watch = Some(0);
    plan
}

/// The states of each plane's paths at a time in microseconds.
fn planes_at(m: &Measurements, us: usize) -> &[PlaneStates] {
    &m.series.watched[us / 2].planes
}

/// Bytes that a plane delivered over an interval in microseconds.
fn carried(m: &Measurements, plane: usize, us: std::ops::Range<usize>) -> u64 {
    let points = &m.series.watched_planes[plane];
    points.iter().skip(us.start / 2).take(us.len() / 2).sum()
}

fn both_ways(plan: &Plan, from: &str, to: &str) -> Vec<LinkId> {
    vec![link(&plan.topology, from, to), link(&plan.topology, to, from)]
}

/// Every point accounts for every entropy value of every plane.
fn all_accounted_for(m: &Measurements) {
    for point in &m.series.watched {
        for plane in &point.planes {
            let all = plane.good + plane.skip + plane.assumed_bad + plane.denied + plane.backup;
            assert_eq!(all, 8, "{plane:?}");
        }
        assert!(point.planes.is_empty() || point.planes.len() == 4);
    }
}

#[test]
fn a_port_that_goes_down_takes_its_plane_to_nothing_and_back() {
    let mut plan = flow(preset("mrc"));
    let port = both_ways(&plan, "host0", "leaf0.p2");
    plan.faults = vec![fault(&port, FaultKind::Down { visible: Some(Span::ZERO) }, 40 * US, 60 * US)];
    plan.profiles[0] = {
        let mut profile = preset("mrc");
        let mut groups = profile.groups();
        let (_, group) = groups.iter_mut().find(|(name, _)| *name == "mrc").expect("a group");
        group.set("port_hold", strandway_proto::parameter::Value::Span(Span::from_us(20))).expect("in range");
        profile.into()
    };
    for threads in [1, 3] {
        plan.threads = threads;
        let m = run(&plan);
        all_accounted_for(&m);
        assert_eq!(m.series.watched_planes, m.series.planes, "there is one flow only");
        let usable = |us| planes_at(&m, us).iter().map(|p| p.usable).collect::<Vec<_>>();
        assert_eq!(usable(30), [true; 4]);
        assert_eq!(usable(50), [true, true, false, true], "the port is down");
        assert_eq!(usable(70), [true, true, false, true], "the port is up, but on hold");
        assert_eq!(usable(86), [true, true, false, true], "three probes take their round trips");
        assert_eq!(usable(130), [true; 4]);
        for plane in 0..4 {
            let [before, down, after] = [20..36, 52..86, 130..146].map(|us| carried(&m, plane, us));
            let line_rate = |bytes: u64| (150_000..=205_000).contains(&bytes);
            assert!(line_rate(before), "plane {plane} before: {before} B in 16 us");
            assert!(line_rate(after), "plane {plane} after: {after} B in 16 us");
            assert_eq!(down == 0, plane == 2, "plane {plane}: {down} B while the port is down");
        }
    }
}

#[test]
fn a_path_that_loses_everything_is_assumed_bad_until_probes_return() {
    let mut plan = flow(preset("mrc"));
    let dead = both_ways(&plan, "leaf0.p1", "spine5.p1");
    plan.faults = vec![fault(&dead, FaultKind::Down { visible: None }, 30 * US, 80 * US)];
    let m = run(&plan);
    all_accounted_for(&m);
    let bad = |us| planes_at(&m, us).iter().map(|p| p.assumed_bad).collect::<Vec<_>>();
    assert_eq!(bad(28), [0; 4]);
    assert_eq!(bad(70), [0, 1, 0, 0], "one path of plane 1, and nothing else");
    assert_eq!(bad(158), [0; 4], "it is back");
    assert!(carried(&m, 1, 60..76) > 150_000, "the plane keeps its load");
}

#[test]
fn a_selector_without_path_states_has_none_in_its_series() {
    let m = run(&flow(preset("uec")));
    assert!(m.series.watched.iter().all(|point| point.planes.is_empty()));
    assert_eq!(m.series.watched_planes.len(), 4);
}
