//! Chakra traces as JSON: the output of `chakra_jsonizer` (one object for the metadata and one per node, by protobuf's
//! rules for JSON), the same objects in a list, or `{"workload_graph": [...]}`, which Chakra's feeder reads
//! (mlcommons/chakra, `src/feeder/json_node.cpp`).

use super::node::{Attribute, Node};
use crate::problem::Problems;
use crate::trace::{OPERATIONS_MAX, problem};
use serde_json::{Map, Value};

/// Is this the beginning of such a file?
pub(super) fn is_trace(start: &str) -> bool {
    let start = start.trim_start();
    if !start.starts_with(['{', '[']) {
        return false;
    }
    let has = |words: &[&str]| words.iter().any(|word| start.contains(word));
    has(&["\"workload_graph\""])
        || has(&["\"version\"", "\"id\"", "\"attr\""])
            && has(&["_NODE\"", "\"dataDeps\"", "\"data_deps\"", "\"ctrlDeps\"", "\"ctrl_deps\"", "\"durationMicros\""])
}

/// The nodes of a file, in its order.
pub(super) fn nodes(file: &str, text: &str) -> Result<Vec<Node>, Problems> {
    let mut nodes = Vec::new();
    let mut add = |value: &Value| -> Result<(), String> {
        let Value::Object(object) = value else { return Err("has a node that is no object".into()) };
        if let Some(node) = node(object)? {
            if nodes.len() == OPERATIONS_MAX {
                return Err(format!("has more than {OPERATIONS_MAX} nodes"));
            }
            nodes.push(node);
        }
        Ok(())
    };
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.map_err(|error| {
            let line = Some(error.line()).filter(|line| *line > 0);
            problem(file, line, "", format!("is no JSON: {error}"), "was the file cut off?")
        })?;
        let list = match &value {
            Value::Array(list) => Some(list),
            Value::Object(object) => match object.get("workload_graph").or(object.get("nodes")) {
                Some(Value::Array(list)) => Some(list),
                _ => None,
            },
            _ => None,
        };
        let read = match list {
            Some(list) => list.iter().try_for_each(&mut add),
            None => add(&value),
        };
        read.map_err(|what| problem(file, None, "", what, "write the nodes as chakra_jsonizer does"))?;
    }
    Ok(nodes)
}

/// A node; `None` of the metadata.
fn node(object: &Map<String, Value>) -> Result<Option<Node>, String> {
    let get = |names: &[&str]| names.iter().find_map(|name| object.get(*name));
    let mut node = Node::empty();
    let (id, kind) = (get(&["id", "Id"]), get(&["type", "NodeType"]));
    // Protobuf leaves out numbers that are 0, and metadata has neither.
    if id.is_none() && kind.is_none() {
        return Ok(None);
    }
    node.id = id.map_or(Some(0), whole).ok_or("has a node whose id is no number")?;
    let shown = node.id;
    let wrong = |what: String| format!("has node {shown}, which {what}");
    node.name = get(&["name", "Name"]).and_then(Value::as_str).unwrap_or_default().to_string();
    let number = kind.and_then(kind_of).ok_or_else(|| wrong("has no type".into()))?;
    node.set_kind(number).map_err(|_| wrong(format!("is of type {number}, which does not exist")))?;
    let list = |names: &[&str]| -> Result<Vec<u64>, String> {
        match get(names) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(all)) => {
                all.iter().map(whole).collect::<Option<Vec<u64>>>().ok_or_else(|| wrong("names no nodes".into()))
            }
            Some(_) => Err(wrong("has no list of dependencies".into())),
        }
    };
    node.control = list(&["ctrlDeps", "ctrl_deps"])?;
    node.data = list(&["dataDeps", "data_deps"])?;
    let time =
        |names: &[&str]| get(names).map_or(Some(0), whole).ok_or_else(|| wrong("has no whole time in us".into()));
    node.duration_us = time(&["durationMicros", "duration_micros", "runtime"])?;
    node.start_us = time(&["startTimeMicros", "start_time_micros"])?;
    if let Some(Value::Array(all)) = object.get("attr") {
        for one in all.iter().filter_map(Value::as_object) {
            let Some(name) = one.get("name").and_then(Value::as_str) else { continue };
            // The value's field is called for its type: int64Val, boolVal, ...
            if let Some((_, value)) = one.iter().find(|(key, _)| key.ends_with("Val") || key.ends_with("_val")) {
                set(&mut node, name, value).map_err(&wrong)?;
            } else if name == "involved_dim" {
                let values = one.values().find_map(|value| value.get("values").and_then(Value::as_array));
                // Protobuf writes false values of lists.
                node.some_dimensions = values.is_some_and(|all| all.contains(&Value::Bool(false)));
            }
        }
    }
    for (name, value) in object.iter().filter(|(name, _)| !["attr", "id", "name", "type"].contains(&name.as_str())) {
        set(&mut node, name, value).map_err(&wrong)?;
    }
    Ok(Some(node))
}

fn set(node: &mut Node, name: &str, value: &Value) -> Result<(), String> {
    let found = match value {
        Value::Bool(value) => Attribute::Integer(i128::from(*value)),
        Value::Number(number) => match number.as_i128() {
            Some(whole) => Attribute::Integer(whole),
            None => Attribute::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Attribute::Text(text.as_bytes()),
        Value::Null | Value::Array(_) | Value::Object(_) => return Ok(()),
    };
    node.set(name.as_bytes(), &found)
}

/// A whole number, which protobuf writes as text if it has 64 bits.
fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number
            .as_u64()
            .or(number.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e18).contains(n)).map(|n| n as u64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The number of a type in the schema, by number or name.
fn kind_of(value: &Value) -> Option<u64> {
    let names = [
        "METADATA_NODE",
        "MEM_LOAD_NODE",
        "MEM_STORE_NODE",
        "COMP_NODE",
        "COMM_SEND_NODE",
        "COMM_RECV_NODE",
        "COMM_COLL_NODE",
    ];
    let named = value.as_str().and_then(|name| names.iter().position(|known| *known == name));
    named.map(|at| at as u64 + 1).or_else(|| whole(value))
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Reader};
    use super::is_trace;
    use crate::trace::{Does, Kind};
    use strandway_proto::units::Span;

    const JSONIZED: &str = r#"{
  "version": "0.0.4"
}{
  "id": "1",
  "name": "work",
  "type": "COMP_NODE",
  "durationMicros": "30"
}{
  "id": "2",
  "name": "All-Reduce",
  "type": "COMM_COLL_NODE",
  "dataDeps": ["1"],
  "attr": [
    {"name": "is_cpu_op", "boolVal": false},
    {"name": "comm_type", "int64Val": "0"},
    {"name": "comm_size", "int64Val": "1048576"}
  ]
}"#;

    const GRAPH: &str = r#"{"workload_graph": [
        {"Id": 1, "Name": "work", "NodeType": 4, "ctrlDeps": [3], "data_deps": [], "runtime": 30, "is_cpu_op": false},
        {"Id": 2, "Name": "ar", "NodeType": 7, "data_deps": [1], "comm_type": 0, "comm_size": 1048576, "is_cpu_op": false}
    ]}"#;

    #[test]
    fn both_forms_are_the_same_trace() {
        for text in [JSONIZED, GRAPH] {
            assert!(is_trace(text), "{text}");
            let mut reader = Reader::new("t", Options::default());
            reader.rank_of_json("t.0.json", text).expect("nodes");
            let trace = reader.finish(true).expect("a trace");
            let does: Vec<Does> = trace.ranks[0].operations.iter().map(|operation| operation.does).collect();
            let collective = Does::Collective { group: 0, kind: Kind::AllReduce, bytes: 1 << 20 };
            assert_eq!(does, [Does::Compute { span: Span::from_us(30), lane: 0 }, collective]);
            assert_eq!(trace.ranks[0].needs_of(1), [0]);
        }
        assert!(!is_trace("{\"traceEvents\": []}") && !is_trace("Nodes 4"));
    }

    #[test]
    fn damaged_files_are_refused_with_their_place() {
        for (from, to, said) in [
            ("COMP_NODE", "NO_NODE", "node 1, which has no type"),
            ("\"dataDeps\": [\"1\"]", "\"dataDeps\": [\"x\"]", "node 2, which names no nodes"),
            ("\"durationMicros\": \"30\"", "\"durationMicros\": \"-3\"", "node 1, which has no whole time"),
            ("\"1048576\"", "\"-1\"", "node 2, which has an attribute comm_size"),
            ("\"id\": \"2\",", "\"id\": \"2\"", "t.0.json:10: is no JSON"),
        ] {
            let mut reader = Reader::new("t", Options::default());
            let error = reader.rank_of_json("t.0.json", &JSONIZED.replacen(from, to, 1)).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
        for end in 0..GRAPH.len() {
            let mut reader = Reader::new("t", Options::default());
            assert!(reader.rank_of_json("t.0.json", &GRAPH[..end]).is_err(), "{end}");
        }
    }
}
