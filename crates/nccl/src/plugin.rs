//! The plug-in without pointers: devices, listeners, connections, requests.

use crate::abi::{HANDLE_BYTES, Outcome, RECVS_MAX};
use crate::devices::{Device, devices};
use crate::handle::Handle;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use strandway_mover::{Code, Event, EventKind, Level, LogSink, Mover, MoverError};
use strandway_udp::address::kept;

/// Unfinished sends or receives of a connection, beyond which NCCL is asked to try again. Ours: four times what NCCL has
/// under way (32 requests of 8 receives), so that it never happens.
const UNFINISHED_MAX: usize = 1_000;
/// A receiver's connection is closed by its sender, or after this time: the last acknowledgements have then arrived.
const LINGER: Duration = Duration::from_secs(5);
/// NCCL tests its requests one after another: after a look for packets in vain the next one is not sooner than this. Ours,
/// about the time of a round.
const QUIET: Duration = Duration::from_micros(3);
/// Events that one call takes.
const BATCH: usize = 256;

/// A line for NCCL's log: is it a warning, and the text.
pub(crate) type Sink = fn(Level, &str);

/// A call that failed: what NCCL is told, and the reason for its log.
pub(crate) struct Failure {
    pub(crate) outcome: Outcome,
    pub(crate) text: String,
}

pub(crate) type Done<T> = Result<T, Failure>;

fn internal(text: impl Into<String>) -> Failure {
    Failure { outcome: Outcome::Internal, text: text.into() }
}

impl From<MoverError> for Failure {
    fn from(error: MoverError) -> Failure {
        Failure { outcome: outcome_of(error.code), text: error.text }
    }
}

const fn outcome_of(code: Code) -> Outcome {
    match code {
        Code::Ok => Outcome::Success,
        Code::System => Outcome::System,
        Code::Config | Code::WrongKey | Code::Mismatch | Code::WrongVersion | Code::Payload => Outcome::Usage,
        Code::ClosedByPeer | Code::PeerSilent | Code::NoAnswer | Code::PeerFull | Code::NoConnection => Outcome::Remote,
        _ => Outcome::Internal,
    }
}

/// The state of a mover's connection.
enum Link {
    /// We have begun it.
    Calling,
    Open,
    Ended(Code),
}

/// A `sendComm` or `recvComm`.
struct Comm {
    connection: u64,
    receives: bool,
    /// Sends or receives under way.
    unfinished: usize,
}

/// A send, or a group of receives.
struct Request {
    comm: u64,
    /// Sends or receives that have not ended.
    pending: usize,
    sizes: [u64; RECVS_MAX],
    count: usize,
    code: Code,
}

/// Registered memory.
struct Registered {
    memory: u64,
    address: usize,
    length: usize,
}

#[derive(Default)]
struct Tables {
    links: HashMap<u64, Link>,
    /// Connections that wait to be accepted, by service.
    listeners: HashMap<u64, VecDeque<u64>>,
    comms: HashMap<u64, Comm>,
    requests: HashMap<u64, Request>,
    memory: HashMap<u64, Registered>,
    /// Connections of closed receivers, and when they are closed at the latest.
    lingering: Vec<(u64, Instant)>,
    /// When packets were last looked for and none were there.
    quiet: Option<Instant>,
    numbers: u64,
}

/// A device with its node.
struct Net {
    device: Device,
    mover: Mover,
    tables: Mutex<Tables>,
}

/// The devices of the process. They stay until it ends: NCCL has no call that says when it needs them no more in all
/// versions.
static NETS: OnceLock<Vec<Net>> = OnceLock::new();
/// Held while devices are opened, so that they are opened once.
static OPENING: Mutex<()> = Mutex::new(());

/// Opens the devices, the first time.
pub(crate) fn init(sink: Sink, get: impl Fn(&str) -> Option<String>) -> Done<()> {
    let _one = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if NETS.get().is_some() {
        return Ok(());
    }
    let wrong = |text: String| Failure { outcome: Outcome::Usage, text };
    let open = |mut device: Device| {
        device.options.log = Some(LogSink(std::sync::Arc::new(sink)));
        let mover = Mover::open(&device.options)?;
        let planes = device.options.planes.len();
        let text = format!("{planes} planes at {}, {} Mb/s", device.name.to_string_lossy(), device.speed);
        sink(Level::Info, &text);
        Ok::<Net, Failure>(Net { device, mover, tables: Mutex::default() })
    };
    let nets = devices(get).map_err(wrong)?.into_iter().map(open).collect::<Done<Vec<_>>>()?;
    let _ = NETS.set(nets);
    Ok(())
}

fn nets() -> &'static [Net] {
    NETS.get().map_or(&[], Vec::as_slice)
}

/// How many devices there are.
pub(crate) fn count() -> usize {
    nets().len()
}

/// A device by number.
pub(crate) fn device(number: i32) -> Done<&'static Device> {
    net(number).map(|net| &net.device)
}

fn net(number: i32) -> Done<&'static Net> {
    let of = usize::try_from(number).ok().and_then(|number| nets().get(number));
    of.ok_or_else(|| internal(format!("there is no device {number}")))
}

/// The device in whose tables a number is. Numbers are never zero: NCCL keeps them as pointers.
fn net_of(number: u64) -> Done<&'static Net> {
    net((number & 0xff) as i32).map_err(|_| internal("an object that is not there"))
}

impl Net {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves packets and takes in what has happened.
    fn pump(&self, tables: &mut Tables) -> Done<()> {
        if tables.quiet.is_some_and(|since| since.elapsed() < QUIET) {
            return Ok(());
        }
        let moved = self.mover.progress()?;
        tables.quiet = (!moved).then(Instant::now);
        loop {
            let events = self.mover.poll(BATCH)?;
            let more = events.len() == BATCH;
            events.into_iter().for_each(|event| self.handle(tables, event));
            if !more {
                break;
            }
        }
        if !tables.lingering.is_empty() {
            let now = Instant::now();
            let due: Vec<u64> = tables.lingering.iter().filter(|(_, by)| *by <= now).map(|(of, _)| *of).collect();
            tables.lingering.retain(|(_, by)| *by > now);
            due.into_iter().for_each(|connection| drop(self.mover.close(connection)));
        }
        Ok(())
    }

    fn handle(&self, tables: &mut Tables, event: Event) {
        let connection = event.connection;
        match event.kind {
            EventKind::Accepted => match tables.listeners.get_mut(&event.service) {
                Some(waiting) => {
                    waiting.push_back(connection);
                    tables.links.insert(connection, Link::Open);
                }
                // Its listener was closed.
                None => drop(self.mover.close(connection)),
            },
            EventKind::Connected => {
                tables.links.insert(connection, Link::Open);
            }
            EventKind::Closed => {
                tables.lingering.retain(|(of, _)| *of != connection);
                if let Some(link) = tables.links.get_mut(&connection) {
                    *link = Link::Ended(event.code);
                }
            }
            EventKind::SendDone | EventKind::ReceiveDone => {
                let (request, part) = (event.context >> 3, (event.context & 7) as usize);
                let Some(request) = tables.requests.get_mut(&request) else { return };
                request.pending -= 1;
                request.sizes[part] = event.bytes;
                if event.code != Code::Ok {
                    request.code = event.code;
                }
                if let Some(comm) = tables.comms.get_mut(&request.comm) {
                    comm.unfinished -= 1;
                }
            }
            // The plug-in exposes no memory.
            EventKind::WriteDone | EventKind::Written | EventKind::ReadDone | EventKind::AtomicDone => {}
        }
    }
}

impl Tables {
    /// A number for an object of a device.
    fn fresh(&mut self, device: u64) -> u64 {
        self.numbers += 1;
        self.numbers << 8 | device
    }

    fn comm(&mut self, number: u64) -> Done<&mut Comm> {
        self.comms.get_mut(&number).ok_or_else(|| internal("a connection that is not there"))
    }

    /// The place of a buffer in its memory.
    fn place(&self, memory: u64, address: usize, length: u64) -> Done<(u64, u64)> {
        let of = self.memory.get(&memory).ok_or_else(|| internal("memory that is not registered"))?;
        let offset = address.checked_sub(of.address).filter(|&offset| offset <= of.length);
        let offset = offset.filter(|&offset| length <= (of.length - offset) as u64);
        offset.map(|offset| (of.memory, offset as u64)).ok_or_else(|| internal("a buffer outside of its memory"))
    }
}

/// `listen`: a handle for the peer, and the listener.
pub(crate) fn listen(device: i32) -> Done<([u8; HANDLE_BYTES], u64)> {
    let net = net(device)?;
    let planes = net.mover.addresses()?.into_iter().map(kept).collect();
    let mut tables = net.lock();
    let service = tables.fresh(device as u64);
    tables.listeners.insert(service, VecDeque::new());
    Ok((Handle { service, begun: 0, planes }.encode(), service))
}

/// `connect`: the sender once it is established. The handle keeps what the next call has to know.
pub(crate) fn connect(device: i32, bytes: &mut [u8; HANDLE_BYTES]) -> Done<Option<u64>> {
    let net = net(device)?;
    let wrong = || Failure {
        outcome: Outcome::Usage,
        text: "the peer's handle is not one of this plug-in and version: load the same on all hosts".into(),
    };
    let mut handle = Handle::decode(bytes).ok_or_else(wrong)?;
    let mut tables = net.lock();
    if handle.begun == 0 {
        handle.begun = net.mover.connect(&handle.planes, handle.service)?;
        tables.links.insert(handle.begun, Link::Calling);
        *bytes = handle.encode();
    }
    net.pump(&mut tables)?;
    match tables.links.get(&handle.begun) {
        Some(Link::Calling) => Ok(None),
        Some(Link::Open) => {
            let number = tables.fresh(device as u64);
            tables.comms.insert(number, Comm { connection: handle.begun, receives: false, unfinished: 0 });
            Ok(Some(number))
        }
        Some(&Link::Ended(code)) => {
            tables.links.remove(&handle.begun);
            handle.begun = 0;
            *bytes = handle.encode();
            let peer = handle.planes.first().map(ToString::to_string).unwrap_or_default();
            Err(Failure { outcome: outcome_of(code), text: format!("no connection to {peer}: {}", code.text()) })
        }
        None => Err(internal("a handle that was used before")),
    }
}

/// `accept`: the receiver once a sender has called.
pub(crate) fn accept(listener: u64) -> Done<Option<u64>> {
    let net = net_of(listener)?;
    let mut tables = net.lock();
    net.pump(&mut tables)?;
    let waiting = tables.listeners.get_mut(&listener).ok_or_else(|| internal("a listener that is not there"))?;
    let Some(connection) = waiting.pop_front() else { return Ok(None) };
    let number = tables.fresh(listener & 0xff);
    tables.comms.insert(number, Comm { connection, receives: true, unfinished: 0 });
    Ok(Some(number))
}

/// `regMr`: `lend` gives the memory, unless it lies within memory that is registered.
pub(crate) fn register(
    comm: u64,
    address: usize,
    length: usize,
    lend: impl FnOnce() -> &'static mut [u8],
) -> Done<u64> {
    let net = net_of(comm)?;
    let mut tables = net.lock();
    tables.comm(comm)?;
    let memory = net.mover.register(address, length, lend)?;
    let number = tables.fresh(comm & 0xff);
    tables.memory.insert(number, Registered { memory, address, length });
    Ok(number)
}

/// `deregMr`: nothing touches the memory after it. If operations use it, their connection ends.
pub(crate) fn deregister(comm: u64, memory: u64) -> Done<()> {
    let net = net_of(memory)?;
    let mut tables = net.lock();
    let of = tables.memory.get(&memory).ok_or_else(|| internal("memory that is not registered"))?.memory;
    if let Err(error) = net.mover.release(of) {
        let connection = tables.comm(comm)?.connection;
        if error.code != Code::InUse {
            return Err(error.into());
        }
        let _ = net.mover.close(connection);
        net.mover.release(of)?;
    }
    tables.memory.remove(&memory);
    Ok(())
}

/// A buffer of a call, with its tag and its memory.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) address: usize,
    pub(crate) length: u64,
    pub(crate) tag: i32,
    pub(crate) memory: u64,
}

/// `isend` and `irecv`: a request, or `None` if too many are under way.
pub(crate) fn start(comm: u64, parts: &[Part], receives: bool) -> Done<Option<u64>> {
    if parts.is_empty() || parts.len() > RECVS_MAX {
        return Err(internal(format!("{} buffers: give 1 to {RECVS_MAX}", parts.len())));
    }
    let net = net_of(comm)?;
    let mut tables = net.lock();
    let of = tables.comm(comm)?;
    if of.receives != receives {
        return Err(internal("a sender that receives, or a receiver that sends"));
    }
    if of.unfinished + parts.len() > UNFINISHED_MAX {
        net.pump(&mut tables)?;
        return Ok(None);
    }
    let connection = of.connection;
    let places: Vec<(u64, u64)> =
        parts.iter().map(|part| tables.place(part.memory, part.address, part.length)).collect::<Done<_>>()?;
    let number = tables.fresh(comm & 0xff);
    let request = Request { comm, pending: 0, sizes: [0; RECVS_MAX], count: parts.len(), code: Code::Ok };
    tables.requests.insert(number, request);
    for (at, (part, (memory, offset))) in parts.iter().zip(places).enumerate() {
        let (tag, context) = (u64::from(part.tag as u32), number << 3 | at as u64);
        let begun = match receives {
            true => net.mover.receive(connection, memory, offset, part.length, tag, context),
            false => net.mover.send(connection, memory, offset, part.length, tag, context),
        };
        let Tables { comms, requests, .. } = &mut *tables;
        if let Err(error) = begun {
            // The events of earlier parts find no request.
            requests.remove(&number);
            return Err(error.into());
        }
        if let (Some(request), Some(comm)) = (requests.get_mut(&number), comms.get_mut(&comm)) {
            request.pending += 1;
            comm.unfinished += 1;
        }
    }
    Ok(Some(number))
}

/// `test`: the sizes of a request that has ended.
pub(crate) fn test(number: u64) -> Done<Option<([u64; RECVS_MAX], usize)>> {
    let net = net_of(number)?;
    let mut tables = net.lock();
    let gone = || internal("a request that is not there");
    if tables.requests.get(&number).ok_or_else(gone)?.pending > 0 {
        net.pump(&mut tables)?;
    }
    if tables.requests.get(&number).ok_or_else(gone)?.pending > 0 {
        return Ok(None);
    }
    let request = tables.requests.remove(&number).ok_or_else(gone)?;
    match request.code {
        Code::Ok => Ok(Some((request.sizes, request.count))),
        code => Err(Failure { outcome: outcome_of(code), text: code.text().to_string() }),
    }
}

/// `closeSend` and `closeRecv`.
pub(crate) fn close(number: u64) -> Done<()> {
    let net = net_of(number)?;
    let mut tables = net.lock();
    net.pump(&mut tables)?;
    let comm = tables.comms.remove(&number).ok_or_else(|| internal("a connection that is not there"))?;
    let link = tables.links.remove(&comm.connection);
    tables.requests.retain(|_, request| request.comm != number);
    if comm.receives && comm.unfinished == 0 && matches!(link, Some(Link::Open)) {
        tables.lingering.push((comm.connection, Instant::now() + LINGER));
    } else {
        // It may have ended.
        let _ = net.mover.close(comm.connection);
    }
    Ok(())
}

/// `closeListen`. Those that have called and were not accepted are closed.
pub(crate) fn close_listener(number: u64) -> Done<()> {
    let net = net_of(number)?;
    let mut tables = net.lock();
    let waiting = tables.listeners.remove(&number).ok_or_else(|| internal("a listener that is not there"))?;
    for connection in waiting {
        tables.links.remove(&connection);
        let _ = net.mover.close(connection);
    }
    Ok(())
}
