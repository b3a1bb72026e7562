//! The switch of a rank, from its environment.

use crate::aggregation::NetworkOptions;
use crate::error::GroupError;
use strandway_udp::address::{find, is_loopback};
use strandway_udp::fragments::LANES_MAX;

/// The usual port of a switch; a job's admission port is its number higher.
const PORT: u16 = 48_000;
/// The key of a switch on loopback that was given none.
const LOOPBACK_KEY: &[u8] = b"strandway on loopback, where anyone may look";

/// Reads `STRANDWAY_SWITCH`, and `_JOB`, `_KEY`, `_MAX` and `_LANES` of it.
pub(in super::super) fn switch_from(
    get: impl Fn(&str) -> Option<String>,
) -> Result<Option<NetworkOptions>, GroupError> {
    let Some(text) = get("STRANDWAY_SWITCH") else { return Ok(None) };
    let wrong = |name: &str, value: &str, wanted: &str| GroupError::Config(format!("{name} is {value:?}: {wanted}"));
    let mut admission = find(&text, PORT, None)
        .map_err(|error| wrong("STRANDWAY_SWITCH", &text, &format!("give the switch's address ({error})")))?;
    let job = get("STRANDWAY_SWITCH_JOB").unwrap_or_else(|| "1".into());
    let number: Option<u16> = job.parse().ok().filter(|job| (1..1_000).contains(job));
    let number = number.ok_or_else(|| wrong("STRANDWAY_SWITCH_JOB", &job, "give the job's number, 1 to 999"))?;
    let port = admission.port().checked_add(number);
    admission.set_port(port.ok_or_else(|| wrong("STRANDWAY_SWITCH", &text, "give a port below 64000"))?);
    let key = match get("STRANDWAY_SWITCH_KEY") {
        Some(path) => std::fs::read(&path).map_err(|error| {
            wrong("STRANDWAY_SWITCH_KEY", &path, &format!("give the file of the job's key ({error})"))
        })?,
        None if is_loopback(*admission.ip()) => LOOPBACK_KEY.to_vec(),
        None => {
            let what = "STRANDWAY_SWITCH needs STRANDWAY_SWITCH_KEY, the file of the job's key, except on loopback";
            return Err(GroupError::Config(what.into()));
        }
    };
    let mut options = NetworkOptions::new(admission, key);
    if let Some(most) = get("STRANDWAY_SWITCH_MAX") {
        let wanted = "give the largest size of a number that switches add as an integer";
        let number: Option<f32> = most.parse().ok().filter(|most: &f32| most.is_finite() && *most > 0.0);
        options.max_abs = number.ok_or_else(|| wrong("STRANDWAY_SWITCH_MAX", &most, wanted))?;
    }
    if let Some(lanes) = get("STRANDWAY_SWITCH_LANES") {
        let wanted = "give the numbers of a fragment, 1 to 2048, as `strandway switch --lanes` allows";
        let number: Option<u16> = lanes.parse().ok().filter(|lanes| (1..=LANES_MAX).contains(lanes));
        options.elements = number.ok_or_else(|| wrong("STRANDWAY_SWITCH_LANES", &lanes, wanted))?;
    }
    Ok(Some(options))
}
