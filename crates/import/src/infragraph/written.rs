//! A document as YAML, as the package reads it.

use super::document::{Component, Device, Document, EdgeSet, Instance, Link};
use std::fmt::Write;

impl Document {
    /// The document as YAML, with its parts in the order of the schema.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "name: {}", quoted(&self.name));
        list(&mut out, 0, "devices", &self.devices, device);
        list(&mut out, 0, "links", &self.links, link);
        list(&mut out, 0, "instances", &self.instances, instance);
        list(&mut out, 0, "edges", &self.edges, edge);
        out
    }
}

/// A list, with two more spaces before each line of its parts.
fn list<T>(out: &mut String, depth: usize, name: &str, parts: &[T], lines: fn(&T) -> Vec<String>) {
    if parts.is_empty() {
        return;
    }
    let before = " ".repeat(depth);
    let _ = writeln!(out, "{before}{name}:");
    for part in parts {
        for (number, line) in lines(part).into_iter().enumerate() {
            let _ = writeln!(out, "{before}{} {line}", if number == 0 { "-" } else { " " });
        }
    }
}

fn device(device: &Device) -> Vec<String> {
    let mut inner = String::new();
    list(&mut inner, 0, "components", &device.components, component);
    list(&mut inner, 0, "links", &device.links, link);
    list(&mut inner, 0, "edges", &device.edges, edge);
    let mut lines = vec![format!("name: {}", quoted(&device.name))];
    lines.extend(inner.lines().map(String::from));
    lines
}

fn component(component: &Component) -> Vec<String> {
    vec![
        format!("name: {}", quoted(&component.name)),
        format!("count: {}", component.count),
        format!("choice: {}", component.choice),
    ]
}

fn link(link: &Link) -> Vec<String> {
    let mut lines = vec![format!("name: {}", quoted(&link.name))];
    let (width, time) = (&link.physical.bandwidth, &link.physical.latency);
    let of = |names: [(&'static str, Option<f64>); 3]| {
        names.into_iter().find_map(|(name, value)| value.map(|value| (name, value)))
    };
    let width = of([
        ("gigabits_per_second", width.gigabits_per_second),
        ("gigabytes_per_second", width.gigabytes_per_second),
        ("gigatransfers_per_second", width.gigatransfers_per_second),
    ]);
    let time = of([("ms", time.ms), ("us", time.us), ("ns", time.ns)]);
    if width.is_none() && time.is_none() {
        return lines;
    }
    lines.push("physical:".into());
    for (key, value) in [("bandwidth", width), ("latency", time)] {
        if let Some((unit, value)) = value {
            lines.extend([format!("  {key}:"), format!("    choice: {unit}"), format!("    {unit}: {value:?}")]);
        }
    }
    lines
}

fn instance(instance: &Instance) -> Vec<String> {
    vec![
        format!("name: {}", quoted(&instance.name)),
        format!("device: {}", quoted(&instance.device)),
        format!("count: {}", instance.count),
    ]
}

fn edge(edge: &EdgeSet) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, end) in [("ep1", &edge.ep1), ("ep2", &edge.ep2)] {
        lines.push(format!("{name}:"));
        if !end.instance.is_empty() {
            lines.push(format!("  instance: {}", quoted(&end.instance)));
        }
        lines.push(format!("  component: {}", quoted(&end.component)));
    }
    lines.push(format!("scheme: {}", edge.scheme));
    lines.push(format!("link: {}", quoted(&edge.link)));
    lines
}

/// A string in double quotes: YAML's are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
