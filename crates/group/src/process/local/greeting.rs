//! How two processes of one host show each other, over a Unix socket, that they have the key of a group, and then give
//! each other their memory.
//!
//! | | by | bytes | descriptors |
//! |---|---|---|---|
//! | 1 | caller | a word, the names of both processes, the length of rings, a random number | |
//! | 2 | callee | a random number, a proof of the key | |
//! | 3 | caller | a proof of the key | ring, bell, event of the bell |
//! | 4 | callee | a byte | ring, bell, event of the bell |
//!
//! A proof is a keyed hash of everything that was said before it. Only processes of the same user are talked to.

use super::super::message::Id;
use super::bell::{Bell, PeerBell};
use super::link::{Ends, Link};
use super::ring::{self, RING_MAX, RING_MIN, Receiver, Sender};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, getpid, getuid, pidfd_open};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;
use strandway_udp::random_secret;

/// The first bytes of a caller. Processes with another version of this table do not talk.
const WORD: &[u8; 16] = b"strandway link 1";
const ID: usize = size_of::<Id>();
const LENGTH: usize = size_of::<u32>();
const NUMBER: usize = 32;
const PROOF: usize = 32;
const CALL: usize = WORD.len() + 2 * ID + LENGTH + NUMBER;
/// Descriptors that each side gives.
const GIVEN: usize = 3;
/// Callers that may wait to be accepted: the most that Linux allows by default.
const BACKLOG: i32 = 4_096;
/// The context of the key of proofs.
const CONTEXT: &str = "strandway 2026 proofs between processes of one host";

/// This process, as all its greetings know it.
pub(super) struct Greeter {
    pub(super) id: Id,
    key: [u8; 32],
}

/// A greeting under way.
pub(super) struct Greeting {
    pub(super) ends: Ends,
    pub(super) began: Instant,
    stage: Stage,
}

enum Stage {
    /// A process has called; it has not said anything.
    Called,
    /// We have shown our proof to a caller, and wait for the caller's. Everything that was said.
    Asked { peer: Id, length: usize, said: Vec<u8> },
    /// We have called, and wait for a proof.
    Calling { peer: Id, length: usize, said: Vec<u8> },
    /// We have given our memory, and wait for the callee's.
    Given { peer: Id, sender: Sender },
}

/// The reason why there is no link.
pub(super) type Refused = &'static str;

/// The name of a socket that has no place in the file system.
fn address(name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A socket that listens, and its name.
pub(super) fn listen() -> Result<(OwnedFd, String), Errno> {
    let random = random_secret().map_err(|_| Errno::IO)?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("strandway-{name}");
    let listener = socket()?;
    rustix::net::bind(&listener, &address(&name)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok((listener, name))
}

/// A process that has called.
pub(super) fn accept(listener: &OwnedFd) -> Result<Result<Greeting, Refused>, Errno> {
    let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    Ok(Greeting::new(socket, Stage::Called))
}

impl Greeting {
    fn new(socket: OwnedFd, stage: Stage) -> Result<Greeting, Refused> {
        let peer = getsockopt(&socket, PeerCredentials).map_err(|_| "the kernel does not say who it is")?;
        if peer.uid() != getuid().as_raw() {
            return Err("it belongs to another user");
        }
        // In another namespace of processes it has no number here. Then the end of the socket shows its end.
        let number = Pid::from_raw(peer.pid()).filter(|pid| *pid != getpid());
        let process = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Greeting { ends: Ends { socket, process }, began: Instant::now(), stage })
    }

    /// Goes on as far as possible.
    pub(super) fn go_on(mut self, greeter: &Greeter, bell: &Bell) -> Result<Step, Refused> {
        loop {
            self.stage = match self.stage {
                Stage::Called => {
                    let Some((call, _)) = receive::<CALL>(&self.ends.socket)? else { return Ok(Step::Waits(self)) };
                    let (peer, length) = greeter.check_call(&call)?;
                    let mut said = call.to_vec();
                    said.extend_from_slice(&random()?);
                    let proof = greeter.prove(&said);
                    let mut answer = said[CALL..].to_vec();
                    answer.extend_from_slice(&proof);
                    send(&self.ends.socket, &answer, None)?;
                    said.extend_from_slice(&proof);
                    Stage::Asked { peer, length, said }
                }
                Stage::Calling { peer, length, ref mut said } => {
                    let Some((answer, _)) = receive::<{ NUMBER + PROOF }>(&self.ends.socket)? else {
                        return Ok(Step::Waits(self));
                    };
                    let (number, proof) = answer.split_at(NUMBER);
                    said.extend_from_slice(number);
                    greeter.check_proof(said, proof)?;
                    said.extend_from_slice(proof);
                    let (file, sender) = ring::create(length).map_err(|_| NO_MEMORY)?;
                    let proof = greeter.prove(said);
                    send(&self.ends.socket, &proof, Some([&file, &bell.file, &bell.event]))?;
                    Stage::Given { peer, sender }
                }
                Stage::Asked { peer, length, ref said } => {
                    let Some((proof, given)) = receive::<PROOF>(&self.ends.socket)? else {
                        return Ok(Step::Waits(self));
                    };
                    greeter.check_proof(said, &proof)?;
                    let (file, sender) = ring::create(length).map_err(|_| NO_MEMORY)?;
                    let (receiver, theirs) = open(given)?;
                    // The caller uses the link from now on, so nothing may fail later.
                    send(&self.ends.socket, &[0], Some([&file, &bell.file, &bell.event]))?;
                    return Ok(Step::Done(Link::new(peer, self.ends, sender, receiver, theirs)));
                }
                Stage::Given { peer, sender } => {
                    let Some((_, given)) = receive::<1>(&self.ends.socket)? else {
                        self.stage = Stage::Given { peer, sender };
                        return Ok(Step::Waits(self));
                    };
                    let (receiver, theirs) = open(given)?;
                    return Ok(Step::Done(Link::new(peer, self.ends, sender, receiver, theirs)));
                }
            };
        }
    }
}

/// A greeting after all that has come.
pub(super) enum Step {
    Waits(Greeting),
    Done(Link),
}

const NO_MEMORY: Refused = "there is no memory to share";

fn random() -> Result<[u8; NUMBER], Refused> {
    random_secret().map_err(|_| "the kernel gives no random numbers")
}

/// The ring and the bell that a peer has given.
fn open(given: Vec<OwnedFd>) -> Result<(Receiver, PeerBell), Refused> {
    let Ok([ring, bell, event]) = <[OwnedFd; GIVEN]>::try_from(given) else { return Err("it gives no memory") };
    ring::open(&ring).zip(PeerBell::open(&bell, event)).ok_or("it gives memory that it could take away")
}

impl Greeter {
    pub(super) fn new(id: Id, secret: &[u8; 32]) -> Greeter {
        Greeter { id, key: blake3::derive_key(CONTEXT, secret) }
    }

    /// Calls a process.
    pub(super) fn call(&self, peer: Id, name: &str, length: usize) -> Result<Greeting, Refused> {
        let to = address(name).map_err(|_| "it has no socket")?;
        let socket = socket().map_err(|_| "no socket is left")?;
        // In another namespace of networks there is no such name.
        rustix::net::connect(&socket, &to).map_err(|_| "it is not reached")?;
        let mut said = WORD.to_vec();
        said.extend_from_slice(&self.id);
        said.extend_from_slice(&peer);
        said.extend_from_slice(&(length as u32).to_le_bytes());
        said.extend_from_slice(&random()?);
        let greeting = Greeting::new(socket, Stage::Calling { peer, length, said: said.clone() })?;
        send(&greeting.ends.socket, &said, None)?;
        Ok(greeting)
    }

    /// The caller, and the length of rings that it proposes.
    fn check_call(&self, call: &[u8; CALL]) -> Result<(Id, usize), Refused> {
        let (word, rest) = call.split_first_chunk::<{ WORD.len() }>().expect("long enough");
        let (peer, rest) = rest.split_first_chunk::<ID>().expect("long enough");
        let (ours, rest) = rest.split_first_chunk::<ID>().expect("long enough");
        let length = u32::from_le_bytes(*rest.first_chunk().expect("long enough")) as usize;
        if word != WORD || *ours != self.id || *peer == self.id {
            return Err("it speaks another version, or calls another process");
        }
        if !length.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&length) {
            return Err("it asks for a ring of an impossible length");
        }
        Ok((*peer, length))
    }

    /// The proof that follows what was said.
    fn prove(&self, said: &[u8]) -> [u8; PROOF] {
        blake3::keyed_hash(&self.key, said).into()
    }

    fn check_proof(&self, said: &[u8], proof: &[u8]) -> Result<(), Refused> {
        // Hashes are compared in constant time.
        let given: [u8; PROOF] = proof.try_into().map_err(|_| "it speaks another version")?;
        if blake3::keyed_hash(&self.key, said) == blake3::Hash::from(given) {
            Ok(())
        } else {
            Err("it does not know the key")
        }
    }
}

/// A message of a greeting, with its descriptors.
type Received<const N: usize> = ([u8; N], Vec<OwnedFd>);

/// The next message, if it is here.
fn receive<const N: usize>(socket: &OwnedFd) -> Result<Option<Received<N>>, Refused> {
    // One more byte shows that a message is too long.
    let mut bytes = vec![0; N + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GIVEN))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            descriptors.extend(all);
        }
    }
    match got {
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(_) => Err("it has hung up"),
        Ok(got) if got.bytes == 0 => Err("it has hung up"),
        Ok(got) if got.bytes == N => Ok(Some((*bytes.first_chunk().expect("one more"), descriptors))),
        Ok(_) => Err("it speaks another version"),
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: Option<[&OwnedFd; GIVEN]>) -> Result<(), Refused> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GIVEN))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptors.map(|all| all.map(AsFd::as_fd));
    if let Some(descriptors) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map_err(|_| "it has hung up")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::OwnedFd;

    /// A process that calls another one, which has accepted.
    struct Met {
        calls: Greeter,
        called: Greeter,
        bell: Bell,
        greeting: Greeting,
        accepted: Greeting,
    }

    fn met(secrets: [&[u8; 32]; 2], length: usize) -> Met {
        let (listener, name) = listen().expect("a socket");
        let (calls, called) = (Greeter::new([1; ID], secrets[0]), Greeter::new([2; ID], secrets[1]));
        let greeting = calls.call([2; ID], &name, length).expect("it is reached");
        let accepted = accept(&listener).expect("a caller").expect("of this user");
        Met { calls, called, bell: Bell::new().expect("memory"), greeting, accepted }
    }

    fn waits(step: Result<Step, Refused>) -> Greeting {
        match step {
            Ok(Step::Waits(greeting)) => greeting,
            Ok(Step::Done(_)) => panic!("it has a link"),
            Err(why) => panic!("refused: {why}"),
        }
    }

    fn is_done(step: &Result<Step, Refused>) -> bool {
        matches!(step, Ok(Step::Done(_)))
    }

    #[test]
    fn two_processes_with_the_key_get_a_link() {
        let Met { calls, called, bell, greeting, accepted } = met([&[7; 32]; 2], RING_MIN);
        let accepted = waits(accepted.go_on(&called, &bell));
        let greeting = waits(greeting.go_on(&calls, &bell));
        assert!(is_done(&accepted.go_on(&called, &bell)) && is_done(&greeting.go_on(&calls, &bell)));
    }

    #[test]
    fn a_caller_without_the_key_or_with_an_impossible_length_gets_nothing() {
        let Met { called, bell, greeting, accepted, .. } = met([&[7; 32], &[8; 32]], RING_MIN);
        let accepted = waits(accepted.go_on(&called, &bell));
        // It makes a proof up.
        send(&greeting.ends.socket, &[3; PROOF], Some([&bell.file, &bell.file, &bell.event])).expect("sent");
        assert_eq!(accepted.go_on(&called, &bell).err(), Some("it does not know the key"));
        let Met { calls, called, bell, greeting, accepted } = met([&[7; 32], &[8; 32]], RING_MIN);
        let _accepted = waits(accepted.go_on(&called, &bell));
        assert_eq!(greeting.go_on(&calls, &bell).err(), Some("it does not know the key"), "nor does the callee");
        for length in [0, RING_MIN / 2, RING_MIN + 64, 2 * RING_MAX, 1 << 31] {
            let Met { called, bell, accepted, .. } = met([&[7; 32]; 2], length);
            let refused = accepted.go_on(&called, &bell).err();
            assert_eq!(refused, Some("it asks for a ring of an impossible length"), "{length}");
        }
    }

    /// A caller says that it uses a link as soon as the callee has given its memory.
    #[test]
    fn a_callee_gives_its_memory_only_if_it_can_use_the_callers() {
        let (ring, _sender) = ring::create(RING_MIN).expect("memory");
        let blocks = eventfd(0, EventfdFlags::CLOEXEC).expect("an event");
        let bell = Bell::new().expect("memory");
        let given: [[&OwnedFd; GIVEN]; 3] = [
            [&bell.file, &bell.file, &bell.event],
            [&ring, &ring, &bell.event],
            // A peer that never reads it would hold this process up.
            [&ring, &bell.file, &blocks],
        ];
        for given in given {
            let Met { calls, called, bell, greeting, accepted } = met([&[7; 32]; 2], RING_MIN);
            let Stage::Calling { mut said, .. } = greeting.stage else { panic!("it calls") };
            let accepted = waits(accepted.go_on(&called, &bell));
            let (answer, _) = receive::<{ NUMBER + PROOF }>(&greeting.ends.socket).expect("open").expect("an answer");
            said.extend_from_slice(&answer);
            send(&greeting.ends.socket, &calls.prove(&said), Some(given)).expect("sent");
            assert_eq!(accepted.go_on(&called, &bell).err(), Some("it gives memory that it could take away"));
            assert_eq!(receive::<1>(&greeting.ends.socket).err(), Some("it has hung up"));
        }
    }

    #[test]
    fn a_process_of_another_user_is_refused_in_both_directions() {
        use rustix::process::Uid;
        if !getuid().is_root() {
            eprintln!("skipped: only root may become another user");
            return;
        }
        let (listener, name) = listen().expect("a socket");
        let other = std::thread::spawn(move || {
            // The user of this thread alone.
            let nobody = Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
            Greeter::new([1; ID], &[7; 32]).call([2; ID], &name, RING_MIN).err()
        });
        assert_eq!(other.join().expect("no panic"), Some("it belongs to another user"));
        assert_eq!(accept(&listener).expect("a caller").err(), Some("it belongs to another user"));
    }
}
