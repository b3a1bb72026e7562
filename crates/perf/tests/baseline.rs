//! TCP and TLS beside our own protocol, on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_perf::{BASELINE_ECHO_MAX, Baseline, BaselineError, BaselineServer, Mode, Options, run_baseline};

fn options(size: u64, mode: Mode, connections: usize) -> Options {
    Options {
        size,
        connections,
        duration: Duration::from_millis(100),
        depth: 1,
        mode,
        bulk: 0,
        interval: Duration::from_secs(1),
        messages: None,
    }
}

/// Runs a server while `client` does something with its address.
fn with_server(client: impl FnOnce(SocketAddr)) {
    let server = BaselineServer::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).expect("it listens");
    let at = server.addresses().expect("it listens")[0];
    let over = AtomicBool::new(false);
    /// Ends the server also if the client panics.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| server.serve(&|| over.load(Ordering::Relaxed)));
        let _end = End(&over);
        client(at);
    });
}

#[test]
fn tcp_and_tls_have_rates_and_round_trips() {
    with_server(|at| {
        for baseline in [Baseline::Tcp, Baseline::Tls] {
            // Messages of less than a piece, of several pieces and a rest, and of whole pieces.
            for size in [1, 5_000, (5 << 19) + 3, 1 << 20] {
                let result =
                    run_baseline(baseline, at, None, &options(size, Mode::Bandwidth, 2), &|| false).expect("it works");
                assert!(result.messages >= 2 && result.goodput_gbps > 0.0, "{baseline:?} {size}: {result:?}");
            }
            for size in [1, 64, 100_000] {
                let result =
                    run_baseline(baseline, at, None, &options(size, Mode::Latency, 1), &|| false).expect("it works");
                let ordered = result.rtt_p50_us > 0.0 && result.rtt_p50_us <= result.rtt_p99_us;
                assert!(result.messages > 0 && ordered, "{baseline:?} {size}: {result:?}");
            }
        }
    });
}

#[test]
fn the_congestion_control_can_be_named() {
    with_server(|at| {
        // Every kernel has it, and gives it to every user.
        let result = run_baseline(Baseline::Tls, at, Some("reno"), &options(5_000, Mode::Bandwidth, 1), &|| false);
        assert!(result.expect("it works").messages > 0);
    });
}

#[test]
fn a_measurement_that_is_stopped_ends_in_order() {
    with_server(|at| {
        let stopped =
            run_baseline(Baseline::Tls, at, None, &options(1_000, Mode::Bandwidth, 1), &|| true).expect("it works");
        assert_eq!(stopped.messages, 0);
    });
}

#[test]
fn wrong_requests_end_their_connection_and_nothing_else() {
    with_server(|at| {
        let request = |magic: &[u8; 8], version: u8, tls: u8, echoes: u8, size: u32| {
            [&magic[..], &[version, tls, echoes, 0], &size.to_be_bytes()].concat()
        };
        for (what, bytes) in [
            ("other letters", request(b"GET / HT", 1, 0, 0, 1)),
            ("another version", request(b"SWBESIDE", 1, 0, 0, 1)),
            ("no kind of TLS", request(b"SWBESIDE", 2, 2, 0, 1)),
            ("no kind of answer", request(b"SWBESIDE", 2, 0, 2, 1)),
            ("an echo of nothing", request(b"SWBESIDE", 2, 0, 1, 0)),
            ("an echo of too much", request(b"SWBESIDE", 2, 0, 1, BASELINE_ECHO_MAX as u32 + 1)),
            ("no TLS after all", [request(b"SWBESIDE", 2, 1, 0, 1), vec![0x5a; 2_000]].concat()),
        ] {
            let mut stream = TcpStream::connect(at).expect("it listens");
            stream.write_all(&bytes).expect("it takes bytes");
            let mut answer = Vec::new();
            // A reset ends it, too.
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 100, "{what}: {} bytes come back", answer.len());
        }
        // TLS that ends without its own end: bytes may be missing.
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.write_all(&request(b"SWBESIDE", 2, 1, 0, 1)).expect("it takes bytes");
        stream.shutdown(Shutdown::Write).expect("it ends");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
        let result =
            run_baseline(Baseline::Tcp, at, None, &options(1_000, Mode::Bandwidth, 1), &|| false).expect("it works");
        assert!(result.messages > 0);
    });
}

#[test]
fn a_server_that_is_not_there_and_a_message_that_is_too_long_are_named() {
    let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a port");
    let error =
        run_baseline(Baseline::Tcp, at, None, &options(1, Mode::Bandwidth, 1), &|| false).expect_err("nobody listens");
    assert!(matches!(error, BaselineError::NoServer(..)) && error.to_string().contains("server --beside"), "{error}");
    let bytes = options(1, Mode::Bandwidth, 1);
    let error = run_baseline(Baseline::Tcp, at, Some("nothing"), &bytes, &|| false).expect_err("no such control");
    assert!(matches!(&error, BaselineError::Control(name, _) if name == "nothing"), "{error:?}");
    assert!(error.to_string().contains("this kernel has: "), "{error}");
    let long = options(BASELINE_ECHO_MAX + 1, Mode::Latency, 1);
    let error = run_baseline(Baseline::Tcp, at, None, &long, &|| false).expect_err("too long");
    assert!(error.to_string().contains("at most 16777216"), "{error}");
}
