//! The field's words: names that the project has given up in favour of the field's own do not return.

use crate::pages::{read, repository};

/// Retired names of types, and the field's word for each.
const TYPES: [(&str, &str); 32] = [
    ("Actor", "TrainingRank"),
    ("Books", "Recorder"),
    ("Caster", "MulticastRank"),
    ("Chorus", "ReceiverGroup"),
    ("Clockwork", "EventClock"),
    ("Desk", "ParameterServer, ProgramView or FramePool"),
    ("Door", "JobAdmission"),
    ("Doubt", "SilenceTimer"),
    ("Edge", "Hosts"),
    ("Facts", "a name that says of what"),
    ("Follower", "CollectiveRank"),
    ("Helm", "ProgressEngine"),
    ("Husk", "DormantConnection"),
    ("Inside", "IntraServer"),
    ("Lanes", "Elements"),
    ("Letter", "ControlMessage"),
    ("Listed", "Group"),
    ("Meeting", "Barrier"),
    ("Note", "a message's own name"),
    ("Opening", "SessionParams or StartBarriers"),
    ("Participant", "CollectiveRank"),
    ("Said", "a message's own name"),
    ("Seat", "a name that says of what"),
    ("Several", "Composite"),
    ("Side", "PlaneState"),
    ("Speaker", "Peer"),
    ("Station", "ProgrammableSwitch or AggregatorPort"),
    ("Surroundings", "NodeContext"),
    ("Told", "Notice"),
    ("Trouble", "FileError"),
    ("Voice", "ReceiverResult"),
    ("Word", "a message's own name"),
];

/// Retired names of modules.
const ROOMS: [&str; 14] = [
    "caster",
    "chorus",
    "clockwork",
    "desk",
    "door",
    "helm",
    "husk",
    "letter",
    "letters",
    "meeting",
    "seat",
    "speech",
    "station",
    "trouble",
];

/// Retired first words of functions. Inputs are `handle_`, outputs `poll_`, notices `on_`; what leaves is `send_`.
const CALLS: [&str; 13] =
    ["attend", "bury", "hear", "heed", "lend", "look", "obey", "rouse", "say", "speak", "steer", "tell", "told"];

/// A test's name is a sentence with a subject.
const QUESTIONS: [&str; 5] = ["nobody", "what", "whatever", "who", "whoever"];

/// The name that a line of source defines, and its keyword.
fn defined(line: &str) -> Option<(&str, &str)> {
    let mut words = line.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let keyword = words.find(|word| !["pub", "crate", "super", "in", "const", "async", "unsafe"].contains(word))?;
    ["struct", "enum", "trait", "type", "mod", "fn"].contains(&keyword).then_some((keyword, words.next()?))
}

fn retired(keyword: &str, name: &str) -> Option<String> {
    let first = name.split('_').next()?;
    match keyword {
        "fn" if QUESTIONS.contains(&first) && name != first => Some("begin with the subject".into()),
        "fn" if CALLS.contains(&first) => Some("write `handle_`, `poll_`, `on_`, `send_` or `notify`".into()),
        "fn" => None,
        "mod" => ROOMS.contains(&name).then(|| "see the table of types".into()),
        _ => TYPES.iter().find(|(old, _)| *old == name).map(|(_, new)| format!("write {new}")),
    }
}

#[test]
fn retired_names_do_not_return() {
    let mut wrong = Vec::new();
    for file in repository() {
        if !file.ends_with(".rs") || file.ends_with("words.rs") {
            continue;
        }
        let text = read(&file);
        for (number, line) in text.lines().enumerate() {
            if let Some((keyword, name)) = defined(line)
                && let Some(remedy) = retired(keyword, name)
            {
                wrong.push(format!("{file}:{}: {keyword} {name}: {remedy}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn retired_names_are_found() {
    for line in [
        "pub(crate) struct Helm {",
        "    enum Letter {",
        "mod husk;",
        "pub fn heed(&mut self)",
        "fn what_fails_is_named() {",
    ] {
        let (keyword, name) = defined(line).expect("a definition");
        assert!(retired(keyword, name).is_some(), "{line}");
    }
    for line in ["pub struct HelmArgs;", "fn lookup(&self)", "fn handle_letters()", "    let told = 3;"] {
        assert!(defined(line).and_then(|(keyword, name)| retired(keyword, name)).is_none(), "{line}");
    }
}
