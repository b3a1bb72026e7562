//! Nodes on the command line: addresses, keys, profiles, node files.

use crate::Failure;
use crate::args::{Waiting, WireArgs};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::panic::resume_unwind;
use std::path::PathBuf;
use strandway_testbed::NodeFile;
use strandway_udp::{Config, Error, Layout, Node, Reason, Routes, address};

/// The key without --key, which is possible only on loopback. It is public: other processes of this host may connect,
/// too.
pub(super) const LOOPBACK_KEY: &[u8] = b"strandway on loopback, where anyone may look";

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Config(said) => Failure::Usage(said),
            other => Failure::Run(other.to_string()),
        }
    }
}

/// The addresses of hosts, one for each plane: `ADDRESS`, `ADDRESS:PORT` or `[ADDRESS]:PORT` of either family, or a
/// name, with or without a port. A name is looked up in the family of the plane, if `ours` has its address.
pub(super) fn addresses(texts: &[String], port: u16, ours: &[SocketAddrV6]) -> Result<Vec<SocketAddrV6>, Failure> {
    let one = |(i, text): (usize, &String)| address::find(text, port, ours.get(i).map(|ours| *ours.ip()));
    texts.iter().enumerate().map(one).collect::<Result<_, _>>().map_err(|unknown| Failure::Usage(unknown.to_string()))
}

/// Addresses as people write them.
pub(super) fn shown(addresses: impl IntoIterator<Item = SocketAddr>) -> String {
    addresses.into_iter().map(|one| address::shown(one).to_string()).collect::<Vec<_>>().join(" ")
}

/// The plane of a server that was given none: loopback.
pub(super) fn loopback(port: u16) -> Vec<SocketAddrV6> {
    vec![SocketAddrV6::new(address::loopback(), port, 0, 0)]
}

/// Does each connection of a node have the payload that its path takes? It does unless a flag or the node file names
/// one, or the layout has no such connections.
pub(super) fn finds_payloads(args: &WireArgs, file: Option<&NodeFile>, config: &Config) -> bool {
    let named = args.payload.is_some() || args.mtu.is_some() || file.is_some_and(|file| file.payload.is_some());
    !named && config.layout != Layout::Uet
}

/// Opens nodes that share their ports. `finds`: see [`finds_payloads`].
pub(super) fn bind(config: &Config, shards: u16, finds: bool) -> Result<Vec<Node>, Error> {
    let mut nodes = Node::bind_shards(config, shards.into())?;
    if finds {
        nodes.iter_mut().try_for_each(Node::find_payloads)?;
    }
    Ok(nodes)
}

/// The nodes of a server: a node that is at `::1`, because no plane was named, has one at `127.0.0.1` beside it, where
/// the host has both.
pub(super) fn with_both_loopbacks(args: &WireArgs, config: Config) -> Vec<Config> {
    let named = !args.plane.is_empty() || args.node.is_some();
    let four = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let port = config.planes.first().map_or(0, SocketAddrV6::port);
    let has_both = config.planes.iter().all(|plane| *plane.ip() == Ipv6Addr::LOCALHOST)
        && UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).is_ok();
    if named || !has_both {
        return vec![config];
    }
    let other = Config { planes: vec![SocketAddrV6::new(four, port, 0, 0)], ..config.clone() };
    vec![config, other]
}

/// Serves on each node with a thread of its own, until all have ended.
pub(super) fn on_each<N: Send>(nodes: Vec<N>, serve: impl Fn(N) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    let serve = &serve;
    std::thread::scope(|scope| {
        let serving: Vec<_> = nodes.into_iter().map(|node| scope.spawn(move || serve(node))).collect();
        serving.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// The local address from which this host reaches another one.
pub(super) fn local_for(peer: SocketAddrV6) -> Result<SocketAddrV6, Failure> {
    address::local_for(peer).map_err(|error| {
        let ip = address::shown(peer).ip();
        let command = if ip.is_ipv4() { "ip" } else { "ip -6" };
        Failure::Run(format!("no way to {ip}: {error}; see `{command} route get {ip}`"))
    })
}

/// The addresses of a host of the node file's fabric, by name or number.
pub(super) fn peer(file: &NodeFile, names: &[String], port: u16) -> Result<Vec<SocketAddrV6>, Failure> {
    let [name] = names else {
        return Err(Failure::Usage("with --node, name one host, such as h2".into()));
    };
    let number = name.strip_prefix("host").or(name.strip_prefix('h')).unwrap_or(name).parse().ok();
    match number.map(|host| file.peer(host)) {
        Some(Some(addresses)) => Ok(addresses),
        Some(None) if file.srv6.is_none() => addresses(names, port, &file.planes),
        Some(None) => Err(Failure::Usage(match file.hosts {
            Some(hosts) => format!("{name}: there is no such host; the fabric has h0 to h{}", hosts - 1),
            None => format!("{name}: the fabric's address plan has no such host"),
        })),
        None => addresses(names, port, &file.planes),
    }
}

/// The node file of the command line.
pub(super) fn node_file(args: &WireArgs) -> Result<Option<NodeFile>, Failure> {
    Ok(args.node.as_deref().map(NodeFile::load).transpose()?)
}

/// The configuration of a node, and its node file; see [`configure`].
pub(super) fn config(
    args: &WireArgs,
    profile: Option<&str>,
    ours: impl FnOnce() -> Result<Vec<SocketAddrV6>, Failure>,
    port: u16,
) -> Result<(Config, Option<NodeFile>), Failure> {
    let file = node_file(args)?;
    Ok((configure(args, file.as_ref(), profile, ours, port)?, file))
}

/// The configuration of a node: from flags, else from the node file, else defaults. `ours` returns the planes if
/// neither names any.
pub(super) fn configure(
    args: &WireArgs,
    file: Option<&NodeFile>,
    profile: Option<&str>,
    ours: impl FnOnce() -> Result<Vec<SocketAddrV6>, Failure>,
    port: u16,
) -> Result<Config, Failure> {
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|e| Failure::Usage(format!("--key {}: {e}; `head -c 32 /dev/urandom > key`", path.display())))
    };
    let key = args.key.as_ref().map(read).transpose()?;
    let mut config = match file {
        Some(file) => file.config(key.as_deref()).map_err(Failure::Usage)?,
        None => {
            let mut planes = addresses(&args.plane, port, &[])?;
            if planes.is_empty() {
                planes = ours()?;
            }
            let key = match key {
                Some(key) => key,
                None if planes.iter().all(|plane| address::is_loopback(*plane.ip())) => LOOPBACK_KEY.to_vec(),
                None => {
                    let said = "beyond loopback both sides need the same --key FILE: `head -c 32 /dev/urandom > key`, \
                                then copy it";
                    return Err(Failure::Usage(said.into()));
                }
            };
            Config { planes, ..Config::new(&key)? }
        }
    };
    if let Some(name) = profile {
        config = config.profile(name)?;
    }
    if let Some(ports @ 2..) = args.source_ports {
        config.routes = Routes::SourcePorts(ports);
    }
    config.payload = args.payload.unwrap_or(config.payload);
    config.burst = args.burst_kib << 10;
    config.protection = args.protection.into();
    config.layout = args.layout.map_or(config.layout, Into::into);
    if let Some(mtu) = args.mtu {
        config = config.mtu(mtu)?;
    }
    config.waiting = match args.waiting {
        Waiting::Spin => strandway_udp::Waiting::Spin,
        Waiting::Sleep => strandway_udp::Waiting::Sleep,
        Waiting::Adaptive => config.waiting,
    };
    Ok(config)
}

/// The line that a server prints about refused callers.
pub(super) fn refused(reason: Reason, count: u64) -> String {
    let why = match reason {
        Reason::WrongKey => "of a caller with another key",
        Reason::WrongVersion => "of a caller of another version",
        Reason::OtherProfile => "of a caller with another profile",
        Reason::OtherPayload => "of a caller with another payload size",
        Reason::OtherPlanes => "of a caller with another number of planes",
        Reason::OtherProtection => "of a caller that wants other protection",
        _ => "for which there was no connection left",
    };
    let hellos = if count == 1 { "hello" } else { "hellos" };
    format!("refused {count} {hellos} {why}\n")
}

/// The files that a command with a node reads.
pub(super) fn inputs(args: &WireArgs) -> Vec<PathBuf> {
    [&args.node, &args.key].into_iter().flatten().cloned().collect()
}
