//! Measures the delay line on this machine: paced datagrams between two namespaces, with the line in a third one.

use super::{Carried, End, Line, carry};
use crate::command::LinuxError;
use crate::execute::carry_out;
use crate::line::device::pace;
use crate::lines::whole_frames;
use crate::namespace::{move_into, netns};
use crate::step::{Step, Tool};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use strandway_proto::{Bytes, Rate};

/// The time for the kernels' own messages before counting begins.
const QUIET: Duration = Duration::from_millis(300);

/// Bytes of the IPv6 and UDP headers.
const HEADERS: usize = 48;

/// The result of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Benched {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that arrived at the other host.
    pub arrived: u64,
    /// Bits per second that were sent, headers of IPv6 and UDP included.
    pub rate: f64,
    /// The line's counters of the direction of the datagrams.
    pub carried: Carried,
    /// Datagrams that arrived before the line's latency had passed; there should be none.
    pub early: u64,
    /// Datagrams that arrived after one that was sent later.
    pub overtaken: u64,
    /// The delay of datagrams beyond the line's latency, in nanoseconds: median, 99th percentile, longest.
    pub beyond_ns: [u64; 3],
}

/// Three namespaces in a row: two hosts, and the one of the line between them. They are removed when this is dropped.
struct Row([String; 3]);

impl Drop for Row {
    fn drop(&mut self) {
        for space in &self.0 {
            let lines = vec![format!("netns del {space}")];
            let _ = carry_out(&Step { namespace: None, tool: Tool::Ip, lines });
        }
    }
}

/// Sends datagrams that fill packets of `mtu` bytes at `rate` over a line for `length`, and counts the arriving ones.
///
/// # Errors
/// If namespaces cannot be made, or a tool is missing; with the remedy.
pub fn bench(line: &Line, rate: Rate, mtu: usize, length: Duration) -> Result<Benched, LinuxError> {
    let name = format!("strandway-bench-{}", std::process::id());
    let row = Row(["a", "line", "b"].map(|part| format!("{name}-{part}")));
    build(&row, mtu)?;
    // Kernels send a few packets when devices come up; wait until they are over.
    std::thread::sleep(QUIET);
    let end = |device: &str| End { namespace: Some(netns(&row.0[1])), device: device.to_string() };
    let carrying = carry(&[(line.clone(), [end("x"), end("y")])])?;

    let socket = |space: &str, address: &str| -> Result<UdpSocket, LinuxError> {
        let (file, address) = (netns(space), format!("[{address}]:4791"));
        let opened = std::thread::spawn(move || {
            move_into(&file)?;
            UdpSocket::bind(address)
        });
        let opened = opened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        opened.map_err(|e| LinuxError(format!("{space}: no socket: {e}")))
    };
    let (from, to) = (socket(&row.0[0], "fd00::1")?, socket(&row.0[2], "fd00::2")?);
    let fail = |e: std::io::Error| LinuxError(format!("bench: {e}"));
    from.connect("[fd00::2]:4791").map_err(fail)?;
    super::device::widen(&to).map_err(fail)?;
    to.set_read_timeout(Some(Duration::from_millis(500))).map_err(fail)?;
    let began = Instant::now();
    let payload = mtu - HEADERS;
    let latency = Duration::from_nanos(line.latency_ns);
    let (sent, took, mut delays, overtaken) = std::thread::scope(|scope| -> Result<_, LinuxError> {
        let receiver = scope.spawn(move || {
            let (mut room, mut delays, mut newest, mut overtaken) = (vec![0; 1 << 16], Vec::new(), 0, 0u64);
            loop {
                match to.recv(&mut room) {
                    Ok(length) if length >= 8 => {
                        let at = u64::from_le_bytes(room[..8].try_into().expect("eight bytes"));
                        overtaken += u64::from(at < newest);
                        newest = newest.max(at);
                        delays.push((began.elapsed().as_nanos() as u64).saturating_sub(at));
                    }
                    Ok(_) => {}
                    Err(_) if began.elapsed() > length + latency => return (delays, overtaken),
                    Err(_) => {}
                }
            }
        });
        let (mut datagram, mut sent) = (vec![0u8; payload], 0u64);
        let each = Duration::from_nanos(rate.time_for(Bytes(mtu as u64)).0 / 1000);
        while began.elapsed() < length {
            let wanted = (began.elapsed().as_nanos() / each.as_nanos().max(1)) as u64;
            if sent >= wanted {
                pace(each);
                continue;
            }
            datagram[..8].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_le_bytes());
            from.send(&datagram).map_err(|e| LinuxError(format!("bench: {e}")))?;
            sent += 1;
        }
        let took = began.elapsed();
        let (delays, overtaken) = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((sent, took, delays, overtaken))
    })?;
    std::thread::sleep(Duration::from_millis(200));
    let carried = carrying.carried()[0][0];
    delays.sort_unstable();
    let at = |share: f64| {
        let index = ((delays.len() as f64 * share) as usize).min(delays.len().saturating_sub(1));
        delays.get(index).map_or(0, |delay| delay.saturating_sub(line.latency_ns))
    };
    let early = delays.iter().filter(|delay| **delay < line.latency_ns).count() as u64;
    let beyond_ns = [at(0.5), at(0.99), at(1.0)];
    let rate = sent as f64 * mtu as f64 * 8.0 / took.as_secs_f64();
    Ok(Benched { sent, arrived: delays.len() as u64, rate, carried, early, overtaken, beyond_ns })
}

fn build(row: &Row, mtu: usize) -> Result<(), LinuxError> {
    let [a, line, b] = &row.0;
    let here = |lines| Step { namespace: None, tool: Tool::Ip, lines };
    carry_out(&here(row.0.iter().map(|space| format!("netns add {space}")).collect()))?;
    for space in &row.0 {
        // No automatic addresses, no router solicitations, and multicast reports only once a day after the first one.
        let keys = [
            "addr_gen_mode 1",
            "mldv1_unsolicited_report_interval 86400000",
            "mldv2_unsolicited_report_interval 86400000",
        ];
        let lines = keys.map(|key| format!("net/ipv6/conf/default/{key}")).to_vec();
        carry_out(&Step { namespace: Some(space.clone()), tool: Tool::Sysctl, lines })?;
    }
    let cable = |host: &str, address: &str, end: &str| {
        format!("link add p0 mtu {mtu} address {address} netns {host} type veth peer name {end} mtu {mtu} netns {line}")
    };
    carry_out(&here(vec![cable(a, "02:00:00:00:00:01", "x"), cable(b, "02:00:00:00:00:02", "y")]))?;
    for (space, own, peer, mac) in [(a, "fd00::1", "fd00::2", 2), (b, "fd00::2", "fd00::1", 1)] {
        let lines = vec![
            // No multicast reports, so that only datagrams cross.
            "link set p0 multicast off".to_string(),
            "link set p0 up".to_string(),
            format!("addr add {own}/64 dev p0 nodad"),
            format!("neigh replace {peer} lladdr 02:00:00:00:00:0{mac} dev p0 nud permanent"),
        ];
        carry_out(&Step { namespace: Some(space.clone()), tool: Tool::Ip, lines })?;
        carry_out(&whole_frames(space, &["p0"]))?;
    }
    let lines = ["x", "y"].map(|end| format!("link set {end} up")).to_vec();
    carry_out(&Step { namespace: Some(line.clone()), tool: Tool::Ip, lines })
}
