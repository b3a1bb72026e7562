//! Properties of files that a copy keeps besides contents, modes and times, if it is asked: owners, extended attributes,
//! holes.

use super::message::Malformed;
use strandway_wire::Reader;

/// The most bytes of names and values of one file's attributes: ours, so that an entry fits a message with others.
pub(super) const ATTRIBUTES_MAX: usize = 16 << 10;
/// The names of attributes that are copied begin with this: others belong to the system.
pub(super) const USER: &[u8] = b"user.";

/// The bits of an entry's flags.
const SPARSE: u8 = 1;
const OWNER: u8 = 2;
const ATTRIBUTES: u8 = 4;

/// Names and values of extended attributes.
pub(super) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Properties of a file that are kept besides contents, mode and time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// It has holes: runs of zeros take no room on the disk.
    pub sparse: bool,
    /// The numbers of its user and its group.
    pub owner: Option<(u32, u32)>,
    /// Its extended attributes (`user.*`), by name; `None`: those that are there stay.
    pub attributes: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl More {
    /// Is nothing more kept?
    pub(super) fn is_nothing(&self) -> bool {
        *self == More::default()
    }

    /// Its length in a message, in bytes; without anything to keep it is not there.
    pub(super) fn length(&self) -> usize {
        if self.is_nothing() {
            return 0;
        }
        let attributes = self.attributes.as_ref().map_or(0, |all| 2 + size(all) + 4 * all.len());
        1 + if self.owner.is_some() { 8 } else { 0 } + attributes
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        if self.is_nothing() {
            return;
        }
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        out.push(
            flag(self.sparse, SPARSE) | flag(self.owner.is_some(), OWNER) | flag(self.attributes.is_some(), ATTRIBUTES),
        );
        if let Some((user, group)) = self.owner {
            out.extend_from_slice(&user.to_be_bytes());
            out.extend_from_slice(&group.to_be_bytes());
        }
        if let Some(all) = &self.attributes {
            out.extend_from_slice(&(all.len() as u16).to_be_bytes());
            for part in all.iter().flat_map(|(name, value)| [name, value]) {
                out.extend_from_slice(&(part.len() as u16).to_be_bytes());
                out.extend_from_slice(part);
            }
        }
    }

    /// Reads what [`More::put`] wrote.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<More, Malformed> {
        let flags = reader.u8()?;
        if flags == 0 || flags > SPARSE | OWNER | ATTRIBUTES {
            return Err(Malformed);
        }
        let owner = if flags & OWNER != 0 { Some((reader.u32()?, reader.u32()?)) } else { None };
        let attributes = if flags & ATTRIBUTES != 0 {
            let mut all = Vec::new();
            for _ in 0..reader.u16()? {
                let mut part = || -> Result<Vec<u8>, Malformed> {
                    let length = reader.u16()?;
                    Ok(reader.take(length.into())?.to_vec())
                };
                all.push((part()?, part()?));
            }
            let named = |name: &[u8]| name.starts_with(USER) && name.len() < 256 && !name.contains(&0);
            if size(&all) > ATTRIBUTES_MAX || !all.iter().all(|(name, _)| named(name)) {
                return Err(Malformed);
            }
            Some(all)
        } else {
            None
        };
        Ok(More { sparse: flags & SPARSE != 0, owner, attributes })
    }
}

/// Bytes of names and values.
pub(super) fn size(all: &[(Vec<u8>, Vec<u8>)]) -> usize {
    all.iter().map(|(name, value)| name.len() + value.len()).sum()
}
