//! Casts datagrams to every multicast group and reports how many copies arrived.

use super::silence;
use crate::command::LinuxError;
use crate::fabric::Team;
use crate::namespace::{move_into, netns};
use crate::state::State;
use crate::{LinuxFabric, Node};
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{set_ipv6_multicast_hops, set_ipv6_multicast_if};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};
use strandway_fabric::multicast::GroupAddress;

/// More hops than any tree has, since routers count hops down.
const HOPS: u32 = 8;

/// The result of the datagrams cast along one tree of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// The team.
    pub team: u16,
    /// The plane.
    pub plane: u8,
    /// The tree, by its number among those of the plane.
    pub tree: u16,
    /// Datagrams that members tried to cast.
    pub casts: u32,
    /// Those that a host's own port refused.
    pub refused: u32,
    /// Expected copies: one for each other member.
    pub wanted: u32,
    /// Copies that members received.
    pub arrived: u32,
}

/// Every member of every team casts `rounds` datagrams along every tree of every plane.
///
/// # Errors
/// If the fabric is not up or its namespaces cannot be entered.
pub fn probe_copies(name: &str, rounds: u32) -> Result<Vec<Copied>, LinuxError> {
    let state = State::standing(name)?;
    let (fabric, teams) = (&state.fabric, state.all_teams());
    let mut copied: BTreeMap<(u16, u8, u16), Copied> = BTreeMap::new();
    let groups = |team: &Team| -> Vec<GroupAddress> {
        let (planes, number) = (0..fabric.planes, team.number);
        planes
            .flat_map(|plane| (0..fabric.trees()).map(move |tree| GroupAddress { plane, tree, team: number }))
            .collect()
    };
    let mut hosts: Vec<Listener> = Vec::new();
    for host in 0..fabric.hosts {
        let port = hosts.first().map_or(0, |first| first.port);
        let joined = teams.iter().filter(|team| team.hosts.contains(&host)).flat_map(groups).collect();
        let listener = Listener::open(fabric, host, port, joined);
        hosts.push(listener.map_err(|e| LinuxError(format!("h{host} has no socket: {e}; run it as root")))?);
    }
    let (mut wanted, mut arrived) = (0, 0);
    for _ in 0..rounds {
        for team in &teams {
            for &from in &team.hosts {
                for group in groups(team) {
                    let GroupAddress { plane, tree, team: number } = group;
                    let others = team.hosts.len() as u32 - 1;
                    let fresh = Copied { team: number, plane, tree, casts: 0, refused: 0, wanted: 0, arrived: 0 };
                    let way = copied.entry((number, plane, tree)).or_insert(fresh);
                    (way.casts, way.wanted) = (way.casts + 1, way.wanted + others);
                    match hosts[usize::from(from)].cast(group) {
                        Ok(()) => wanted += others,
                        Err(_) => way.refused += 1,
                    }
                }
                // Read before buffers are full.
                arrived += hosts.iter().map(|host| host.count(&mut copied)).sum::<u32>();
            }
        }
    }
    let (silence, mut last) = (silence(fabric), Instant::now());
    let mut late = false;
    while arrived < wanted && !late {
        std::thread::sleep(Duration::from_millis(1));
        // The clock is read first: copies that came while this thread could not run are read in any case.
        late = last.elapsed() >= silence;
        let more: u32 = hosts.iter().map(|host| host.count(&mut copied)).sum();
        if more > 0 {
            (arrived, last, late) = (arrived + more, Instant::now(), false);
        }
    }
    Ok(copied.into_values().collect())
}

/// A host that receives from its groups and casts to them.
struct Listener {
    hears: UdpSocket,
    /// A socket for each plane, bound to the own address in it.
    casts: Vec<UdpSocket>,
    host: u16,
    /// The UDP port of the groups.
    port: u16,
    /// The interface numbers of its ports, plane by plane.
    devices: Vec<u32>,
}

impl Listener {
    /// A host that listens to these groups at a port; 0 for any free port.
    fn open(fabric: &LinuxFabric, host: u16, port: u16, groups: Vec<GroupAddress>) -> io::Result<Listener> {
        let space = netns(&fabric.namespace(Node::Host(host)));
        let own: Vec<Ipv6Addr> = (0..fabric.planes).map(|p| fabric.clos().host(p, u32::from(host))).collect();
        let names: Vec<String> = fabric.ports(Node::Host(host)).into_iter().map(|port| port.name).collect();
        // A thread that enters a namespace stays there; a socket stays in the namespace in which it was made.
        let opened = std::thread::spawn(move || -> io::Result<Listener> {
            move_into(&space)?;
            let hears = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port))?;
            let casts = own.iter().map(|own| UdpSocket::bind((*own, 0))).collect::<Result<Vec<_>, _>>()?;
            let devices = names.iter().map(|name| name_to_index(&hears, name)).collect::<Result<Vec<u32>, _>>()?;
            for group in groups {
                hears.join_multicast_v6(&group.address(), devices[usize::from(group.plane)])?;
            }
            hears.set_nonblocking(true)?;
            for casts in &casts {
                casts.set_multicast_loop_v6(false)?;
                set_ipv6_multicast_hops(casts, HOPS)?;
            }
            let port = hears.local_addr()?.port();
            Ok(Listener { hears, casts, host, port, devices })
        });
        opened.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))
    }

    fn cast(&self, group: GroupAddress) -> io::Result<()> {
        let casts = &self.casts[usize::from(group.plane)];
        set_ipv6_multicast_if(casts, self.devices[usize::from(group.plane)])?;
        let text = format!("{} {} {} {}", group.team, group.plane, group.tree, self.host);
        casts.send_to(text.as_bytes(), SocketAddrV6::new(group.address(), self.port, 0, 0)).map(drop)
    }

    /// Reads and counts the copies that have come; returns their number.
    fn count(&self, copied: &mut BTreeMap<(u16, u8, u16), Copied>) -> u32 {
        let (mut buffer, mut count) = ([0; 64], 0);
        while let Ok((length, _)) = self.hears.recv_from(&mut buffer) {
            if let Some(way) = read(&buffer[..length]).and_then(|way| copied.get_mut(&way)) {
                way.arrived += 1;
                count += 1;
            }
        }
        count
    }
}

/// Team, plane and tree that a datagram was cast to.
fn read(text: &[u8]) -> Option<(u16, u8, u16)> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}
