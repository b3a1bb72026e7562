//! The protobuf form of a document: message `Infrastructure` of the package's schema.

use super::document::{Component, Device, Document, EdgeSet, End, Instance, Latency, Link};
use crate::wire::{Fields, Value};

/// The values of `Component.choice`.
const CHOICES: [&str; 9] = ["", "custom", "device", "cpu", "xpu", "nic", "memory", "port", "switch"];
/// The values of `scheme`.
const SCHEMES: [&str; 4] = ["", "one2one", "many2many", "ring"];

/// Reads a message; `None` if it is malformed.
pub(super) fn read(bytes: &[u8]) -> Option<Document> {
    let mut made = Document::default();
    each(bytes, |number, value| {
        match number {
            1 => made.name = text(value)?,
            3 => made.devices.push(device(nested(value)?)?),
            4 => made.links.push(link(nested(value)?)?),
            5 => made.instances.push(instance(nested(value)?)?),
            6 => made.edges.push(edge(nested(value)?)?),
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

fn device(bytes: &[u8]) -> Option<Device> {
    let mut made = Device::default();
    each(bytes, |number, value| {
        match number {
            1 => made.name = text(value)?,
            3 => made.components.push(component(nested(value)?)?),
            4 => made.links.push(link(nested(value)?)?),
            5 => made.edges.push(edge(nested(value)?)?),
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

fn component(bytes: &[u8]) -> Option<Component> {
    let mut made = Component::default();
    each(bytes, |number, value| {
        match number {
            1 => made.name = text(value)?,
            3 => made.count = count(value)?,
            4 => made.choice = one_of(value, &CHOICES)?,
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

fn link(bytes: &[u8]) -> Option<Link> {
    let mut made = Link::default();
    each(bytes, |number, value| {
        match number {
            1 => made.name = text(value)?,
            3 => each(nested(value)?, |number, value| {
                let inner = nested(value)?;
                match number {
                    1 => each(inner, |number, value| {
                        let width = &mut made.physical.bandwidth;
                        match number {
                            2 => width.gigabits_per_second = Some(float(value)?),
                            3 => width.gigabytes_per_second = Some(float(value)?),
                            4 => width.gigatransfers_per_second = Some(float(value)?),
                            _ => {}
                        }
                        Some(())
                    }),
                    2 => latency(inner).map(|latency| made.physical.latency = latency),
                    _ => Some(()),
                }
            })?,
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

fn latency(bytes: &[u8]) -> Option<Latency> {
    let mut made = Latency::default();
    each(bytes, |number, value| {
        match number {
            2 => made.ms = Some(float(value)?),
            3 => made.us = Some(float(value)?),
            4 => made.ns = Some(float(value)?),
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

fn instance(bytes: &[u8]) -> Option<Instance> {
    let mut made = Instance::default();
    each(bytes, |number, value| {
        match number {
            1 => made.name = text(value)?,
            3 => made.device = text(value)?,
            4 => made.count = count(value)?,
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

fn edge(bytes: &[u8]) -> Option<EdgeSet> {
    let mut made = EdgeSet::default();
    each(bytes, |number, value| {
        match number {
            1 => made.ep1 = end(nested(value)?)?,
            2 => made.ep2 = end(nested(value)?)?,
            3 => made.scheme = one_of(value, &SCHEMES)?,
            4 => made.link = text(value)?,
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

fn end(bytes: &[u8]) -> Option<End> {
    let mut made = End::default();
    each(bytes, |number, value| {
        match number {
            1 => made.instance = text(value)?,
            2 => made.component = text(value)?,
            _ => {}
        }
        Some(())
    })?;
    Some(made)
}

/// Calls `take` with each field of a message.
fn each<'a>(bytes: &'a [u8], mut take: impl FnMut(u32, Value<'a>) -> Option<()>) -> Option<()> {
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next().ok()? {
        take(number, value)?;
    }
    Some(())
}

fn nested(value: Value<'_>) -> Option<&[u8]> {
    match value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn text(value: Value<'_>) -> Option<String> {
    std::str::from_utf8(nested(value)?).ok().map(String::from)
}

fn count(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Varint(count) => Some(count as i64),
        _ => None,
    }
}

fn float(value: Value<'_>) -> Option<f64> {
    match value {
        Value::Fixed32(bits) => Some(f32::from_bits(bits).into()),
        _ => None,
    }
}

fn one_of(value: Value<'_>, known: &[&str]) -> Option<String> {
    let number = usize::try_from(count(value)?).ok()?;
    known.get(number).map(|name| (*name).to_string())
}
