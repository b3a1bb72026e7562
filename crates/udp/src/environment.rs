//! Settings of a node in variables of the environment. Process groups, the mover and the programs above it read them
//! here, so one name means one thing in all of them.

use crate::Protection;
use crate::address::parse;
use std::fs;
use std::net::SocketAddrV6;
use strandway_proto::{Rate, Span};

/// The value of a variable, if it is set.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The settings that variables give; `None` where a variable is not set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `STRANDWAY_PLANES`: this host's address on each plane, with commas between them.
    pub planes: Option<Vec<SocketAddrV6>>,
    /// `STRANDWAY_PROFILE`: the protocol.
    pub profile: Option<String>,
    /// `STRANDWAY_PROTECTION`.
    pub protection: Option<Protection>,
    /// `STRANDWAY_PAYLOAD`: bytes of a full packet.
    pub payload: Option<u32>,
    /// `STRANDWAY_RATE`: Gb/s of all planes together.
    pub rate: Option<Rate>,
    /// The round trip without queues: `STRANDWAY_BASE_RTT_US` in microseconds, or `STRANDWAY_RTT` in milliseconds.
    pub base_rtt: Option<Span>,
    /// `STRANDWAY_TEAM`: the number of the multicast team, where switches copy only for teams that they know.
    pub team: Option<u16>,
}

impl Settings {
    /// Reads the variables.
    ///
    /// # Errors
    /// If one of them has no valid value: its name, the value, and what to give instead.
    pub fn read(get: Variables<'_>) -> Result<Settings, String> {
        Ok(Settings {
            planes: planes(get)?,
            profile: get("STRANDWAY_PROFILE"),
            protection: value(get, "STRANDWAY_PROTECTION", "give encrypted, authenticated or none", Protection::named)?,
            payload: value(get, "STRANDWAY_PAYLOAD", "give bytes", |text| text.parse().ok())?,
            rate: value(get, "STRANDWAY_RATE", "give Gb/s of all planes together", |text| {
                let gbps = text.parse().ok().filter(|gbps| *gbps > 0.0 && *gbps < 1e6)?;
                Some(Rate::from_gbps(1).scaled(gbps))
            })?,
            base_rtt: base_rtt(get)?,
            team: value(get, "STRANDWAY_TEAM", "give the number of a multicast team, 0 to 65535", |text| {
                text.parse().ok()
            })?,
        })
    }
}

/// The key that `STRANDWAY_KEY_FILE` or `STRANDWAY_KEY` gives.
///
/// # Errors
/// If the file cannot be read, or the digits are none.
pub fn key(get: Variables<'_>) -> Result<Option<Vec<u8>>, String> {
    if let Some(path) = get("STRANDWAY_KEY_FILE") {
        return fs::read(&path).map(Some).map_err(|error| format!("STRANDWAY_KEY_FILE is {path}: {error}"));
    }
    let Some(hex) = get("STRANDWAY_KEY") else { return Ok(None) };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    let bytes = bytes.filter(|_| rest.is_empty());
    bytes.map(Some).ok_or_else(|| "STRANDWAY_KEY is not made of pairs of hexadecimal digits".into())
}

/// One variable, as a value; the error says what to give.
fn value<T>(
    get: Variables<'_>,
    name: &str,
    wanted: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let Some(text) = get(name) else { return Ok(None) };
    read(&text).map(Some).ok_or_else(|| format!("{name} is {text}: {wanted}"))
}

fn planes(get: Variables<'_>) -> Result<Option<Vec<SocketAddrV6>>, String> {
    let Some(list) = get("STRANDWAY_PLANES") else { return Ok(None) };
    let wanted = "give this host's address on each plane, with commas between them";
    let one = |text: &str| parse(text, 0).ok_or_else(|| format!("STRANDWAY_PLANES has {text}: {wanted}"));
    list.split(',').map(str::trim).map(one).collect::<Result<_, _>>().map(Some)
}

fn base_rtt(get: Variables<'_>) -> Result<Option<Span>, String> {
    let within = |text: &str, microseconds: f64| {
        let given = text.parse().ok().map(|number: f64| number * microseconds);
        given.filter(|us| (1.0..=1e7).contains(us)).map(|us| Span::from_us(1).scaled(us))
    };
    let wanted = "give the round trip without queues, in microseconds";
    let micros = value(get, "STRANDWAY_BASE_RTT_US", wanted, |text| within(text, 1.0))?;
    let wanted = "give milliseconds there and back, 0.001 to 10000";
    let millis = value(get, "STRANDWAY_RTT", wanted, |text| within(text, 1_000.0))?;
    Ok(micros.or(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(&|name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn variables_become_settings_and_wrong_ones_are_named() {
        let all = [
            ("STRANDWAY_PLANES", "10.0.0.1, fd00::1"),
            ("STRANDWAY_PROFILE", "mrc"),
            ("STRANDWAY_PROTECTION", "none"),
            ("STRANDWAY_PAYLOAD", "4096"),
            ("STRANDWAY_RATE", "2.5"),
            ("STRANDWAY_RTT", "20"),
            ("STRANDWAY_TEAM", "7"),
        ];
        let found = read(&all).expect("valid");
        assert_eq!(found.planes.map(|planes| planes.len()), Some(2));
        assert_eq!((found.profile.as_deref(), found.payload), (Some("mrc"), Some(4_096)));
        assert_eq!((found.protection, found.base_rtt), (Some(Protection::None), Some(Span::from_us(20_000))));
        assert_eq!((found.rate, found.team), (Some(Rate::from_gbps(1).scaled(2.5)), Some(7)));
        let both = read(&[("STRANDWAY_RTT", "20"), ("STRANDWAY_BASE_RTT_US", "7")]).expect("valid");
        assert_eq!(both.base_rtt, Some(Span::from_us(7)));
        assert!(read(&[]).expect("nothing").planes.is_none());
        let wrong = [
            ("STRANDWAY_PLANES", "eth0"),
            ("STRANDWAY_PROTECTION", "some"),
            ("STRANDWAY_PAYLOAD", "4k"),
            ("STRANDWAY_RATE", "-1"),
            ("STRANDWAY_RATE", "nan"),
            ("STRANDWAY_RTT", "0"),
            ("STRANDWAY_BASE_RTT_US", "1e9"),
            ("STRANDWAY_TEAM", "65536"),
        ];
        for (name, value) in wrong {
            let said = read(&[(name, value)]).expect_err(name);
            assert!(said.contains(name) && said.contains(value) && said.contains("give"), "{said}");
        }
    }
}
