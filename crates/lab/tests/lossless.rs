//! RoCEv2 over switches that pause (PFC): no packet is dropped, and none is sent again without a loss.

mod support;

use support::*;

#[test]
fn pfc_drops_no_packet_in_a_shared_buffer() {
    let text = "[fabric]\nhosts = 32\nhosts_per_leaf = 8\nspines = 2\nrate = \"100 Gbps\"\nuplink_rate = \"400 Gbps\"\n\
                latency = \"1 us\"\nshared_buffer = \"2 MB\"\nalpha = 8\n[profile]\nname = \"rocev2\"\n\
                [workload]\nkind = \"incast\"\nsenders = 31\nsize = \"500 kB\"\n";
    for sets in [&[][..], &["profile.congestion=fixed"], &["fabric.alpha=1"]] {
        let packets = outcome(text, sets).report.packets;
        assert_eq!((packets.dropped, packets.retransmitted), (0, 0), "{sets:?}");
        assert!(packets.pauses > 0);
    }
}

#[test]
fn an_incast_at_a_low_rate_has_no_timeouts() {
    let text = "[fabric]\nhosts = 80\nhosts_per_leaf = 16\nspines = 4\nrate = \"10 Gbps\"\nuplink_rate = \"40 Gbps\"\n\
                latency = \"500 ns\"\n[profile]\nname = \"rocev2\"\n[workload]\nkind = \"incast\"\nsenders = 79\n\
                size = \"200 kB\"\n";
    let report = outcome(text, &[]).report;
    assert_eq!((report.packets.timeouts, report.packets.retransmitted), (0, 0));
    assert!(report.notes.iter().any(|note| note.contains("go_back_n.rto is 40 ms")), "{:?}", report.notes);
    // A timeout that the scenario sets stays; its effect is told.
    let report = outcome(text, &["profile.go_back_n.rto=1 ms"]).report;
    assert!(report.packets.timeouts > 0);
    let told = report.notes.join("\n");
    assert!(told.contains("although no packet was lost"), "{told}");
}

#[test]
fn a_timer_does_not_run_while_its_port_is_paused() {
    // A receiver's link at a fiftieth of its rate: ports are paused for most of 12 ms, and the timeout is 1 ms.
    let text = "[fabric]\nhosts = 64\nhosts_per_leaf = 32\nspines = 2\nrate = \"400 Gbps\"\nlatency = \"500 ns\"\n\
                [profile]\nname = \"rocev2\"\ncongestion = \"fixed\"\n[workload]\nkind = \"incast\"\nsenders = 24\nsize = \"500 kB\"\n\
                [[faults]]\nbetween = [\"host0\", \"leaf0\"]\nkind = \"degrade\"\nfraction = 0.02\n\
                [run]\ntime_limit = \"500 ms\"\n";
    let packets = outcome(text, &[]).report.packets;
    assert!(packets.pauses > 0);
    assert_eq!((packets.timeouts, packets.retransmitted, packets.dropped), (0, 0, 0));
}
