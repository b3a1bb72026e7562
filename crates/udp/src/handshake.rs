//! How two nodes that share a key agree on a connection: Noise NNpsk0, behind a cookie.
//!
//! The caller asks for a cookie first. Its first Noise message has that cookie in the prologue. So the message is valid
//! for one node, for one address of the caller, and for the life of the cookie. It is sealed with the shared key alone,
//! so a stranger costs the answering side only some hashing. Before it computes a Diffie-Hellman exchange or allocates
//! memory, the answering side knows two things: the caller has the key, and it receives datagrams at its address.

use crate::cipher::MacKey;
use crate::clock::duration;
use crate::error::{Error, Reason};
use crate::frame::{COOKIE, NOISE_HELLO, NOISE_WELCOME, TERMS, VERSION};
use crate::layout::{Layout, Protection};
use crate::secret::Secret;
use crate::secure::random;
use sha2::{Digest, Sha256};
use snow::{Builder, HandshakeState};
use std::net::SocketAddr;
use strandway_proto::parameter::magnitude;
use strandway_proto::profile::WireFormat;
use strandway_proto::{Profile, Time};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// How long a cookie is valid, in seconds; ours.
pub(crate) const COOKIE_SECONDS: u64 = 10;

/// The terms on which both sides must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) planes: u8,
    pub(crate) protection: Protection,
    pub(crate) payload: u32,
    pub(crate) wire: WireFormat,
    pub(crate) layout: Layout,
    /// A hash of the whole profile, parameters included.
    pub(crate) fingerprint: u64,
}

impl Terms {
    /// `profile` is the one that was chosen; changes that a host makes for itself, such as its timers, do not count.
    pub(crate) fn new(profile: &Profile, payload: u32, planes: usize, protection: Protection, layout: Layout) -> Terms {
        let (planes, wire, fingerprint) = (planes as u8, profile.wire, fingerprint(profile));
        Terms { planes, protection, payload, wire, layout, fingerprint }
    }

    fn encode(&self) -> [u8; TERMS] {
        let mut out = [0; TERMS];
        out[0] = self.planes;
        out[1] = match self.protection {
            Protection::Authenticated => 0,
            Protection::Encrypted => 1,
            Protection::None => 2,
        };
        out[4..8].copy_from_slice(&self.payload.to_be_bytes());
        out[8] = wire_number(self.wire);
        if let Layout::Mrc { port } = self.layout {
            out[9] = 1;
            out[10..12].copy_from_slice(&port.to_be_bytes());
        }
        out[16..24].copy_from_slice(&self.fingerprint.to_be_bytes());
        out
    }

    /// The first difference to the terms of the caller.
    fn differ(&self, theirs: &[u8; TERMS]) -> Option<Reason> {
        let ours = self.encode();
        [
            (0..1, Reason::OtherPlanes),
            (1..2, Reason::OtherProtection),
            (4..8, Reason::OtherPayload),
            (0..TERMS, Reason::OtherProfile),
        ]
        .into_iter()
        .find_map(|(range, reason)| (ours[range.clone()] != theirs[range]).then_some(reason))
    }
}

/// A hash of the profile's behaviour: the names of its policies, and every parameter with the name and unit of scenario
/// files. The profile's own name does not count.
fn fingerprint(profile: &Profile) -> u64 {
    let mut hash = Sha256::new();
    // No name contains a zero byte, so names and values cannot be confused.
    let name = |hash: &mut Sha256, name: &str| {
        hash.update(name.as_bytes());
        hash.update([0]);
    };
    hash.update([wire_number(profile.wire)]);
    for policy in [profile.reliability.name(), profile.congestion.name(), profile.path.name()] {
        name(&mut hash, policy);
    }
    for (group, set) in profile.clone().groups() {
        name(&mut hash, group);
        for row in set.table() {
            name(&mut hash, row.name);
            let value = set.get(row.name).expect("a set has the values of its table");
            hash.update(magnitude(value).to_bits().to_be_bytes());
        }
    }
    u64::from_be_bytes(*hash.finalize().first_chunk().expect("a digest has 32 bytes"))
}

fn wire_number(wire: WireFormat) -> u8 {
    match wire {
        WireFormat::Rocev2 => 1,
        WireFormat::Uec => 2,
        WireFormat::Strack => 3,
        WireFormat::Mrc => 4,
    }
}

/// The byte for the answering side's verdict.
fn status(verdict: Option<Reason>) -> u8 {
    match verdict {
        None => 0,
        Some(Reason::OtherPlanes) => 1,
        Some(Reason::OtherProtection) => 2,
        Some(Reason::OtherPayload) => 3,
        Some(Reason::OtherProfile) => 4,
        Some(_) => 5,
    }
}

fn verdict(status: u8) -> Option<Reason> {
    match status {
        0 => None,
        1 => Some(Reason::OtherPlanes),
        2 => Some(Reason::OtherProtection),
        3 => Some(Reason::OtherPayload),
        4 => Some(Reason::OtherProfile),
        _ => Some(Reason::PeerFull),
    }
}

/// A secret per direction.
pub(crate) struct Secrets {
    pub(crate) from_caller: [u8; 32],
    pub(crate) to_caller: [u8; 32],
}

fn state(secret: &Secret, connection: u64, cookie: &[u8; COOKIE], calls: bool) -> Option<HandshakeState> {
    let mut prologue = [0; 10 + COOKIE];
    prologue[..2].copy_from_slice(&[b'S', VERSION]);
    prologue[2..10].copy_from_slice(&connection.to_be_bytes());
    prologue[10..].copy_from_slice(cookie);
    let builder = Builder::new(PATTERN.parse().ok()?).psk(0, &secret.0).ok()?.prologue(&prologue).ok()?;
    if calls { builder.build_initiator().ok() } else { builder.build_responder().ok() }
}

/// The calling side, waiting for a welcome.
pub(crate) struct Caller {
    state: HandshakeState,
    pub(crate) hello: [u8; NOISE_HELLO],
    /// The cookie that the answering node gave for this hello.
    pub(crate) cookie: [u8; COOKIE],
}

impl Caller {
    pub(crate) fn new(secret: &Secret, connection: u64, cookie: &[u8; COOKIE], terms: &Terms) -> Result<Caller, Error> {
        let mut state = state(secret, connection, cookie, true).ok_or(Error::Random)?;
        let mut hello = [0; NOISE_HELLO];
        let length = state.write_message(&terms.encode(), &mut hello).map_err(|_| Error::Random)?;
        assert_eq!(length, NOISE_HELLO, "NNpsk0's first message is a key, the payload and a tag");
        Ok(Caller { state, hello, cookie: *cookie })
    }

    /// Reads a welcome: the peer's number for the connection and the secrets, or the reason of a refusal and what the
    /// peer says with it. `None` if it is forged; the state is then as before.
    pub(crate) fn finish(&mut self, noise: &[u8; NOISE_WELCOME]) -> Option<Result<(u64, Secrets), (Reason, u64)>> {
        let mut payload = [0; NOISE_WELCOME];
        let length = self.state.read_message(noise, &mut payload).ok()?;
        let &[status, ref id @ ..] = payload.get(..length)?.first_chunk::<9>()?;
        Some(match verdict(status) {
            Some(reason) => Err((reason, u64::from_be_bytes(*id))),
            None => Ok((u64::from_be_bytes(*id), split(&mut self.state))),
        })
    }
}

fn split(state: &mut HandshakeState) -> Secrets {
    let (from_caller, to_caller) = state.dangerously_get_raw_split();
    Secrets { from_caller, to_caller }
}

/// A hello whose sender knows the key.
pub(crate) struct Answer {
    state: HandshakeState,
    /// The first of the caller's terms that differs from ours.
    pub(crate) differ: Option<Reason>,
    /// The payload that the caller wants.
    pub(crate) payload: u32,
}

impl Answer {
    /// Reads a hello; `None` if its sender does not know the key, or made it for another cookie. `any_payload`: may this
    /// payload differ from that of our terms?
    pub(crate) fn new(
        secret: &Secret,
        connection: u64,
        cookie: &[u8; COOKIE],
        noise: &[u8; NOISE_HELLO],
        terms: &Terms,
        any_payload: impl FnOnce(u32) -> bool,
    ) -> Option<Answer> {
        let mut state = state(secret, connection, cookie, false)?;
        let mut payload = [0; NOISE_HELLO];
        let length = state.read_message(noise, &mut payload).ok()?;
        let theirs = payload.get(..length)?.first_chunk::<TERMS>()?;
        let wanted = u32::from_be_bytes(*theirs[4..].first_chunk()?);
        let terms = if any_payload(wanted) { Terms { payload: wanted, ..*terms } } else { *terms };
        Some(Answer { state, differ: terms.differ(theirs), payload: wanted })
    }

    /// The welcome, or an authenticated refusal, and the secrets. `id`: our number for the connection; in a refusal of
    /// another payload, our payload.
    pub(crate) fn finish(mut self, verdict: Option<Reason>, id: u64) -> Option<([u8; NOISE_WELCOME], Secrets)> {
        let mut payload = [0; 9];
        payload[0] = status(verdict);
        payload[1..].copy_from_slice(&id.to_be_bytes());
        let mut noise = [0; NOISE_WELCOME];
        let length = self.state.write_message(&payload, &mut noise).ok()?;
        assert_eq!(length, NOISE_WELCOME, "NNpsk0's second message is a key, the payload and a tag");
        let secrets = split(&mut self.state);
        Some((noise, secrets))
    }
}

/// Makes and checks cookies; keeps no state about callers.
pub(crate) struct Cookies {
    key: MacKey,
}

impl Cookies {
    pub(crate) fn new() -> Result<Cookies, Error> {
        Ok(Cookies { key: MacKey::new(&random()?) })
    }

    /// A cookie for this address and connection, valid from now on.
    pub(crate) fn make(&self, now: Time, from: SocketAddr, connection: u64) -> [u8; COOKIE] {
        self.at(duration(now.since(Time::ZERO)).as_secs(), from, connection)
    }

    fn at(&self, second: u64, from: SocketAddr, connection: u64) -> [u8; COOKIE] {
        let (four, sixteen);
        let ip: &[u8] = match from {
            SocketAddr::V6(address) => {
                sixteen = address.ip().octets();
                &sixteen
            }
            SocketAddr::V4(address) => {
                four = address.ip().octets();
                &four
            }
        };
        let (second, port, connection) = (second.to_be_bytes(), from.port().to_be_bytes(), connection.to_be_bytes());
        let mut cookie = [0; COOKIE];
        cookie[..8].copy_from_slice(&second);
        cookie[8..].copy_from_slice(&self.key.code::<{ COOKIE - 8 }>(&[&second, ip, &port, &connection]));
        cookie
    }

    /// Did this node give out the cookie, for this address and this connection, at most [`COOKIE_SECONDS`] ago?
    pub(crate) fn holds(&self, now: Time, from: SocketAddr, connection: u64, cookie: &[u8; COOKIE]) -> bool {
        let second = u64::from_be_bytes(*cookie.first_chunk().expect("a cookie has 32 bytes"));
        let now = duration(now.since(Time::ZERO)).as_secs();
        let recent = second <= now && now - second <= COOKIE_SECONDS;
        let real = self.at(second, from, connection);
        // Hashes are compared in a time that does not depend on where the cookies differ.
        recent && blake3::hash(&real) == blake3::hash(cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::Span;

    const COOKIE_7: [u8; COOKIE] = [7; COOKIE];

    fn terms() -> Terms {
        Terms::new(&Profile::preset("uec").expect("a preset"), 1_344, 2, Protection::Authenticated, Layout::Frame)
    }

    #[test]
    fn two_that_share_a_key_agree_on_secrets() {
        let secret = Secret::new(&[1; 32]).expect("long enough");
        let mut caller = Caller::new(&secret, 5, &COOKIE_7, &terms()).expect("randomness");
        let answer = Answer::new(&secret, 5, &COOKIE_7, &caller.hello, &terms(), |_| false).expect("the same key");
        assert_eq!(answer.differ, None);
        let (welcome, theirs) = answer.finish(None, 99).expect("a welcome");
        let mut forged = welcome;
        forged[50] ^= 1;
        assert!(caller.finish(&forged).is_none(), "a forged welcome changes nothing");
        let (id, ours) = caller.finish(&welcome).expect("genuine").expect("accepted");
        assert_eq!(id, 99);
        assert_eq!((ours.from_caller, ours.to_caller), (theirs.from_caller, theirs.to_caller));
        assert_ne!(ours.from_caller, ours.to_caller);
    }

    #[test]
    fn another_key_another_number_another_cookie_and_other_terms_are_told_apart() {
        let secret = Secret::new(&[1; 32]).expect("long enough");
        let caller = Caller::new(&secret, 5, &COOKIE_7, &terms()).expect("randomness");
        let stranger = Secret::new(&[2; 32]).expect("long enough");
        assert!(Answer::new(&stranger, 5, &COOKIE_7, &caller.hello, &terms(), |_| false).is_none());
        assert!(Answer::new(&secret, 6, &COOKIE_7, &caller.hello, &terms(), |_| false).is_none());
        assert!(Answer::new(&secret, 5, &[8; COOKIE], &caller.hello, &terms(), |_| false).is_none());
        for (other, reason) in [
            (Terms { planes: 1, ..terms() }, Reason::OtherPlanes),
            (Terms { protection: Protection::Encrypted, ..terms() }, Reason::OtherProtection),
            (Terms { payload: 1024, ..terms() }, Reason::OtherPayload),
            (Terms { fingerprint: 0, ..terms() }, Reason::OtherProfile),
            (Terms { layout: Layout::MRC, ..terms() }, Reason::OtherProfile),
        ] {
            let answer = Answer::new(&secret, 5, &COOKIE_7, &caller.hello, &other, |_| false).expect("the same key");
            assert_eq!(answer.differ, Some(reason));
        }
        let other = Terms { payload: 1024, ..terms() };
        let any = |payload| payload == 1_344;
        let answer = Answer::new(&secret, 5, &COOKIE_7, &caller.hello, &other, any).expect("the same key");
        assert_eq!((answer.differ, answer.payload), (None, 1_344));
        assert!(Secret::new(b"short").is_err());
    }

    #[test]
    fn a_fingerprint_is_of_parameters_and_not_of_names() {
        use strandway_proto::parameter::Value;
        let mut seen = std::collections::BTreeSet::new();
        for preset in Profile::NAMES {
            let profile = Profile::preset(preset).expect("a preset");
            assert!(seen.insert(fingerprint(&profile)), "{preset}");
            assert_eq!(fingerprint(&profile), fingerprint(&Profile { name: "mine".into(), ..profile.clone() }));
            let rows: Vec<_> = profile.clone().groups().into_iter().map(|(_, set)| set.table()).collect();
            for (group, row) in rows.iter().enumerate().flat_map(|(i, rows)| rows.iter().map(move |row| (i, row))) {
                let mut other = profile.clone();
                let (_, set) = other.groups().swap_remove(group);
                let now = set.get(row.name).expect("in the table");
                let changed = match now {
                    Value::Flag(flag) => Value::Flag(!flag),
                    Value::Count(n) => Value::Count(if n as f64 == row.range.1 { n - 1 } else { n + 1 }),
                    Value::Ratio(x) => Value::Ratio((x + row.range.0) / 2.0 + (row.range.1 - x) / 4.0),
                    Value::Span(s) => {
                        Value::Span(strandway_proto::Span(if s.0 as f64 == row.range.1 { s.0 - 1 } else { s.0 + 1 }))
                    }
                    Value::Rate(r) => {
                        Value::Rate(strandway_proto::Rate(if r.0 as f64 == row.range.1 { r.0 - 1 } else { r.0 + 1 }))
                    }
                    Value::Bytes(b) => {
                        Value::Bytes(strandway_proto::Bytes(if b.0 as f64 == row.range.1 { b.0 - 1 } else { b.0 + 1 }))
                    }
                };
                set.set(row.name, changed).expect("within its range");
                if set.get(row.name) != Some(now) {
                    assert_ne!(fingerprint(&other), fingerprint(&profile), "{preset}: {}", row.name);
                }
            }
        }
    }

    #[test]
    fn a_cookie_is_good_for_one_address_one_connection_and_ten_seconds() {
        let cookies = Cookies::new().expect("randomness");
        let now = Time::ZERO + Span::from_ms(60_000);
        let from: SocketAddr = "[::1]:4000".parse().expect("an address");
        let cookie = cookies.make(now, from, 1);
        assert!(cookies.holds(now, from, 1, &cookie));
        assert!(cookies.holds(now + Span::from_ms(9_000), from, 1, &cookie));
        assert!(!cookies.holds(now + Span::from_ms(12_000), from, 1, &cookie));
        assert!(!cookies.holds(now, "[::1]:4001".parse().expect("an address"), 1, &cookie));
        assert!(!cookies.holds(now, from, 2, &cookie));
        assert!(!cookies.holds(now, from, 1, &[0; COOKIE]));
        assert!(!Cookies::new().expect("randomness").holds(now, from, 1, &cookie), "nor for another node");
    }
}
