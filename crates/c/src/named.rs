//! Settings by name: given ones, then variables of the environment, then defaults of the caller, then the host.

use strandway_mover::environment::{self, Variables};
use strandway_mover::{Code, MoverError, Options};
use strandway_udp::PLANES_MAX;

/// The names. Those of a group say the same thing in two ways: where one of them is given, the other does not count.
const GROUPS: [&[&str]; 7] = [
    &["key_file", "key"],
    &["planes", "ifname"],
    &["profile"],
    &["protection"],
    &["payload"],
    &["rate"],
    &["base_rtt_us", "rtt"],
];

/// The name of a setting's variable.
fn variable(name: &str) -> String {
    format!("STRANDWAY_{}", name.to_uppercase())
}

/// Settings as names and values.
pub(crate) type Settings = Vec<(String, String)>;

/// The options that these settings give, with the variables of this process, and defaults where both say nothing.
pub(crate) fn options(given: &Settings, defaults: &Settings) -> Result<Options, MoverError> {
    options_of(given, &|name| std::env::var(name).ok(), defaults)
}

fn options_of(given: &Settings, environment: Variables<'_>, defaults: &Settings) -> Result<Options, MoverError> {
    let wrong = |text: String| MoverError::new(Code::Config, text);
    let all: Vec<&str> = GROUPS.concat();
    if let Some((name, _)) = given.iter().find(|(name, _)| !all.contains(&name.as_str())) {
        return Err(wrong(format!("no setting is called {name}: take {}", all.join(", "))));
    }
    let listed = |list: &Settings, name: &str| {
        list.iter().find(|(of, value)| of == name && !value.is_empty()).map(|(_, value)| value.clone())
    };
    // Each source is asked for all names of the group before the next one is.
    let get = |wanted: &str| {
        let group = GROUPS.iter().find(|group| group.iter().any(|name| variable(name) == wanted))?;
        let sources: [Variables<'_>; 3] = [
            &|name| listed(given, name),
            &|name| environment(&variable(name)).filter(|value| !value.is_empty()),
            &|name| listed(defaults, name),
        ];
        let source = sources.into_iter().find(|source| group.iter().any(|name| source(name).is_some()))?;
        group.iter().find(|name| variable(name) == wanted).and_then(|name| source(name))
    };
    let key = environment::key(&get).map_err(wrong)?.ok_or_else(|| {
        let remedy = "`head -c 32 /dev/urandom > key`, copy it to all hosts, and set STRANDWAY_KEY_FILE";
        wrong(format!("no key: {remedy}; or STRANDWAY_KEY with hexadecimal digits"))
    })?;
    let planes = environment::planes(&get).map_err(wrong)?;
    if planes.len() > PLANES_MAX {
        let count = planes.len();
        return Err(wrong(format!("{count} planes, but a node has {PLANES_MAX} at most: set STRANDWAY_IFNAME")));
    }
    environment::options(&get, &key, &planes).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::Span;

    fn opened(given: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Options, MoverError> {
        let owned = |list: &[(&str, &str)]| -> Settings {
            list.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect()
        };
        let get = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_string());
        options_of(&owned(given), &get, &owned(&[("base_rtt_us", "1000"), ("payload", "2048")]))
    }

    #[test]
    fn given_settings_count_before_variables() {
        let key = "07".repeat(16);
        let variables = [
            ("STRANDWAY_KEY_FILE", "/no/such/file"),
            ("STRANDWAY_IFNAME", "no-such-interface"),
            ("STRANDWAY_PAYLOAD", "1024"),
            ("STRANDWAY_PROFILE", "mrc"),
        ];
        let found = opened(&[("key", &key), ("planes", "127.0.0.1"), ("profile", "")], &variables).expect("valid");
        assert_eq!(found.key, [7; 16]);
        assert_eq!((found.planes.len(), found.payload), (1, Some(1_024)));
        assert_eq!(found.profile, "mrc", "an empty setting is not set");
        assert_eq!(found.base_rtt, Some(Span::from_us(1_000)), "the caller's default");
        let slow = opened(&[("key", &key), ("planes", "::1")], &[("STRANDWAY_RTT", "20")]).expect("valid");
        assert_eq!((slow.base_rtt, slow.payload), (Some(Span::from_us(20_000)), Some(2_048)));
        let said = |outcome: Result<Options, MoverError>| outcome.expect_err("wrong").to_string();
        assert!(said(opened(&[], &variables)).contains("/no/such/file"));
        assert!(said(opened(&[("planes", "127.0.0.1")], &[])).contains("STRANDWAY_KEY_FILE"));
        assert!(said(opened(&[("key", &key), ("plane", "127.0.0.1")], &[])).contains("plane"));
        assert!(said(opened(&[("key", &key), ("planes", &["127.0.0.1"; 9].join(","))], &[])).contains("9 planes"));
    }
}
