//! Connections spread over the threads of several nodes: each thread carries data, and all bytes arrive, once.

use super::executor::block_on;
use super::support::{config, pattern, v6};
use std::net::SocketAddrV6;
use strandway_asynchronous::{AsyncError, Shards};

const BYTES: usize = 200_000;

#[test]
fn four_connections_over_two_threads_deliver_everything_and_both_threads_carry() {
    let server = Shards::spawn(&config("uec", 2), 2).expect("sockets");
    let there: Vec<SocketAddrV6> = server.nodes()[0].addresses().iter().copied().map(v6).collect();
    let client = Shards::spawn(&config("uec", 2), 2).expect("sockets");
    for turn in 0..4_usize {
        block_on(async {
            let here = client.connect(&there).await?;
            let there = server.accept().await?;
            assert_eq!(usize::from(there.node().shard()), turn % 2, "in turn");
            assert_eq!(usize::from(here.node().shard()), turn % 2, "in turn");
            let bytes = pattern(turn as u64, BYTES);
            let inbox = there.register(vec![0; BYTES]).await?;
            let remote = there.expose(inbox, 0..BYTES).await?;
            let outbox = here.register(bytes.clone()).await?;
            here.write(outbox, 0..BYTES, remote, 0, None).await?;
            assert!(there.node().read(inbox, 0..BYTES).await? == bytes);
            Ok::<(), AsyncError>(())
        })
        .expect("delivered");
    }
    for node in server.nodes().iter().chain(client.nodes()) {
        let planes = block_on(node.plane_counters()).expect("it runs");
        let carried: u64 = planes.iter().map(|plane| plane.received + plane.sent).sum();
        assert!(carried > 250, "a shard carried nothing: {planes:?}");
    }
}
