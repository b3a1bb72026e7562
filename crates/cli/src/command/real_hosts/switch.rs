//! `strandway switch`.

use super::wire;
use crate::Failure;
use crate::args::{
    ResultsName, SwitchArgs, SwitchCommand, SwitchServerArgs, SwitchStatusArgs, SystemName, UseSwitchArgs,
};
use crate::outputs::print;
use crate::progress;
use std::io::{Read, Write};
use std::net::SocketAddrV6;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandway_aggregator::{
    Esa, JobConfig, ParameterServer, ResultPath, ServerConfig, ServerEvent, Switch, SwitchConfig, SwitchEvent,
    SwitchStatus, System,
};
use strandway_group::aggregation::NetworkOptions;
use strandway_proto::rng::{Random, StreamKind};
use strandway_udp::address;

/// The default first port of a switch; from the dynamic range, ours.
const PORT: u16 = 48_000;
/// Interval at which the loop checks for questions and for its end.
const TURN: Duration = Duration::from_millis(20);

pub(crate) fn switch(args: &SwitchArgs) -> Result<(), Failure> {
    match &args.command {
        Some(SwitchCommand::Status(args)) => return status(args),
        Some(SwitchCommand::Server(args)) => return server(args),
        None => {}
    }
    let lasts = lasts(args.seconds)?;
    let config = config(args)?;
    let jobs: Vec<u16> = config.jobs.iter().map(|job| job.number).collect();
    let (system, slots, at) = (config.system.name(), config.slots, address::shown(config.address).ip());
    let mut switch = Switch::start(config)?;
    let asked = listen(args.socket.as_deref())?;
    print(&format!("{system} with {slots} slots; fragments at {:?} of {at}; Ctrl-C ends\n", switch.ports()));
    for job in jobs {
        print(&format!("job {job}: workers join at {}\n", address::shown(switch.admission(job)?)));
    }
    let began = Instant::now();
    while !progress::interrupted() && lasts.is_none_or(|lasts| began.elapsed() < lasts) {
        for event in switch.turn(TURN)? {
            print(&match event {
                SwitchEvent::Began { job, workers } => format!("job {job}: a session of {workers} workers begins\n"),
                SwitchEvent::Ended { job } => format!("job {job}: the session has ended\n"),
                SwitchEvent::Refused { job, reason } => format!("job {job}: refused a worker: {reason}\n"),
            });
        }
        while let Ok((mut stream, _)) = asked.listener.accept() {
            // The client may have closed the connection.
            let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
            let _ = stream.write_all(json(&switch.status()).as_bytes());
        }
    }
    print(&table(&json(&switch.status()))?);
    Ok(())
}

fn lasts(seconds: Option<f64>) -> Result<Option<Duration>, Failure> {
    match seconds {
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => Ok(Some(Duration::from_secs_f64(seconds.min(1e9)))),
        Some(seconds) => Err(Failure::Usage(format!("--seconds {seconds}: write a time above 0"))),
        None => Ok(None),
    }
}

fn loss(share: f64) -> Result<f64, Failure> {
    if (0.0..1.0).contains(&share) {
        Ok(share)
    } else {
        Err(Failure::Usage(format!("--lose {share}: write a share from 0 to 1")))
    }
}

/// A job's parameter server, in this process.
fn server(args: &SwitchServerArgs) -> Result<(), Failure> {
    let (lasts, loss) = (lasts(args.seconds)?, loss(args.lose)?);
    let (admission, key) = admission(&args.switch, args.job, args.job_key.as_deref())?;
    let any = match address::is_loopback(*admission.ip()) {
        true => *wire::local_for(admission)?.ip(),
        false => address::unspecified(*admission.ip()),
    };
    let listen = args.listen.as_deref().map(self::address).transpose()?;
    let from = SocketAddrV6::new(listen.map_or(any, |listen| *listen.ip()), 0, 0, admission.scope_id());
    let mut server = ParameterServer::start(ServerConfig { loss, ..ServerConfig::new(from, admission, key) })?;
    print(&format!(
        "the parameter server of job {} for the switch at {}; Ctrl-C ends\n",
        args.job,
        address::shown(admission)
    ));
    let began = Instant::now();
    let mut refused = None;
    while !progress::interrupted() && lasts.is_none_or(|lasts| began.elapsed() < lasts) {
        for event in server.turn(TURN)? {
            let said = match event {
                ServerEvent::Began { workers } => format!("serves a session of {workers} workers\n"),
                ServerEvent::Lost => "the switch is gone; tries to reach it again\n".into(),
                ServerEvent::Refused { reason } if refused == Some(reason) => continue,
                ServerEvent::Refused { reason } => {
                    refused = Some(reason);
                    format!("refused: {reason}\n")
                }
            };
            print(&said);
        }
    }
    let counts = server.counts();
    print(&format!(
        "{} sums completed from {} fragments; {} flushes, {} solicits\n",
        counts.server_completed, counts.server_packets, counts.flushes, counts.solicits
    ));
    Ok(())
}

/// The path of the socket for status questions: in the user's runtime directory, or in the system's.
fn socket(given: Option<&Path>) -> PathBuf {
    let usual = || std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    given.map_or_else(|| usual().join("strandway-switch.sock"), Path::to_path_buf)
}

/// A socket for status questions; it is removed with the process.
struct Asked {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn listen(given: Option<&Path>) -> Result<Asked, Failure> {
    let path = socket(given);
    let failed = |error| Failure::Run(format!("--socket {}: {error}; name another path", path.display()));
    if UnixStream::connect(&path).is_ok() {
        return Err(Failure::Usage(format!("--socket {}: another switch answers there", path.display())));
    }
    // Remove the socket file of a switch that was killed.
    if std::fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(&path).map_err(failed)?;
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Asked { listener, path })
}

fn config(args: &SwitchArgs) -> Result<SwitchConfig, Failure> {
    let listen = args.listen.as_deref().map(self::address).transpose()?;
    let address = listen.unwrap_or_else(|| SocketAddrV6::new(address::loopback(), PORT, 0, 0));
    let system = match args.system {
        SystemName::Esa => System::Esa(Esa {
            results: match args.results {
                ResultsName::Direct => ResultPath::Direct,
                ResultsName::ViaPs => ResultPath::ViaServer,
                ResultsName::ViaPsFree => ResultPath::ViaServerFree,
            },
            ..Esa::default()
        }),
        SystemName::Atp => System::Atp,
        SystemName::Switchml => System::SwitchMl { strict_order: true },
    };
    let share = args.share.unwrap_or(SwitchConfig::usual_share(args.job.len()));
    let mut jobs = args.job.iter().map(|text| job(text, share)).collect::<Result<Vec<_>, _>>()?;
    if jobs.is_empty() {
        if !address::is_loopback(*address.ip()) {
            let said =
                "except on loopback, each job needs a key: --job 1=KEYFILE (`head -c 32 /dev/urandom > KEYFILE`)";
            return Err(Failure::Usage(said.into()));
        }
        jobs.push(JobConfig { number: 1, key: wire::LOOPBACK_KEY.to_vec(), share });
    }
    let parent = args.parent.as_deref().map(self::address).transpose()?;
    let (loss, server_apart) = (loss(args.lose)?, args.server_apart);
    let (slots, elements, ports, racks, rtt) = (args.slots, args.lanes, args.ports, args.racks, args.rtt);
    let usual = SwitchConfig::new(address, system);
    Ok(SwitchConfig { jobs, slots, elements, ports, racks, parent, server_apart, rtt, loss, ..usual })
}

fn address(text: &str) -> Result<SocketAddrV6, Failure> {
    Ok(wire::addresses(&[text.to_string()], PORT, &[])?[0])
}

fn job(text: &str, share: f64) -> Result<JobConfig, Failure> {
    let wrong = |what: String| Failure::Usage(format!("--job {text}: {what}"));
    let (number, file) = text.split_once('=').ok_or_else(|| wrong("write it as 1=KEYFILE".into()))?;
    let number = number.parse().map_err(|_| wrong("the job's number goes before =, such as 1".into()))?;
    let key = std::fs::read(file).map_err(|error| wrong(format!("{error}; `head -c 32 /dev/urandom > {file}`")))?;
    Ok(JobConfig { number, key, share })
}

/// The admission address of a job at a switch, and the job's key.
fn admission(switch: &str, job: u16, key: Option<&Path>) -> Result<(SocketAddrV6, Vec<u8>), Failure> {
    let mut admission = address(switch)?;
    let key = match key {
        Some(file) => {
            std::fs::read(file).map_err(|error| Failure::Usage(format!("--job-key {}: {error}", file.display())))?
        }
        None if address::is_loopback(*admission.ip()) => wire::LOOPBACK_KEY.to_vec(),
        None => {
            let said = "a switch that is not on loopback needs --job-key FILE with the job's key";
            return Err(Failure::Usage(said.into()));
        }
    };
    let port = admission.port().checked_add(job);
    admission.set_port(port.ok_or_else(|| Failure::Usage(format!("--switch {switch}: write a port below 64,000")))?);
    Ok((admission, key))
}

/// The settings of a worker for the switch that the command line names.
pub(super) fn network(args: &UseSwitchArgs) -> Result<NetworkOptions, Failure> {
    let Some(switch) = &args.switch else {
        return Err(Failure::Usage("--algorithm in-network: name the switch, such as --switch 10.0.0.9".into()));
    };
    let (admission, key) = admission(switch, args.job, args.job_key.as_deref())?;
    Ok(NetworkOptions {
        elements: args.lanes,
        window: args.window.unwrap_or(0),
        priority: args.priority,
        exponents: args.exponents,
        loss: loss(args.lose)?,
        patience: args.join_patience,
        ..NetworkOptions::new(admission, key)
    })
}

/// The times that a rank computes before its runs: `--compute`, and up to `--straggle` times as long.
pub(super) fn computing(args: &UseSwitchArgs, rank: u32) -> Result<impl FnMut() -> Duration, Failure> {
    if !(0.0..=1_000.0).contains(&args.straggle) {
        return Err(Failure::Usage(format!("--straggle {}: write a factor from 0 to 1000", args.straggle)));
    }
    let mut random = Random::new(args.job.into(), StreamKind::Workload, rank.into());
    let (time, most) = (Duration::from_nanos(args.compute.0 / 1_000), args.straggle);
    Ok(move || time.mul_f64(1.0 + most * f64::from(random.below(1 << 20)) / f64::from(1 << 20)))
}

fn status(args: &SwitchStatusArgs) -> Result<(), Failure> {
    let path = socket(args.socket.as_deref());
    let failed = |error| Failure::Run(format!("no switch answers at {}: {error}; name its --socket", path.display()));
    let mut stream = UnixStream::connect(&path).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed)?;
    print(&if args.json { text } else { table(&text)? });
    Ok(())
}

fn json(status: &SwitchStatus) -> String {
    let jobs = status.jobs.iter().map(|job| {
        let (mut slots, mut server_keys) = (0, 0);
        let mut counts = strandway_proto::aggregate::Counts::default();
        for (held, registers, more) in status.ports.iter().filter_map(|port| port.jobs.get(&job.number)) {
            slots += held;
            server_keys += registers;
            counts += *more;
        }
        serde_json::json!({
            "job": job.number,
            "workers": job.workers,
            "racks": job.racks,
            "server": job.server,
            "joined": job.joined,
            "sessions": job.sessions,
            "refused_workers": job.refused,
            "slots": slots,
            "slots_max": job.slots_max,
            "server_sums": server_keys,
            "completed": counts.completed,
            "merged": counts.merged,
            "preemptions": counts.preemptions,
            "evicted": counts.evicted,
            "refused": counts.refused,
            "duplicates": counts.duplicates,
            "odd": counts.odd,
            "server_packets": counts.server_packets,
            "server_completed": counts.server_completed,
            "flushes": counts.flushes,
            "solicits": counts.solicits,
        })
    });
    let ports = status.ports.iter().map(|port| {
        serde_json::json!({
            "port": port.port,
            "received": port.received,
            "sent": port.sent,
            "lane_bytes": port.element_bytes,
            "strangers": port.strangers,
            "refused": port.refused,
            "odd": port.odd,
            "dropped": port.dropped,
        })
    });
    let object = serde_json::json!({
        "format": 1,
        "kind": "switch",
        "system": status.system,
        "slots": status.slots,
        "jobs": jobs.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
    });
    format!("{object}\n")
}

fn table(text: &str) -> Result<String, Failure> {
    let status: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| Failure::Run(format!("the switch's answer cannot be read: {error}")))?;
    let number = |of: &serde_json::Value, key: &str| of[key].as_u64().unwrap_or(0).to_string();
    let rows = |key: &str| status[key].as_array().cloned().unwrap_or_default();
    let mut out = format!(
        "{}, {} slots\n{:>5} {:>8} {:>13} {:>10} {:>10} {:>9} {:>9} {:>10} {:>9}\n",
        status["system"].as_str().unwrap_or("?"),
        number(&status, "slots"),
        "job",
        "workers",
        "slots in use",
        "sums",
        "merged",
        "evicted",
        "refused",
        "to server",
        "by server"
    );
    for job in rows("jobs") {
        out += &format!(
            "{:>5} {:>8} {:>13} {:>10} {:>10} {:>9} {:>9} {:>10} {:>9}\n",
            number(&job, "job"),
            format!("{}/{}", number(&job, "joined"), number(&job, "workers")),
            format!("{}/{}", number(&job, "slots"), number(&job, "slots_max")),
            number(&job, "completed"),
            number(&job, "merged"),
            number(&job, "evicted"),
            number(&job, "refused"),
            number(&job, "server_packets"),
            number(&job, "server_completed"),
        );
    }
    for port in rows("ports") {
        out += &format!(
            "port {}: {} datagrams in, {} out, {} of strangers, {} refused, {} odd, {} dropped\n",
            number(&port, "port"),
            number(&port, "received"),
            number(&port, "sent"),
            number(&port, "strangers"),
            number(&port, "refused"),
            number(&port, "odd"),
            number(&port, "dropped"),
        );
    }
    Ok(out)
}
