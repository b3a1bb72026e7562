//! Addresses of a scenario's keys: `fabric.hosts`, `workload.a.size`, `faults.1.kind`.
//!
//! An entry of a list is addressed by its `name`, or by its number, counted from 0 as in error messages:
//! `workload.1.size` and `workload[1].size` are the same.

use crate::keys::SECTIONS;
use crate::reader::show;
use strandway_import::{nearest, suggest};
use toml::{Table, Value};

/// Sections that may be lists.
const LISTS: [&str; 4] = ["workload", "job", "service", "faults"];

/// Sets the key at `address` of a scenario to a TOML value.
///
/// # Errors
/// A sentence, if the address does not exist.
pub(crate) fn put(root: &mut Table, address: &str, value: Value) -> Result<(), String> {
    let parts = parts(address)?;
    if !SECTIONS.contains(&parts[0].as_str()) {
        return Err(format!("`{}` is no section of a scenario; {}", parts[0], suggest(&parts[0], &SECTIONS)));
    }
    // A key of a sweep is a dotted key of the scenario; in the `[sweep]` table it is one key.
    let parts = match parts.split_first() {
        Some((section, swept)) if section == "sweep" && !swept.is_empty() => vec![section.clone(), swept.join(".")],
        _ => parts,
    };
    let (last, way) = parts.split_last().ok_or("the key is empty")?;
    let Some((section, way)) = way.split_first() else {
        root.insert(last.clone(), value);
        return Ok(());
    };
    let mut place = root.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
    let mut walked = section.clone();
    for part in way {
        place = step(place, part, &walked)?;
        walked = format!("{walked}.{part}");
    }
    // The last part may address a whole entry of a list.
    if let Value::Array(items) = place
        && let Some(at) = member(items, last, &walked)?
    {
        items[at] = value;
        return Ok(());
    }
    if let Value::Table(table) = only(place, &walked)? {
        table.insert(last.clone(), value);
    }
    Ok(())
}

/// The value at `address` of a scenario, if there is one.
pub(crate) fn get(root: &Table, address: &str) -> Option<Value> {
    let parts = parts(address).ok()?;
    let (last, way) = parts.split_last()?;
    let mut root = Value::Table(root.clone());
    let (mut place, mut walked) = (&mut root, String::new());
    for part in way {
        place = step(place, part, &walked).ok()?;
        walked = if walked.is_empty() { part.clone() } else { format!("{walked}.{part}") };
    }
    if let Value::Array(items) = place
        && let Some(at) = member(items, last, &walked).ok()?
    {
        return Some(items[at].clone());
    }
    only(place, &walked).ok()?.get(last).cloned()
}

/// Goes to the value that one part of an address names.
fn step<'a>(place: &'a mut Value, part: &str, walked: &str) -> Result<&'a mut Value, String> {
    if let Value::Array(items) = place {
        if let Some(at) = member(items, part, walked)? {
            return Ok(&mut place[at]);
        }
    } else if let Value::Table(table) = place
        && LISTS.contains(&walked)
        && !table.contains_key(part)
        && (part == "0" || is_called(table, part))
    {
        // The list has one entry, so the part is a key of that entry.
        return Ok(place);
    }
    match only(place, walked)? {
        Value::Table(table) => Ok(table.entry(part).or_insert_with(|| Value::Table(Table::new()))),
        other => Ok(other),
    }
}

/// The index of the entry that `part` names by number or name. `None` if `part` is a key and the list has only one
/// entry.
fn member(items: &[Value], part: &str, walked: &str) -> Result<Option<usize>, String> {
    if let Ok(number) = part.parse::<usize>() {
        return match items.len() {
            n if number < n => Ok(Some(number)),
            0 => Err(format!("`{walked}` is an empty list")),
            1 => Err(format!("`{walked}` has one member, number 0")),
            n => Err(format!("`{walked}` has {n} members, numbered from 0 to {}", n - 1)),
        };
    }
    let named = |item: &Value| item.as_table().is_some_and(|table| is_called(table, part));
    let mut found = items.iter().enumerate().filter(|(_, item)| named(item)).map(|(i, _)| i);
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(Some(at)),
        (Some(_), Some(_)) => Err(format!("several members of `{walked}` are called `{part}`; write their numbers")),
        (None, _) if items.len() == 1 => Ok(None),
        (None, _) => {
            let names: Vec<&str> = items.iter().filter_map(|i| i.as_table()?.get("name")?.as_str()).collect();
            let hint = match nearest(part, names.iter().copied()) {
                Some(name) => format!("did you mean `{walked}.{name}`?"),
                None if names.is_empty() => format!("write, say, {walked}.0.KEY"),
                None => format!("its members are called {}; or write, say, {walked}.0.KEY", names.join(", ")),
            };
            Err(format!("`{walked}` is a list of {} tables, none of them called `{part}`; {hint}", items.len()))
        }
    }
}

fn is_called(table: &Table, name: &str) -> bool {
    table.get("name").and_then(Value::as_str) == Some(name)
}

/// The table at `place`: itself, or the only entry of a list.
fn only<'a>(place: &'a mut Value, walked: &str) -> Result<&'a mut Value, String> {
    let shown = show(place);
    let single = place.as_array().is_some_and(|items| items.len() == 1);
    let inner = if single { place.get_mut(0) } else { Some(place) };
    match inner {
        Some(table @ Value::Table(_)) => Ok(table),
        _ => Err(format!("`{walked}` is {shown}, which has no keys")),
    }
}

/// The parts of an address; an empty part is an error. `workload[1].size` is read as `workload.1.size`.
fn parts(address: &str) -> Result<Vec<String>, String> {
    let dotted = address.replace('[', ".").replace(']', "");
    let parts: Vec<String> = dotted.split('.').map(|p| p.trim().trim_matches('"').to_string()).collect();
    if parts.iter().any(String::is_empty) {
        return Err("the key has an empty part".into());
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTS: &str = "[[workload]]\nname = \"a\"\nsize = \"1 MB\"\n[[workload]]\nname = \"b\"\nsize = \"2 MB\"\n\
                         [[faults]]\nkind = \"down\"\n[[faults]]\nkind = \"down\"\n";

    fn changed(text: &str, address: &str) -> Result<Table, String> {
        let mut table: Table = text.parse().expect("TOML");
        put(&mut table, address, Value::Integer(7)).map(|()| table)
    }

    #[test]
    fn members_of_lists_have_names_and_numbers() {
        for address in ["workload.b.size", "workload.1.size", "workload[1].size"] {
            let table = changed(LISTS, address).expect(address);
            assert_eq!(table["workload"][1]["size"].as_integer(), Some(7), "{address}");
            assert_eq!(table["workload"][0]["size"].as_str(), Some("1 MB"), "{address}");
        }
        assert_eq!(changed(LISTS, "faults.1.kind").expect("sound")["faults"][1]["kind"].as_integer(), Some(7));
        assert_eq!(changed(LISTS, "faults.0").expect("sound")["faults"][0].as_integer(), Some(7));
    }

    #[test]
    fn a_list_of_one_needs_neither() {
        let one = "[[workload]]\nname = \"a\"\n";
        for text in [one, "[workload]\nname = \"a\"\n"] {
            for address in ["workload.size", "workload.0.size", "workload.a.size"] {
                let table = changed(text, address).expect(address);
                let place = table["workload"].get(0).unwrap_or(&table["workload"]);
                assert_eq!(place["size"].as_integer(), Some(7), "{address} in {text}");
            }
        }
    }

    #[test]
    fn a_value_is_found_where_it_was_put() {
        let table: Table = LISTS.parse().expect("TOML");
        for (address, text) in [("workload.b.size", Some("2 MB")), ("workload[0].size", Some("1 MB"))] {
            assert_eq!(get(&table, address).as_ref().and_then(Value::as_str), text, "{address}");
        }
        assert_eq!(get(&table, "workload.0.name"), Some(Value::String("a".into())));
        for absent in ["fabric.hosts", "workload.c.size", "workload.0.more", "faults.7", ""] {
            assert_eq!(get(&table, absent), None, "{absent}");
        }
        let one: Table = "[workload]\nsenders = 4\n".parse().expect("TOML");
        assert_eq!(get(&one, "workload.senders"), Some(Value::Integer(4)));
        assert_eq!(get(&one, "workload.0.senders"), Some(Value::Integer(4)));
    }

    #[test]
    fn a_table_that_is_called_like_its_key_is_no_list() {
        let table = changed("[profile]\nname = \"mrc\"\n", "profile.mrc.backup").expect("sound");
        assert_eq!(table["profile"]["mrc"]["backup"].as_integer(), Some(7));
    }

    #[test]
    fn wrong_addresses_say_what_there_is() {
        for (address, fragment) in [
            ("workload.c.size", "its members are called a, b; or write, say, workload.0.KEY"),
            ("workload.2.size", "`workload` has 2 members, numbered from 0 to 1"),
            ("workload.size", "none of them called `size`"),
            ("faults.kind", "write, say, faults.0.KEY"),
            ("faults.0.kind.x", "which has no keys"),
            ("fabrik.hosts", "did you mean `fabric`?"),
            ("fabric..hosts", "empty part"),
        ] {
            let said = changed(LISTS, address).expect_err(address);
            assert!(said.contains(fragment), "{address}: {said}");
        }
    }
}
