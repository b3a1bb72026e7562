//! Carries frames: a thread per direction, which sleeps until a frame comes or one is due.

use super::carrier::{Carrier, Fate};
use super::device::{BATCH, Clock, Device, FramePool};
use super::{Carried, Line};
use crate::command::LinuxError;
use crate::namespace::move_into;
use rustix::process::setpriority_process;
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use strandway_proto::{Span, Time};

/// The most bytes that a direction holds: 2 Gb/s for four seconds.
const HELD_MAX: u64 = 1 << 30;

/// The interval at which a thread checks whether it must end, and publishes its counters.
const LOOK: Span = Span::from_ms(50);

/// The threads' priority, as a `nice` value. Ours: hosts run at 0.
const URGENT: i32 = -15;

/// A frame that leaves later than this after its time counts as tardy.
const TARDY: Span = Span::from_us(100);

/// One end of a line: a device in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The file of the namespace; `None` for that of this process.
    pub namespace: Option<PathBuf>,
    /// The device's name there.
    pub device: String,
}

/// Lines that carry frames. They stop when this is dropped.
#[derive(Debug)]
pub struct Carrying {
    stop: Arc<AtomicBool>,
    ways: Vec<[Arc<Mutex<Carried>>; 2]>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Carrying {
    /// The counters of each line so far, in both directions.
    pub fn carried(&self) -> Vec<[Carried; 2]> {
        let read = |way: &Arc<Mutex<Carried>>| *way.lock().unwrap_or_else(|broken| broken.into_inner());
        self.ways.iter().map(|[there, back]| [read(there), read(back)]).collect()
    }

    /// Checks that no thread has ended.
    ///
    /// # Errors
    /// If one has; with the reason.
    pub fn check(&mut self) -> Result<(), LinuxError> {
        let Some(over) = self.threads.iter().position(JoinHandle::is_finished) else { return Ok(()) };
        let said = match self.threads.swap_remove(over).join() {
            Ok(Err(error)) => error.to_string(),
            _ => "its thread ended".to_string(),
        };
        Err(LinuxError(format!("a long link does not carry frames any more: {said}")))
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Carries frames between the ends of each line until the result is dropped.
///
/// # Errors
/// If a namespace cannot be entered or a device cannot be opened.
pub fn carry(lines: &[(Line, [End; 2])]) -> Result<Carrying, LinuxError> {
    let clock = Clock::new();
    let mut carrying = Carrying { stop: Arc::default(), ways: Vec::new(), threads: Vec::new() };
    for (number, (line, ends)) in lines.iter().enumerate() {
        let open = |end: &End| {
            let end = end.clone();
            let said = format!("{}: device {}", line.name, end.device);
            // A thread of its own, since a thread that has moved into a namespace stays there.
            let device = std::thread::spawn(move || -> std::io::Result<(Device, u64)> {
                end.namespace.as_ref().map_or(Ok(()), |space| move_into(space))?;
                Ok((Device::open(&end.device)?, seen(&end.device)))
            });
            let device = device.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            device
                .map(|(device, seen)| (Arc::new(device), seen))
                .map_err(|e| LinuxError(format!("{said}: {e}; run it as root")))
        };
        let opened = [open(&ends[0])?, open(&ends[1])?];
        let ways = [(); 2].map(|()| Arc::new(Mutex::new(Carried::default())));
        for way in 0..2 {
            let (from, before) = opened[way].clone();
            let thread = Way {
                from,
                to: Arc::clone(&opened[1 - way].0),
                device: ends[way].clone(),
                before,
                carrier: Carrier::new(line, number as u64, way as u64),
                clock,
                waiting: VecDeque::new(),
                late: VecDeque::new(),
                held: 0,
                spare: Vec::new(),
                carried: Carried::default(),
                quiet: None,
            };
            let (stop, shown) = (Arc::clone(&carrying.stop), Arc::clone(&ways[way]));
            let named = std::thread::Builder::new().name(format!("line {number}.{way}"));
            let spawned = named.spawn(move || thread.carry(&stop, &shown));
            carrying.threads.push(spawned.map_err(|e| LinuxError(format!("no thread for a long link: {e}")))?);
        }
        carrying.ways.push(ways);
    }
    Ok(carrying)
}

/// Frames that a device of this thread's namespace has received so far.
fn seen(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let row = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// A frame on its way.
struct Frame {
    due: Time,
    bytes: Vec<u8>,
}

/// One direction of a line.
struct Way {
    from: Arc<Device>,
    to: Arc<Device>,
    device: End,
    /// Frames that its first device had received before it was opened.
    before: u64,
    carrier: Carrier,
    clock: Clock,
    /// Both queues are in order of time.
    waiting: VecDeque<Frame>,
    late: VecDeque<Frame>,
    /// Bytes of frames on their way.
    held: u64,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    carried: Carried,
    /// Frames taken and delivered when it last published its counters as idle; `None` if it has been busy since.
    quiet: Option<[u64; 2]>,
}

impl Way {
    fn carry(mut self, stop: &AtomicBool, shown: &Mutex<Carried>) -> std::io::Result<()> {
        if let Some(space) = &self.device.namespace {
            move_into(space)?;
        }
        // Frames must not wait: this thread gets a higher priority than those of hosts, if the system allows it. Sleeps
        // end on time, and not up to 50 us later.
        let _ = setpriority_process(None, URGENT);
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut frames = FramePool::new(self.clock);
        let mut told = Time::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let sent = self.deliver(&mut frames)?;
            let from = Arc::clone(&self.from);
            let taken = from.receive(&mut frames, |at, frame| self.take(at, frame))?;
            let now = self.clock.now();
            if now.since(told) >= LOOK {
                told = now;
                self.publish(shown, taken == 0);
            }
            if sent == 0 && taken == 0 {
                let due = [&self.waiting, &self.late].into_iter().filter_map(|q| Some(q.front()?.due)).min();
                self.from.wait(due.map_or(LOOK, |due| due.since(now)).min(LOOK))?;
            }
        }
        self.publish(shown, true);
        Ok(())
    }

    fn take(&mut self, at: Time, frame: &[u8]) {
        self.carried.taken += 1;
        let (due, late) = match self.carrier.take(at, frame.len()) {
            Fate::Due(due) => (due, false),
            Fate::Late(due) => (due, true),
            Fate::Lost => return self.carried.lost += 1,
            Fate::Dropped => return self.carried.dropped += 1,
        };
        if self.held + frame.len() as u64 > HELD_MAX {
            self.carried.failed += 1;
            return;
        }
        self.held += frame.len() as u64;
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let queue = if late { &mut self.late } else { &mut self.waiting };
        queue.push_back(Frame { due, bytes });
    }

    /// Sends frames that are due; returns their number.
    fn deliver(&mut self, frames: &mut FramePool) -> std::io::Result<usize> {
        let now = self.clock.now();
        let mut gone = 0;
        for late in [true, false] {
            let queue = if late { &mut self.late } else { &mut self.waiting };
            let count = queue.iter().take(BATCH).take_while(|frame| frame.due <= now).count();
            if count == 0 {
                continue;
            }
            let sent = match self.to.send(frames, queue.iter().take(count).map(|frame| &frame.bytes[..])) {
                Ok(sent) => sent,
                // The other device has no room: the first frame is lost, the others try again.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    let refused = queue.pop_front().map_or(0, |frame| frame.bytes.len() as u64);
                    self.held -= refused;
                    self.carried.failed += 1;
                    gone += 1;
                    0
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
                Err(error) => return Err(error),
            };
            for frame in queue.drain(..sent) {
                let behind = now.since(frame.due);
                self.carried.tardy += u64::from(behind > TARDY);
                self.carried.tardiest_ns = self.carried.tardiest_ns.max(behind.0 / 1000);
                self.carried.delivered += 1;
                self.carried.delivered_bytes += frame.bytes.len() as u64;
                self.held -= frame.bytes.len() as u64;
                self.spare.push(frame.bytes);
            }
            gone += sent;
        }
        Ok(gone)
    }

    /// Publishes the counters. If the link is `idle`, frames that its device received and this thread did not read
    /// count as failed.
    fn publish(&mut self, shown: &Mutex<Carried>, idle: bool) {
        let moved = [self.carried.taken, self.carried.delivered];
        if idle && self.quiet == Some(moved) {
            // A fabric of many sites has hundreds of idle directions; asking the kernel each time would take a fifth of
            // a core.
            return;
        }
        self.quiet = idle.then_some(moved);
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        self.carried.cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        let mut carried = self.carried;
        if idle {
            let missed = seen(&self.device.device).saturating_sub(self.before).saturating_sub(carried.taken);
            carried.failed += missed;
        } else {
            carried.failed = carried.failed.max(shown.lock().map_or(0, |shown| shown.failed));
        }
        *shown.lock().unwrap_or_else(|broken| broken.into_inner()) = carried;
    }
}
