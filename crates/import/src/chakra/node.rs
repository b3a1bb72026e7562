//! One node of a Chakra trace. Every attribute may be missing, and numbers may have any integer type: both changed
//! between versions of the schema.

use crate::trace::{BYTES_MAX, Kind};
use crate::wire::{Fields, Malformed, Value, numbers};

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeType {
    Metadata,
    Load,
    Store,
    Compute,
    Send,
    Receive,
    Collective,
}

/// A node. Attributes that are missing are `None`.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) kind: NodeType,
    pub(super) control: Vec<u64>,
    pub(super) data: Vec<u64>,
    /// On the recording machine; 0 if it is missing.
    pub(super) start_us: u64,
    pub(super) duration_us: u64,
    pub(super) is_cpu: bool,
    /// The GPU and its stream (`stream`, or `tid`, which is the stream of a kernel).
    pub(super) device: i64,
    pub(super) stream: Option<i64>,
    /// `num_ops` and `tensor_size`.
    pub(super) operations: f64,
    pub(super) tensor_bytes: f64,
    pub(super) collective: Option<Kind>,
    /// `comm_size`.
    pub(super) bytes: Option<u64>,
    pub(super) from: Option<u32>,
    pub(super) to: Option<u32>,
    pub(super) tag: Option<u32>,
    /// `pg_name`.
    pub(super) group: Option<String>,
    /// Groups that this node defines: their names and members.
    pub(super) groups: Option<Vec<(String, Vec<u32>)>>,
    /// `involved_dim` leaves dimensions of the network out.
    pub(super) some_dimensions: bool,
}

/// An attribute's value. Of lists nothing is read.
pub(super) enum Attribute<'a> {
    Integer(i128),
    Float(f64),
    Text(&'a [u8]),
    Other,
}

impl Attribute<'_> {
    fn integer(&self) -> Option<i128> {
        match self {
            Attribute::Integer(number) => Some(*number),
            Attribute::Float(number) if number.fract() == 0.0 && number.abs() < 1e18 => Some(*number as i128),
            Attribute::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            _ => None,
        }
    }
}

/// The text of at most 40 characters.
fn short(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(40).collect()
}

/// Is this a `GlobalMetadata`?
pub(super) fn check_metadata(message: &[u8]) -> Result<(), Malformed> {
    let mut fields = Fields(message);
    while let Some((number, value)) = fields.next()? {
        if !matches!((number, value), (1 | 2, Value::Bytes(_))) {
            return Err(Malformed);
        }
    }
    Ok(())
}

impl Node {
    /// A computation of no time, without attributes.
    pub(super) fn empty() -> Node {
        Node {
            id: 0,
            name: String::new(),
            kind: NodeType::Compute,
            control: Vec::new(),
            data: Vec::new(),
            start_us: 0,
            duration_us: 0,
            is_cpu: false,
            device: 0,
            stream: None,
            operations: 0.0,
            tensor_bytes: 0.0,
            collective: None,
            bytes: None,
            from: None,
            to: None,
            tag: None,
            group: None,
            groups: None,
            some_dimensions: false,
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// A malformed message: the error is the end of a sentence about it.
    pub(super) fn read(message: &[u8]) -> Result<Node, String> {
        let cut = |_: Malformed| "is no node: its fields do not fit".to_string();
        let mut node = Node::empty();
        let mut kind = 0;
        let mut inputs: &[u8] = &[];
        let mut fields = Fields(message);
        while let Some((number, value)) = fields.next().map_err(cut)? {
            match (number, value) {
                (1, Value::Varint(id)) => node.id = id,
                (2, Value::Bytes(name)) => node.name = String::from_utf8_lossy(name).into_owned(),
                (3, Value::Varint(number)) => kind = number,
                (4, value) => numbers(value, &mut node.control).map_err(cut)?,
                (5, value) => numbers(value, &mut node.data).map_err(cut)?,
                (6, Value::Varint(start)) => node.start_us = start,
                (7, Value::Varint(duration)) => node.duration_us = duration,
                (8, Value::Bytes(bytes)) => inputs = bytes,
                (10, Value::Bytes(attribute)) => node.attribute(attribute)?,
                (1..=3 | 6..=8 | 10, _) => return Err(format!("is no node: field {number} has another type")),
                _ => {}
            }
        }
        node.set_kind(kind)?;
        if node.kind == NodeType::Metadata && node.name.contains("process_group:init") {
            node.groups = groups(inputs);
        }
        Ok(node)
    }

    /// Sets its type by the number of the schema.
    pub(super) fn set_kind(&mut self, kind: u64) -> Result<(), String> {
        self.kind = match kind {
            1 => NodeType::Metadata,
            2 => NodeType::Load,
            3 => NodeType::Store,
            4 => NodeType::Compute,
            5 => NodeType::Send,
            6 => NodeType::Receive,
            7 => NodeType::Collective,
            other => return Err(format!("is node {} of type {other}, which does not exist", self.id)),
        };
        Ok(())
    }

    fn attribute(&mut self, message: &[u8]) -> Result<(), String> {
        let cut = |_: Malformed| "has an attribute that cannot be read".to_string();
        let (mut name, mut found): (&[u8], _) = (&[], Attribute::Other);
        let mut fields = Fields(message);
        while let Some((number, value)) = fields.next().map_err(cut)? {
            found = match (number, value) {
                (1, Value::Bytes(text)) => {
                    name = text;
                    continue;
                }
                (2, _) => continue,
                (3, Value::Fixed64(bits)) => Attribute::Float(f64::from_bits(bits)),
                (5, Value::Fixed32(bits)) => Attribute::Float(f32::from_bits(bits).into()),
                // int32 and int64 have two's complement, sint32 and sint64 have the sign in the last bit.
                (7 | 9, Value::Varint(n)) => Attribute::Integer((n as i64).into()),
                (11 | 13 | 27, Value::Varint(n)) => Attribute::Integer(n.into()),
                (15 | 17, Value::Varint(n)) => Attribute::Integer(((n >> 1) as i64 ^ -((n & 1) as i64)).into()),
                (19, Value::Fixed32(n)) => Attribute::Integer(n.into()),
                (21, Value::Fixed64(n)) => Attribute::Integer(n.into()),
                (23, Value::Fixed32(n)) => Attribute::Integer((n as i32).into()),
                (25, Value::Fixed64(n)) => Attribute::Integer((n as i64).into()),
                (29 | 31, Value::Bytes(text)) => Attribute::Text(text),
                (28, Value::Bytes(list)) if name == b"involved_dim" => {
                    self.some_dimensions = leaves_out(list).map_err(cut)?;
                    Attribute::Other
                }
                _ => Attribute::Other,
            };
        }
        self.set(name, &found)
    }

    /// Sets an attribute.
    pub(super) fn set(&mut self, name: &[u8], found: &Attribute<'_>) -> Result<(), String> {
        let within = |low: i128, high: i128| -> Result<i128, String> {
            let wrong = || format!("has an attribute {} that is no whole number from {low} to {high}", short(name));
            found.integer().filter(|n| (low..=high).contains(n)).ok_or_else(wrong)
        };
        // A rank of -1 stands for none.
        let rank = || within(-1, (1 << 31) - 1).map(|n| u32::try_from(n).ok());
        let amount = || match found {
            Attribute::Float(number) if number.is_finite() && *number >= 0.0 => Ok(*number),
            _ => within(0, 1 << 100).map(|n| n as f64),
        };
        match name {
            b"is_cpu_op" => self.is_cpu = within(0, 1)? == 1,
            b"device" => self.device = found.integer().map_or(0, |device| device as i64),
            b"stream" => self.stream = found.integer().map(|stream| stream as i64).or(self.stream),
            b"tid" => self.stream = self.stream.or(found.integer().map(|thread| thread as i64)),
            b"num_ops" => self.operations = amount()?,
            b"tensor_size" => self.tensor_bytes = amount()?,
            b"comm_type" => self.collective = kind_of(within(0, 1 << 31)?),
            b"comm_size" => self.bytes = Some(within(0, BYTES_MAX.into())? as u64),
            b"comm_src" => self.from = rank()?,
            b"comm_dst" => self.to = rank()?,
            b"comm_tag" => self.tag = rank()?,
            b"pg_name" => match found {
                Attribute::Text(text) => self.group = Some(String::from_utf8_lossy(text).into_owned()),
                _ => self.group = Some(within(0, 1 << 62)?.to_string()),
            },
            _ => {}
        }
        Ok(())
    }

    /// The beginning of its name, for messages.
    pub(super) fn shown(&self) -> String {
        short(self.name.as_bytes())
    }

    /// The collective that the name of a kernel on a GPU tells.
    pub(super) fn kernel(&self) -> Option<Kind> {
        if self.is_cpu || self.bytes.is_none() {
            return None;
        }
        let name = self.name.to_lowercase();
        let known = [
            ("allreduce", Kind::AllReduce),
            ("allgather", Kind::AllGather),
            ("reducescatter", Kind::ReduceScatter),
            ("alltoall", Kind::AllToAll),
            ("broadcast", Kind::Broadcast),
        ];
        known.into_iter().find(|(word, _)| name.contains(word)).map(|(_, kind)| kind)
    }
}

/// True if some of a list of booleans are false.
fn leaves_out(list: &[u8]) -> Result<bool, Malformed> {
    let (mut fields, mut values) = (Fields(list), Vec::new());
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            numbers(value, &mut values)?;
        }
    }
    Ok(values.contains(&0))
}

fn kind_of(number: i128) -> Option<Kind> {
    Some(match number {
        0 => Kind::AllReduce,
        1 => Kind::Reduce,
        2 => Kind::AllGather,
        3 => Kind::Gather,
        4 => Kind::Scatter,
        5 => Kind::Broadcast,
        6 => Kind::AllToAll,
        7 | 8 => Kind::ReduceScatter,
        9 => Kind::Barrier,
        _ => return None,
    })
}

/// The groups of a node `process_group:init` of PyTorch: JSON within the values of its inputs.
fn groups(inputs: &[u8]) -> Option<Vec<(String, Vec<u32>)>> {
    let mut fields = Fields(inputs);
    let mut values: &[u8] = &[];
    while let Ok(Some((number, value))) = fields.next() {
        if let (1, Value::Bytes(text)) = (number, value) {
            values = text;
        }
    }
    let text = std::str::from_utf8(values).ok()?.replace("\\\"", "\"");
    let from = text.find("[{")?;
    let until = text.rfind("}]")? + 2;
    let all: Vec<serde_json::Value> = serde_json::from_str(text.get(from..until)?).ok()?;
    let group = |one: &serde_json::Value| {
        let name = match one.get("pg_name")? {
            serde_json::Value::String(name) => name.clone(),
            other => other.to_string(),
        };
        let ranks = one.get("ranks")?.as_array()?;
        let members: Option<Vec<u32>> = ranks.iter().map(|rank| u32::try_from(rank.as_u64()?).ok()).collect();
        Some((name, members?))
    };
    Some(all.iter().filter_map(group).collect())
}
