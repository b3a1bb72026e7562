//! Tests of the text by a small strict parser, and of the server.

use super::*;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

static BYTES: Family = Family { name: "strandway_sent_bytes", kind: Kind::Counter, help: "Bytes \"sent\"\nso far." };
static UP: Family = Family { name: "strandway_plane_up", kind: Kind::Gauge, help: "One if it is up." };

/// A sample as it was read: its name, its labels and its value.
type Read = (String, Vec<(String, String)>, f64);

/// Checks a text as the specification of OpenMetrics 1.0.0 demands, and returns its samples.
fn parse(text: &str) -> Vec<Read> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with EOF");
    let (mut family, mut kind) = (String::new(), String::new());
    let (mut families, mut samples, mut seen) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
            && !name.as_bytes()[0].is_ascii_digit()
    };
    for line in body.lines() {
        assert!(!line.is_empty(), "no empty lines");
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name) = (words.next().expect("a word"), words.next().expect("a name"));
            let value = words.next().expect("a value");
            match what {
                "TYPE" => {
                    assert!(is_name(name) && families.insert(name.to_string()), "{name} once, and whole");
                    assert!(["counter", "gauge"].contains(&value), "{value}");
                    (family, kind) = (name.to_string(), value.to_string());
                }
                "UNIT" => assert!(name == family && name.ends_with(&format!("_{value}")), "{line}"),
                "HELP" => assert_eq!(name, family),
                _ => panic!("unknown comment: {line}"),
            }
            continue;
        }
        let (name, labels, value) = match line.split_once('{') {
            Some((name, rest)) => {
                let (labels, value) = rest.rsplit_once("} ").expect("a closed list of labels");
                (name, labels, value)
            }
            None => line.split_once(' ').map(|(name, value)| (name, "", value)).expect("a value"),
        };
        let wanted = if kind == "counter" { format!("{family}_total") } else { family.clone() };
        assert_eq!(name, wanted, "samples stand below their family");
        let mut pairs = Vec::new();
        let mut rest = labels;
        while !rest.is_empty() {
            let (key, more) = rest.split_once("=\"").expect("key=\"value\"");
            assert!(is_name(key), "{key}");
            let (mut value, mut escaped, mut end) = (String::new(), false, None);
            for (at, c) in more.char_indices() {
                match (escaped, c) {
                    (true, 'n') => value.push('\n'),
                    (true, '"' | '\\') => value.push(c),
                    (true, c) => panic!("\\{c} is no escape"),
                    (false, '\\') => {}
                    (false, '"') => {
                        end = Some(at);
                        break;
                    }
                    (false, c) => value.push(c),
                }
                escaped = !escaped && c == '\\';
            }
            let end = end.expect("a closed value");
            pairs.push((key.to_string(), value));
            rest = &more[end + 1..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        assert!(seen.insert((name.to_string(), pairs.clone())), "a sample twice: {line}");
        samples.push((name.to_string(), pairs, value.parse().expect("a number")));
    }
    samples
}

fn snapshot(plane: &str, bytes: f64) -> Snapshot {
    let labels = [("plane", plane.to_string())];
    let samples = vec![Sample::new(&BYTES, &labels, bytes), Sample::new(&UP, &labels, 1.0)];
    let status = Json::Object(vec![("plane", Json::from(plane))]);
    Snapshot { samples, status, sentences: vec![format!("plane {plane} is new")] }
}

#[test]
fn samples_of_a_family_stand_together_and_odd_labels_are_escaped() {
    let odd = "a\"b\\c\nd, {e}";
    let samples = parse(&text(&[snapshot("p0", 1e15), snapshot(odd, 0.5)]));
    let names: Vec<&str> = samples.iter().map(|(name, ..)| &name[..]).collect();
    assert_eq!(
        names,
        ["strandway_plane_up", "strandway_plane_up", "strandway_sent_bytes_total", "strandway_sent_bytes_total"]
    );
    assert_eq!(samples[1].1, [("plane".to_string(), odd.to_string())]);
    assert_eq!((samples[2].2, samples[3].2), (1e15, 0.5));
}

#[test]
fn texts_of_json_are_escaped_and_numbers_without_a_value_are_null() {
    let all =
        Json::List(vec![Json::from("a\"\\\n\u{1}ä"), Json::Number(f64::NAN), Json::Number(2.5), Json::Bool(true)]);
    assert_eq!(all.to_string(), "[\"a\\\"\\\\\\u000a\\u0001ä\",null,2.5,true]");
    assert_eq!(Json::Object(vec![("k", Json::Null), ("l", Json::from(7_u64))]).to_string(), "{\"k\":null,\"l\":7}");
}

fn ask(to: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_part_is_served_while_it_lives_and_strange_requests_do_no_harm() {
    let registry = Arc::new(Registry::default());
    let server = Server::open("127.0.0.1:0").expect("a port");
    let Server::Port(listener) = &server else { panic!("no port") };
    let at = listener.local_addr().expect("an address");
    server.start(Arc::clone(&registry)).expect("a thread");
    let mut part = registry.enrol("node");
    assert!(part.is_due());
    part.publish(snapshot("p0", 3.0));
    assert!(!part.is_due());
    let answer = ask(at, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains(CONTENT_TYPE), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let samples = parse(body);
    assert_eq!(samples.len(), 3, "two of the part, and its age: {body}");
    assert!(samples.iter().all(|(_, labels, _)| labels[0] == ("part".to_string(), "node1".to_string())));
    let status = ask(at, "GET /status HTTP/1.1\r\n\r\n");
    assert!(status.contains("\"sentences\":[\"plane p0 is new\"]") && status.contains("\"state\":{\"plane\":\"p0\"}"));
    assert!(ask(at, "GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask(at, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let mut long = TcpStream::connect(at).expect("it listens");
    let _ = long.write_all(&vec![b'x'; 100_000]);
    drop(long);
    drop(TcpStream::connect(at));
    drop(part);
    let answer = ask(at, "GET / HTTP/1.1\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\n# EOF\n"), "nothing is left of the part: {answer}");
}

#[test]
fn places_that_cannot_be_served_are_named_with_a_remedy() {
    for (place, remedy) in [
        ("10.0.0.1:9464", "write 127.0.0.1"),
        ("nowhere", "write 127.0.0.1:9464"),
        ("/proc/none/x.sock", "a folder of yours"),
    ] {
        let what = Server::open(place).expect_err("it cannot be served");
        assert!(what.contains(remedy), "{place}: {what}");
    }
    let place = "/tmp/strandway-watch-test.sock".replace("test", &std::process::id().to_string());
    let first = Server::open(&place).expect("a socket");
    assert!(Server::open(&place).expect_err("it is taken").contains("another process serves there"));
    drop(first);
    Server::open(&place).expect("the socket of a process that has ended is replaced");
    let _ = std::fs::remove_file(&place);
    let Server::Port(first) = Server::open("127.0.0.1:0").expect("a port") else { panic!("no port") };
    let taken = first.local_addr().expect("an address").to_string();
    let Server::Port(next) = Server::open(&taken).expect("the next port") else { panic!("no port") };
    assert_ne!(next.local_addr().expect("an address").to_string(), taken);
}
