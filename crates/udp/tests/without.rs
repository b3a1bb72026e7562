//! Nodes on kernels that lack a feature, and on kernels that lack all: the same bytes arrive.

use super::support::{Pair, config, over_ipv4, path_of, pattern};
use strandway_udp::{Completion, Config, Error, Feature, PlaneCounters, Without};

const BYTES: usize = 1 << 20;

/// Writes and sends patterns in both directions; the counters of the client's plane and of the server's.
fn exchange(config: Config) -> [PlaneCounters; 2] {
    let mut pair = Pair::new(config, None, 0);
    let (inbox, remote) = pair.exposed(BYTES);
    for round in 0..2 {
        let source = pattern(round, BYTES);
        let outbox = pair.client.register(source.clone());
        pair.client.write(pair.ends[0], outbox, 0..BYTES, remote, 0, None).expect("posted");
        assert!(matches!(pair.next(0), Completion::Sent { .. }));
        assert!(pair.server.memory(inbox).expect("registered") == source, "round {round}");
    }
    // Small messages, which may have a socket of their own, and large ones back.
    for bytes in [1, 64, 300_000] {
        let source = pattern(bytes as u64, bytes);
        let (outbox, inbox) = (pair.server.register(source.clone()), pair.client.register(vec![0; bytes]));
        pair.client.recv(pair.ends[0], inbox, 0..bytes).expect("posted");
        pair.server.send(pair.ends[1], outbox, 0..bytes).expect("posted");
        assert!(matches!(pair.next(0), Completion::Received { .. }));
        assert!(matches!(pair.next(1), Completion::Sent { .. }));
        assert!(pair.client.memory(inbox).expect("registered") == source, "{bytes} bytes");
    }
    [pair.client.observe().plane_counters()[0], pair.server.observe().plane_counters()[0]]
}

fn with(without: Without) -> [PlaneCounters; 2] {
    let config = || Config { hear_refusals: true, without, ..config("uec", 1) };
    let counters = exchange(config());
    over_ipv4(|| {
        exchange(config());
    });
    counters
}

#[test]
fn the_same_bytes_arrive_without_any_one_feature_and_without_all() {
    let all = Feature::all().fold(Without::default(), Without::and);
    for without in Feature::all().map(|one| Without::default().and(one)).chain([all]) {
        let [client, server] = with(without);
        let batches = |feature| !without.has(feature);
        // A call for each datagram; with the feature, calls have several.
        assert_eq!(client.send_calls < client.sent, batches(Feature::Gso), "{without:?} {client:?}");
        if !batches(Feature::Gro) {
            assert!(server.receive_calls >= server.received, "{without:?} {server:?}");
        }
        if without.has(Feature::ReuseportFilter) {
            assert_eq!((client.urgent, server.urgent), (0, 0), "there is no second socket");
        }
    }
    let [client, server] = with(Without::default());
    assert!(client.urgent + server.urgent > 0, "{client:?} {server:?}");
}

#[test]
fn the_page_on_hosts_lists_every_feature() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/howto/hosts.md")).expect("the page");
    for feature in Feature::all() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", feature.name())));
        assert!(
            row.is_some_and(|row| row.contains(&format!("| {} |", feature.since()))),
            "{}: {row:?}",
            feature.name()
        );
    }
}

#[test]
fn an_unknown_name_in_the_variable_is_refused_with_the_list() {
    const ME: &str = "an_unknown_name_in_the_variable_is_refused_with_the_list";
    if std::env::var_os("STRANDWAY_WITHOUT").is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().expect("a path"));
        let output =
            command.args(["--exact", &path_of(ME)]).env("STRANDWAY_WITHOUT", "gso,gor").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        return assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    let Err(Error::Config(said)) = Config::new(&[7; 32]) else { panic!("it was taken") };
    assert!(said.contains("no feature `gor`") && said.contains("gso,gro,timestamps,refusals,"), "{said}");
}
