//! The security sublayer of Ultra Ethernet Transport: keys of a domain, and sealed datagrams over native IP and UDP.
//!
//! Keys are derived by the counter mode of NIST SP 800-108 with AES-256-CMAC, and datagrams are sealed with
//! AES-256-GCM, as the UEC reference provider does both; its vectors are the tests. No source has a sealed datagram over
//! UDP; ours is that of native IP without what UDP replaces.
//!
//! ```text
//! over IP    entropy header 4 | security header 12 or 16 | PDS, SES, payload: encrypted | tag 16
//! over UDP                      security header 16       | PDS, SES, payload: encrypted | tag 16
//! ```
//!
//! Over IP the tag also covers the addresses of the IP header. Over UDP it does not, since a node that is bound to all
//! addresses of a host does not know its own; the source identifier stands for the sender. A [`Sealer`] gives every datagram a new counter. An opened
//! datagram is genuine, but may be a repetition: sequence numbers of its delivery context must refuse that.

use crate::cipher::{Key, TAG, check, cmac};
use crate::error::Error;
use strandway_wire::WireError;
use strandway_wire::uet::{Addresses, ENTROPY, SecurityHeader, entropy_header, read_entropy};

/// Counters are below this.
const COUNTERS: u64 = 1 << 48;
/// Bits of a derived key and its mask, as the derivation's input has them.
const DERIVED_BITS: u16 = 352;

/// Where the keys of a domain come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The domain's key is that of every packet, without a mask.
    Direct,
    /// Every sender has keys derived from its address or its number.
    Cluster,
    /// The keys are derived from the client's address, and the sender is the client.
    Client,
    /// The keys are derived from the client's address, and the receiver is the client.
    Server,
}

/// Which bits of the counter choose a key: `(counter & mask) >> shift`. The default gives one key to an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rekey {
    /// Bits of the counter.
    pub mask: u64,
    /// Bits below them.
    pub shift: u32,
}

/// A secure domain.
#[derive(Clone)]
pub struct Domain {
    /// Its number (SDI), 24 bits.
    pub number: u32,
    /// Its key (SDK).
    pub key: [u8; 32],
    /// Where the keys of packets come from.
    pub mode: Mode,
    /// Which bits of the counter choose a key in [`Mode::Cluster`].
    pub rekey: Rekey,
}

/// Why a datagram cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its headers before the sealed part are no headers, or a number does not fit.
    Wire(WireError),
    /// It is of another domain, or of the other one of two keys.
    OtherDomain,
    /// A source identifier where keys are those of an address.
    Identifier,
    /// Its tag is wrong.
    Forged,
    /// All counters of the epoch were used.
    Exhausted,
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::Wire(error) => write!(f, "{error}"),
            Refusal::OtherDomain => f.write_str("a datagram of another secure domain"),
            Refusal::Identifier => f.write_str("a source identifier where keys are those of an address"),
            Refusal::Forged => f.write_str("a wrong tag"),
            Refusal::Exhausted => f.write_str("all counters of the epoch were used"),
        }
    }
}

impl core::error::Error for Refusal {}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Refusal {
        Refusal::Wire(error)
    }
}

/// The owner of the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The domain's.
    Domain,
    /// IPv4 address or source identifier.
    Short([u8; 4]),
    /// IPv6 address.
    Long([u8; 16]),
}

/// The inputs of a derived key besides the domain's.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Context {
    owner: Owner,
    epoch: u16,
    rekey: u32,
}

/// A key and the mask of its nonces.
struct Material {
    key: Key,
    mask: [u8; 12],
}

impl Domain {
    /// The context of the key of a datagram.
    fn context(&self, addresses: &Addresses, header: &SecurityHeader) -> Result<Context, Refusal> {
        let of_source = !matches!(self.mode, Mode::Server);
        let owner = match (self.mode, header.source, addresses) {
            (Mode::Direct, ..) => return Ok(Context { owner: Owner::Domain, epoch: 0, rekey: 0 }),
            (Mode::Client | Mode::Server, Some(_), _) => return Err(Refusal::Identifier),
            (Mode::Cluster, Some(identifier), _) => Owner::Short(identifier.to_be_bytes()),
            (.., Addresses::V4(source, destination)) => Owner::Short(if of_source { *source } else { *destination }),
            (.., Addresses::V6(source, destination)) => Owner::Long(if of_source { *source } else { *destination }),
        };
        let Rekey { mask, shift } = self.rekey;
        let rekey = if self.mode == Mode::Cluster { (header.counter & mask) >> shift } else { 0 };
        Ok(Context { owner, epoch: header.epoch, rekey: rekey as u32 })
    }

    fn material(&self, context: &Context) -> Material {
        let label = if self.mode == Mode::Cluster { b"U1" } else { b"U2" };
        let Some(derived) = derive(&self.key, label, context) else {
            return Material { key: Key::wide(&self.key), mask: [0; 12] };
        };
        let (key, mask) = derived.split_at(32);
        let key = Key::wide(key.first_chunk().expect("32 bytes"));
        Material { key, mask: *mask.first_chunk().expect("12 bytes") }
    }
}

/// Key and mask of a context: the counter mode of SP 800-108, with a counter of one byte before the fixed input. `None`
/// if the key is the domain's own.
fn derive(key: &[u8; 32], label: &[u8; 2], context: &Context) -> Option<[u8; 44]> {
    let (zeros, owner): (&[u8], &[u8]) = match &context.owner {
        Owner::Domain => return None,
        Owner::Short(owner) => (&[], owner),
        Owner::Long(owner) => (&[0; 4], owner),
    };
    let (epoch, rekey, bits) = (context.epoch.to_be_bytes(), context.rekey.to_be_bytes(), DERIVED_BITS.to_be_bytes());
    let mut derived = [0; 44];
    for (block, number) in derived.chunks_mut(16).zip(1u8..) {
        let parts: [&[u8]; 8] = [&[number], label, &[0], zeros, &epoch, &rekey, owner, &bits];
        block.copy_from_slice(&cmac(key, &parts)[..block.len()]);
    }
    Some(derived)
}

/// The source and the time stamp counter, masked.
fn nonce(mask: &[u8; 12], addresses: &Addresses, header: &SecurityHeader) -> [u8; 12] {
    let source = match (header.source, addresses) {
        (Some(identifier), _) => identifier.to_be_bytes(),
        (None, Addresses::V4(source, _)) => *source,
        (None, Addresses::V6(..)) => header.domain.to_be_bytes(),
    };
    let mut nonce = *mask;
    for (byte, other) in nonce.iter_mut().zip(source.into_iter().chain(header.time_stamp().to_be_bytes())) {
        *byte ^= other;
    }
    nonce
}

/// The bytes in clear text that the tag covers: the addresses, then the headers before the sealed part.
fn signed(addresses: &Addresses, headers: &[u8]) -> Vec<u8> {
    match addresses {
        Addresses::V4(source, destination) => [source, destination, headers].concat(),
        Addresses::V6(source, destination) => [source, destination, headers].concat(),
    }
}

/// The material of the last context; most datagrams have the one before.
struct Cached(Option<(Context, Material)>);

impl Cached {
    fn of(&mut self, domain: &Domain, context: &Context) -> &Material {
        if self.0.as_ref().is_none_or(|(of, _)| of != context) {
            self.0 = Some((*context, domain.material(context)));
        }
        &self.0.as_ref().expect("derived above").1
    }
}

/// Seals datagrams of one sender in a domain.
pub struct Sealer {
    domain: Domain,
    /// That of the next datagram.
    header: SecurityHeader,
    cached: Cached,
    /// The bytes of a header.
    written: Vec<u8>,
}

impl Sealer {
    /// A sender that begins with counter 0 of an epoch. `identifier`: its number in the domain (SSI), if it has one;
    /// otherwise its address stands for it. A key must never begin an epoch twice.
    ///
    /// # Errors
    /// [`Error::Config`] if this processor has no instructions for AES.
    pub fn new(domain: Domain, identifier: Option<u32>, association: bool, epoch: u16) -> Result<Sealer, Error> {
        check()?;
        let header = SecurityHeader { source: identifier, association, domain: domain.number, epoch, counter: 0 };
        Ok(Sealer { domain, header, cached: Cached(None), written: Vec::new() })
    }

    /// Appends a sealed datagram to `out`, from the entropy header on. `plain` is a datagram as
    /// [`strandway_wire::uet::encode`] writes it.
    ///
    /// # Errors
    /// [`Refusal::Exhausted`] after the last counter, [`Refusal::Identifier`] and [`Refusal::Wire`] for headers that
    /// this domain cannot have; `out` is then as it was.
    pub fn seal(
        &mut self,
        addresses: &Addresses,
        entropy: u16,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        if self.header.counter >= COUNTERS {
            return Err(Refusal::Exhausted);
        }
        let context = self.domain.context(addresses, &self.header)?;
        let mut headers = entropy_header(entropy).to_vec();
        self.header.write(&mut headers)?;
        let material = self.cached.of(&self.domain, &context);
        let nonce = nonce(&material.mask, addresses, &self.header);
        let signed = signed(addresses, &headers);
        out.extend_from_slice(&headers);
        let body = out.len();
        out.extend_from_slice(plain);
        let tag = material.key.seal(&nonce, &signed, &mut out[body..]);
        out.extend_from_slice(&tag);
        self.header.counter += 1;
        Ok(())
    }
}

impl Sealer {
    /// Appends room for the security header of a datagram over UDP; the plain datagram follows it.
    pub(crate) fn begin_over_udp(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.header.bytes(), 0);
    }

    /// Seals the datagram that began at `start` with [`Sealer::begin_over_udp`].
    ///
    /// # Errors
    /// As [`Sealer::seal`]; [`Refusal::Identifier`] also without a source identifier.
    pub(crate) fn end_over_udp(&mut self, out: &mut Vec<u8>, start: usize) -> Result<(), Refusal> {
        if self.header.counter >= COUNTERS {
            return Err(Refusal::Exhausted);
        }
        let context = over_udp(&self.domain, &self.header)?;
        self.written.clear();
        self.header.write(&mut self.written)?;
        let material = self.cached.of(&self.domain, &context);
        let nonce = nonce(&material.mask, &NO_ADDRESSES, &self.header);
        let (head, body) = out[start..].split_at_mut(self.written.len());
        head.copy_from_slice(&self.written);
        let tag = material.key.seal(&nonce, head, body);
        out.extend_from_slice(&tag);
        self.header.counter += 1;
        Ok(())
    }
}

/// The addresses that a datagram over UDP has for keys and nonces: none.
const NO_ADDRESSES: Addresses = Addresses::V4([0; 4], [0; 4]);

/// The context of the key of a datagram over UDP, which needs a source identifier.
fn over_udp(domain: &Domain, header: &SecurityHeader) -> Result<Context, Refusal> {
    if header.source.is_none() {
        return Err(Refusal::Identifier);
    }
    domain.context(&NO_ADDRESSES, header)
}

/// Opens datagrams of a domain.
pub struct Opener {
    domain: Domain,
    association: bool,
    cached: Cached,
}

impl Opener {
    /// A receiver with the key of a domain.
    ///
    /// # Errors
    /// [`Error::Config`] if this processor has no instructions for AES.
    pub fn new(domain: Domain, association: bool) -> Result<Opener, Error> {
        check()?;
        Ok(Opener { domain, association, cached: Cached(None) })
    }

    /// Opens a datagram in place, from the entropy header on. Returns its entropy, its security header, and the bytes
    /// that [`strandway_wire::uet::decode`] reads.
    ///
    /// # Errors
    /// If it is no datagram of this domain, or its tag is wrong; the bytes of a forged datagram mean nothing any more.
    pub fn open<'a>(
        &mut self,
        addresses: &Addresses,
        datagram: &'a mut [u8],
    ) -> Result<(u16, SecurityHeader, &'a mut [u8]), Refusal> {
        let (entropy, rest) = read_entropy(datagram)?;
        let (header, rest) = SecurityHeader::read(rest)?;
        if (header.domain, header.association) != (self.domain.number, self.association) {
            return Err(Refusal::OtherDomain);
        }
        let length = rest.len().checked_sub(TAG).ok_or(WireError::Short)?;
        let context = self.domain.context(addresses, &header)?;
        let (headers, sealed) = datagram.split_at_mut(ENTROPY + header.bytes());
        let (body, tag) = sealed.split_at_mut(length);
        let material = self.cached.of(&self.domain, &context);
        let nonce = nonce(&material.mask, addresses, &header);
        let opened = material.key.open(&nonce, &signed(addresses, headers), body, tag);
        opened.map_err(|_| Refusal::Forged)?;
        Ok((entropy, header, body))
    }

    /// Opens a datagram over UDP in place. Returns its source identifier, its time stamp, and the bytes that
    /// [`strandway_wire::uet::decode`] reads.
    ///
    /// # Errors
    /// As [`Opener::open`]; [`Refusal::Identifier`] also without a source identifier.
    pub(crate) fn open_over_udp<'a>(&mut self, datagram: &'a mut [u8]) -> Result<(u32, u64, &'a mut [u8]), Refusal> {
        let (header, rest) = SecurityHeader::read(datagram)?;
        if (header.domain, header.association) != (self.domain.number, self.association) {
            return Err(Refusal::OtherDomain);
        }
        let length = rest.len().checked_sub(TAG).ok_or(WireError::Short)?;
        let context = over_udp(&self.domain, &header)?;
        let (head, sealed) = datagram.split_at_mut(header.bytes());
        let (body, tag) = sealed.split_at_mut(length);
        let material = self.cached.of(&self.domain, &context);
        let nonce = nonce(&material.mask, &NO_ADDRESSES, &header);
        material.key.open(&nonce, head, body, tag).map_err(|_| Refusal::Forged)?;
        Ok((header.source.unwrap_or(0), header.time_stamp(), body))
    }
}

#[cfg(test)]
mod tests;
