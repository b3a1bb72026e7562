//! `strandway perf` between nodes of Ultra Ethernet Transport: `--layout uet`.

use super::perf::{Clients, failure, json, last_line, line};
use super::wire;
use crate::Failure;
use crate::args::{PerfClientArgs, PerfServerArgs};
use crate::outputs::{Outputs, print};
use crate::progress;
use std::net::SocketAddrV6;
use strandway_perf::uet::{run, serve};
use strandway_perf::{Options, PerfError, Stretch};
use strandway_udp::uet::Node;
use strandway_udp::{Config, Error, address};

/// Numbers of errors of Linux.
const EMSGSIZE: i32 = 90;
const EAFNOSUPPORT: i32 = 97;

/// A flag that this layout has no use for is refused.
fn refuse(is_set: bool, flag: &str, why: &str) -> Result<(), Failure> {
    if is_set { Err(Failure::Usage(format!("{flag}: layout uet has {why}"))) } else { Ok(()) }
}

pub(super) fn server(args: &PerfServerArgs, config: Config) -> Result<(), Failure> {
    refuse(args.common.threads != 1, &format!("--threads {}", args.common.threads), "one thread: leave it out")?;
    refuse(args.beside, "--beside", "no TCP beside it: take another layout")?;
    let mut nodes = Vec::new();
    for config in wire::with_both_loopbacks(&args.common.wire, config) {
        nodes.push(Node::configured(&config)?);
    }
    let addresses = nodes.iter().map(Node::address).collect::<Result<Vec<_>, _>>().map_err(Error::Wait)?;
    let protection = args.common.wire.protection.name();
    print(&format!("listening on {}, layout uet, {protection}; Ctrl-C ends\n", wire::shown(addresses)));
    let clients = Clients::default();
    let stop = || progress::interrupted() || (args.once && clients.are_gone());
    wire::on_each(nodes, |mut node| serve(&mut node, None, stop, |served| clients.handle(served)).map_err(failure))
}

/// An error of the socket, in words.
fn of_socket(error: PerfError) -> Failure {
    let PerfError::Call(Error::Wait(ref cause)) = error else { return failure(error) };
    match cause.raw_os_error() {
        Some(EMSGSIZE) => {
            Failure::Run("packets are larger than the MTU of the interface: lower --payload, or take --mtu".into())
        }
        Some(EAFNOSUPPORT) => Failure::Run(
            "the plane and the server have addresses of different families: name both in IPv4 or both in IPv6".into(),
        ),
        _ => failure(error),
    }
}

pub(super) fn client(
    args: &PerfClientArgs,
    config: &Config,
    server: &[SocketAddrV6],
    options: &Options,
    head: &str,
    mut outputs: Outputs,
) -> Result<(), Failure> {
    let [server] = server else {
        return Err(Failure::Usage(format!("{} servers: layout uet has one plane: name one address", server.len())));
    };
    refuse(args.common.threads != 1, &format!("--threads {}", args.common.threads), "one thread: leave it out")?;
    refuse(!args.beside.is_empty(), "--beside", "no TCP beside it: take another layout")?;
    refuse(args.all, "--all", "no run of all sizes: take --size")?;
    let mut node = Node::configured(config)?;
    outputs.show(head);
    let mut seconds = Vec::new();
    let whole = run(&mut node, address::shown(*server), options, progress::interrupted, |second| {
        outputs.show(&line(second));
        // A limit on the kept lines: one day of seconds.
        if seconds.len() < 86_400 {
            seconds.push(second.clone());
        }
    });
    let whole = Stretch { payload: config.payload, ..whole.map_err(of_socket)? };
    outputs.show(&last_line(&whole));
    outputs.json(|| json(args, config.profile.name.clone(), &whole, &seconds))
}
