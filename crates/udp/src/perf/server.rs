//! The side that is measured against.

use super::{BACK_DEPTH, DIGEST, MEMORY_MAX, Mode, REQUEST, SIZE_MAX};
use crate::error::{Error, Reason};
use crate::node::{Completion, Connection, Node};
use crate::{Region, RemoteRegion};
use ring::digest;
use std::collections::HashMap;
use std::time::Duration;

/// One client, as the server sees it.
struct Client {
    control: Region,
    memory: Option<Region>,
    size: u64,
    mode: Mode,
    back: RemoteRegion,
}

/// What a server tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A client has come, from this address.
    Came(std::net::SocketAddr),
    /// A client has gone, for this reason.
    Gone(Reason),
}

/// Serves clients until `stop` says so, which is asked at least twenty times a second. `tell` hears of clients.
///
/// # Errors
/// If the node cannot wait for its sockets.
pub fn serve(node: &mut Node, stop: impl Fn() -> bool, mut tell: impl FnMut(Served)) -> Result<(), Error> {
    let mut clients: HashMap<Connection, Client> = HashMap::new();
    let mut promised = 0;
    while !stop() {
        let Some(completion) = node.wait(Duration::from_millis(50))? else { continue };
        match completion {
            Completion::Accepted { connection, from } => {
                let control = node.register(vec![0; REQUEST]);
                node.recv(connection, control, 0..REQUEST)?;
                let back = RemoteRegion { key: 0, bytes: 0 };
                clients.insert(connection, Client { control, memory: None, size: 0, mode: Mode::Bandwidth, back });
                tell(Served::Came(from));
            }
            Completion::Received { connection, .. } => {
                let Some(client) = clients.get_mut(&connection) else { continue };
                let bytes = node.memory(client.control)?;
                let field = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                let (mode, size) = (Mode::numbered(bytes[0]), field(8));
                let back = RemoteRegion { key: field(16), bytes: field(24) };
                let fits = (1..=SIZE_MAX).contains(&size) && promised + size <= MEMORY_MAX;
                let Some(mode) = mode.filter(|_| client.memory.is_none() && fits) else {
                    node.close(connection)?;
                    promised -= leave(node, clients.remove(&connection));
                    tell(Served::Gone(Reason::Violation));
                    continue;
                };
                promised += size;
                let memory = node.register(vec![0; size as usize]);
                client.memory = Some(memory);
                (client.size, client.mode, client.back) = (size, mode, back);
                let remote = node.expose(connection, memory, 0..size as usize)?;
                node.memory_mut(client.control)?[..16].copy_from_slice(&remote.to_bytes());
                node.send(connection, client.control, 0..16)?;
                if mode == Mode::Bidirectional {
                    for _ in 0..BACK_DEPTH {
                        write_back(node, connection, client, None);
                    }
                }
            }
            Completion::Written { connection, immediate, .. } => {
                let Some(client) = clients.get(&connection) else { continue };
                match (client.mode, client.memory) {
                    (Mode::Latency, _) => write_back(node, connection, client, Some(immediate)),
                    (Mode::Verify, Some(memory)) => {
                        let digest = digest::digest(&digest::SHA256, node.memory(memory)?);
                        node.memory_mut(client.control)?.copy_from_slice(digest.as_ref());
                        // A client that does not wait for answers goes without.
                        let _ = node.send(connection, client.control, 0..DIGEST);
                    }
                    _ => {}
                }
            }
            Completion::Sent { connection, .. } => {
                if let Some(client) = clients.get(&connection).filter(|client| client.mode == Mode::Bidirectional) {
                    write_back(node, connection, client, None);
                }
            }
            Completion::Closed { connection, reason } => {
                promised -= leave(node, clients.remove(&connection));
                tell(Served::Gone(reason));
            }
            Completion::Connected { .. } => {}
        }
    }
    Ok(())
}

/// Gives a client's memory back; how much was promised to it.
fn leave(node: &mut Node, client: Option<Client>) -> u64 {
    let Some(client) = client else { return 0 };
    for region in [Some(client.control), client.memory].into_iter().flatten() {
        // Its connection is gone, so nothing uses it.
        let _ = node.deregister(region);
    }
    client.size
}

/// Writes a message into the client's memory; one that asks for more than it has room for goes without.
fn write_back(node: &mut Node, connection: Connection, client: &Client, immediate: Option<u32>) {
    if let Some(memory) = client.memory {
        let _ = node.write(connection, memory, 0..client.size as usize, client.back, 0, immediate);
    }
}
