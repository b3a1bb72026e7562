//! Suggestions for mistyped commands and flags. The ones that clap makes itself compare letters place by place, so that
//! `rnu` is far from `run`, and know the flags of one command only.

use crate::args::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};
use std::ffi::OsString;

/// Adds a suggestion to an error of usage that has none.
pub(crate) fn suggest(mut said: clap::Error, arguments: &[OsString]) -> clap::Error {
    let mut all = Args::command();
    all.build();
    let mut command = &all;
    for word in arguments {
        match word.to_str().and_then(|word| command.find_subcommand(word)) {
            Some(inner) => command = inner,
            None => break,
        }
    }
    let text = |said: &clap::Error, kind| match said.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match said.kind() {
        ErrorKind::InvalidSubcommand if said.get(ContextKind::SuggestedSubcommand).is_none() => {
            let Some(wrong) = text(&said, ContextKind::InvalidSubcommand) else { return said };
            let near = nearest(&wrong, command.get_subcommands().map(Command::get_name));
            if let Some(near) = near {
                said.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near.to_string()]));
            }
        }
        ErrorKind::UnknownArgument if said.get(ContextKind::SuggestedArg).is_none() => {
            let Some(wrong) = text(&said, ContextKind::InvalidArg) else { return said };
            let wrong = wrong.trim_start_matches('-');
            if let Some(near) = nearest(wrong, flags(command)) {
                said.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{near}")));
                said.insert(ContextKind::Suggested, ContextValue::StyledStrs(Vec::new()));
                return said;
            }
            // The simulator's commands take the profile from the scenario.
            if flags(command).any(|flag| flag == "set") && nearest(wrong, ["profile"].into_iter()).is_some() {
                let tip = "a scenario names its profile: '--set profile.name=NAME' changes it";
                said.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
                return said;
            }
            let others =
                all.get_subcommands().filter_map(|other| Some((nearest(wrong, flags(other))?, other.get_name())));
            let best = others.min_by_key(|(flag, _)| strsim::osa_distance(wrong, flag));
            if let Some((flag, other)) = best {
                let tip = format!("`strandway {other}` has '--{flag}'");
                said.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            }
        }
        _ => {}
    }
    said
}

/// The long flags of a command.
fn flags(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(|argument| argument.get_long())
}

/// The name that differs by the fewest letters, if those are few: added, missing, other or swapped ones.
fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (wrong.chars().count() / 3).clamp(1, 3);
    let scored = names.map(|name| (strsim::osa_distance(wrong, name), name));
    scored.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match Args::try_parse_from(std::iter::once("strandway".into()).chain(words.iter().cloned())) {
            Ok(_) => panic!("{line}: is right"),
            Err(error) => suggest(error, &words).to_string(),
        }
    }

    #[test]
    fn a_mistyped_command_or_flag_has_its_neighbour_named() {
        for (line, wanted) in [
            ("rnu a.toml", "'run'"),
            ("serach a.toml", "'search'"),
            ("fabric pu a.toml", "'up'"),
            ("compare a.toml --profle uec", "'--profiles'"),
            ("compare a.toml --porfiles uec", "'--profiles'"),
            ("run a.toml --profle uec", "--set profile.name=NAME"),
        ] {
            let said = said(line);
            assert!(said.contains(wanted), "{line}: {said}");
        }
        assert!(!said("run a.toml --zzzzzz").contains("tip: `"), "{}", said("run a.toml --zzzzzz"));
    }
}
