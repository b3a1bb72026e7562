//! `strandway copy`.

use super::{choice, wire};
use crate::Failure;
use crate::args::{Allow, CopyArgs};
use crate::outputs::{Outputs, Wanted};
use crate::progress::{self, RealBar};
use std::ffi::OsStr;
use std::net::SocketAddrV6;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_files::copy::{
    self, Allowed, CopyError, FileNews, Happened, News, Options, Request, Served, Server, Status, Summary, shown,
};
use strandway_proto::Span;
use strandway_testbed::NodeFile;
use strandway_udp::{Config, Node};

/// The default port of a server: the one after that of `perf`, ours.
const PORT: u16 = 47_931;
/// Limit on the failures that are listed one by one; the JSON summary has all.
const LISTED: usize = 20;
/// A peer may be silent for this long: longer than a host that writes to a slow disk.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);
/// A plane counts as dead after this many silent round trips if another plane is not silent.
const PLANE_TRIPS: u32 = 4;

pub(crate) fn copy(args: &CopyArgs) -> Result<(), Failure> {
    match &args.serve {
        Some(directory) => serve(args, directory),
        None => send(args),
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Failure {
        match error {
            CopyError::Call(error) => error.into(),
            CopyError::Option(said) => Failure::Usage(said),
            other => Failure::Run(other.to_string()),
        }
    }
}

fn config(
    args: &CopyArgs,
    ours: impl FnOnce() -> Result<Vec<SocketAddrV6>, Failure>,
    port: u16,
) -> Result<(Config, Option<NodeFile>), Failure> {
    let (mut config, file) = wire::config(&args.wire, args.profile(), ours, port)?;
    (config.rate, config.base_rtt) = args.path(file.as_ref().map(|file| (file.rate, file.base_rtt)));
    if config.rate.0 < 1_000_000 || !(Span::from_us(1)..=Span::from_ms(10_000)).contains(&config.base_rtt) {
        return Err(Failure::Usage("--rate: take 1 Mb/s or more; --rtt: take 1 us to 10 s".into()));
    }
    let trips = Duration::from_nanos(config.base_rtt.0 / 1_000) * PLANE_TRIPS;
    config.timeouts.plane = config.timeouts.plane.max(trips);
    (config.timeouts.peer, config.timeouts.handshake) = (PEER_TIMEOUT.max(trips * 4), PEER_TIMEOUT.max(trips * 4));
    Ok((config, file))
}

fn serve(args: &CopyArgs, directory: &Path) -> Result<(), Failure> {
    let outputs = Outputs::open(Wanted { quiet: args.quiet, ..Wanted::default() }, &[])?;
    let allows = |what| args.allow.contains(&what);
    let allowed = Allowed { owner: allows(Allow::Owner), delete: allows(Allow::Delete) };
    let (config, file) = config(args, || Ok(wire::loopback(PORT)), PORT)?;
    let finds = wire::finds_payloads(&args.wire, file.as_ref(), &config);
    let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
    for config in wire::with_both_loopbacks(&args.wire, config) {
        for node in wire::bind(&config, 1, finds)? {
            addresses.extend(node.addresses()?);
            nodes.push((node, Server::open(directory)?.allowing(allowed).direct(args.direct)));
        }
    }
    let at = wire::shown(addresses);
    outputs.show(&format!("serving {} on {at}; Ctrl-C ends\n", shown(directory)));
    let gone = AtomicBool::new(false);
    let stop = || progress::interrupted() || (args.once && gone.load(Ordering::Relaxed));
    wire::on_each(nodes, |(mut node, mut server)| {
        Ok(copy::serve(&mut node, &mut server, stop, |served| match served {
            Served::Came(from) => outputs.show(&format!("a client came from {from}\n")),
            Served::Gone(reason) => {
                gone.store(true, Ordering::Relaxed);
                outputs.show(&format!("a client has gone: {reason}\n"));
            }
            Served::Refused(reason, count) => outputs.show(&wire::refused(reason, count)),
        })?)
    })
}

fn send(args: &CopyArgs) -> Result<(), Failure> {
    let Some((place, sources)) = args.paths.split_last() else {
        return Err(Failure::Usage("name sources and destination: SOURCE... HOST:DIR".into()));
    };
    let sources: Vec<PathBuf> = sources.iter().map(PathBuf::from).collect();
    let (hosts, directory) = parse(place)?;
    let ours = || wire::addresses(&hosts, PORT, &[])?.into_iter().map(wire::local_for).collect();
    let (config, file) = config(args, ours, 0)?;
    let peer = match &file {
        Some(file) => wire::peer(file, &hosts, PORT)?,
        None => wire::addresses(&hosts, PORT, &config.planes)?,
    };
    let wanted = Wanted { json: args.json.as_ref(), quiet: args.quiet, ..Wanted::default() };
    let mut outputs = Outputs::open(wanted, &wire::inputs(&args.wire))?;
    let options = Options {
        limit: args.limit,
        dry_run: args.dry_run,
        preserve: choice::preserve(&args.choice, args.owner),
        delete: args.delete,
        ..Options::for_path(config.rate, config.base_rtt)
    };
    let exclude = choice::exclude(&args.choice)?;
    let profile = config.profile.name.clone();
    let finds = wire::finds_payloads(&args.wire, file.as_ref(), &config);
    let mut node = Node::bind(config)?;
    if finds {
        node.find_payloads()?;
    }
    let bar = RealBar::of_copy(args.quiet);
    let each = |news: News<'_>| match news {
        News::Status(status) => bar.show(status.bytes_done, status.bytes, || line(status)),
        News::File(news) => bar.line(&file_line(news, args.dry_run)),
    };
    let (directory, files) = (&directory[..], args.progress);
    let request = Request { sources: &sources, directory, options: &options, exclude: &exclude, files };
    let summary = copy::copy_request(&mut node, &peer, &request, progress::interrupted, each);
    drop(bar);
    let summary = summary?;
    outputs.show(&summary_line(&summary, args.dry_run));
    if args.delete {
        outputs.show(&removed_line(&summary, args.dry_run));
    }
    outputs.json(|| json(&summary, &profile, args.dry_run))?;
    if summary.failures.is_empty() {
        return Ok(());
    }
    let count = summary.failures.len();
    let mut lines: Vec<String> =
        summary.failures.iter().take(LISTED).map(|(path, why)| format!("{}: {why}", shown(path))).collect();
    if count > LISTED {
        lines.push(format!("{} more failures; --json lists all", count - LISTED));
    }
    lines.push(format!("{count} file(s) were not copied; the others were"));
    Err(Failure::Run(lines.join("\n")))
}

/// `[ADDRESS]:DIR`, `[ADDRESS]:PORT:DIR`, `NAME:DIR`, `NAME:PORT:DIR` (a name, or an IPv4 address), or several hosts
/// separated by commas. Returns the hosts and the directory.
fn parse(place: &OsStr) -> Result<(Vec<String>, Vec<u8>), Failure> {
    let wrong = || {
        let how = "write it as HOST:DIR, such as 10.0.0.2:backup or '[fd00:1::2]:backup'; DIR may be empty, but the colon is needed";
        Failure::Usage(format!("{}: not a destination; {how}", shown(Path::new(place))))
    };
    let mut hosts = Vec::new();
    let mut rest = place.as_bytes();
    loop {
        let end = match rest.first() {
            Some(b'[') => rest.iter().position(|&byte| byte == b']').map(|at| at + 1),
            _ => rest.iter().position(|byte| b",:".contains(byte)),
        };
        let (host, behind) = rest.split_at_checked(end.filter(|&end| end > 0).ok_or_else(wrong)?).ok_or_else(wrong)?;
        let mut host = String::from_utf8(host.to_vec()).map_err(|_| wrong())?;
        rest = behind;
        let digits = rest.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
        if rest.first() == Some(&b':') && digits > 0 && rest.get(digits + 1).is_some_and(|byte| b",:".contains(byte)) {
            let (port, behind) = rest.split_at(digits + 1);
            host.extend(port.iter().map(|&byte| char::from(byte)));
            rest = behind;
        } else if let Some(bare) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            host = bare.to_string();
        }
        hosts.push(host);
        match rest.split_first() {
            Some((b',', behind)) => rest = behind,
            Some((b':', directory)) => {
                let mut directory = directory;
                while let Some(shorter) = directory.strip_suffix(b"/").filter(|shorter| !shorter.is_empty()) {
                    directory = shorter;
                }
                let directory = if directory == b"." { b"" } else { directory };
                return Ok((hosts, directory.to_vec()));
            }
            _ => return Err(wrong()),
        }
    }
}

/// The line next to the progress bar.
fn line(status: &Status) -> String {
    let left = status.left().map_or("?".to_string(), |left| format!("{left:.0}"));
    format!(
        "{} of {}, {} of {} file(s), {:.1} Mb/s, loss {:.2} %, overhead {:.2}, {left} s left",
        bytes(status.bytes_done),
        bytes(status.bytes),
        status.files_done,
        status.files,
        status.rate() * 8.0 / 1e6,
        status.loss() * 100.0,
        status.overhead()
    )
}

/// The line of a file.
fn file_line(news: &FileNews, dry_run: bool) -> String {
    let what = match news.what {
        Happened::Sent => format!("sent, {}", bytes(news.bytes)),
        Happened::Had => format!("was there, {}", bytes(news.bytes)),
        Happened::Linked => "another name of a file".to_string(),
        Happened::Removed if dry_run => "would be removed".to_string(),
        Happened::Removed => "removed".to_string(),
        Happened::Failed(why) => format!("not copied: {why}"),
    };
    format!("{}: {what}", shown(&news.path))
}

fn removed_line(summary: &Summary, dry_run: bool) -> String {
    match (summary.kept, dry_run) {
        (true, _) => "nothing was removed at the server, because files could not be copied\n".to_string(),
        (false, true) => format!("{} file(s), link(s) and directories to remove at the server\n", summary.removed),
        (false, false) => format!("{} file(s), link(s) and directories removed at the server\n", summary.removed),
    }
}

/// A number of bytes with about three digits.
pub(super) fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let step = (1..units.len()).take_while(|&step| count >= 1_000_u64.pow(step as u32)).count();
    let digits = usize::from(step > 0);
    format!("{:.digits$} {}", count as f64 / 1_000_f64.powi(step as i32), units[step])
}

fn summary_line(summary: &Summary, dry_run: bool) -> String {
    let status = &summary.status;
    let had = match summary.had_files {
        0 => String::new(),
        files => format!("; {files} file(s) ({}) were there already", bytes(summary.had_bytes)),
    };
    if dry_run {
        let files = status.files - summary.had_files;
        return format!("{files} file(s) to send, {}{had}\n", bytes(summary.missing_bytes));
    }
    let resumed = match summary.resumed_bytes {
        0 => String::new(),
        count => format!("; {} came from an earlier copy", bytes(count)),
    };
    format!(
        "{} file(s) sent, {} in {:.1} s, {:.1} Mb/s; loss {:.2} %, {:.2} bytes on the wire per byte{had}{resumed}\n",
        summary.files,
        bytes(status.bytes_sent),
        status.seconds,
        status.rate() * 8.0 / 1e6,
        status.loss() * 100.0,
        status.overhead()
    )
}

fn json(summary: &Summary, profile: &str, dry_run: bool) -> String {
    let status = &summary.status;
    let failures =
        summary.failures.iter().map(|(path, why)| serde_json::json!({ "path": shown(path), "why": why.to_string() }));
    let object = serde_json::json!({
        "format": 1,
        "kind": "copy",
        "profile": profile,
        "dry_run": dry_run,
        "seconds": status.seconds,
        "goodput_mbps": status.rate() * 8.0 / 1e6,
        "files": { "all": status.files, "sent": summary.files, "there": summary.had_files },
        "bytes": {
            "all": status.bytes,
            "missing": summary.missing_bytes,
            "sent": status.bytes_sent,
            "there": summary.had_bytes,
            "resumed": summary.resumed_bytes,
        },
        "directories": summary.directories,
        "links": summary.links,
        "removed": summary.removed,
        "loss": status.loss(),
        "again_bytes": status.again_bytes,
        "rebuilt_bytes": status.rebuilt_bytes,
        "wire_bytes": status.wire_bytes,
        "payload": status.payload,
        "overhead": status.overhead(),
        "failures": failures.collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_hosts_and_a_directory() {
        for (place, hosts, directory) in [
            ("[fd00::2]:", vec!["fd00::2"], ""),
            ("[fd00::2]:a/b/", vec!["fd00::2"], "a/b"),
            ("[fd00::2]:.", vec!["fd00::2"], ""),
            ("[fd00::2]:/", vec!["fd00::2"], "/"),
            ("[fd00::2]:5000:a:b", vec!["[fd00::2]:5000"], "a:b"),
            ("[fd00::2]:5000", vec!["fd00::2"], "5000"),
            ("h2:x", vec!["h2"], "x"),
            ("10.0.0.2:x", vec!["10.0.0.2"], "x"),
            ("10.0.0.2:5000:x", vec!["10.0.0.2:5000"], "x"),
            ("10.0.0.2,10.1.0.2:9:", vec!["10.0.0.2", "10.1.0.2:9"], ""),
            ("localhost:5000:x", vec!["localhost:5000"], "x"),
            ("[a::1],[b::1]:9,h:x", vec!["a::1", "[b::1]:9", "h"], "x"),
        ] {
            let (found, path) = parse(OsStr::new(place)).unwrap_or_else(|_| panic!("{place}"));
            assert_eq!((found, path), (hosts.into_iter().map(String::from).collect(), directory.into()), "{place}");
        }
        for place in ["", "file", "[fd00::2]", "[fd00::2", ":x", "a,:x", "/srv/backup"] {
            assert!(parse(OsStr::new(place)).is_err(), "{place}");
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(bytes), ["0 B", "999 B", "1.0 kB", "12.3 MB"]);
    }
}
