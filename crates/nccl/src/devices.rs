//! The devices that NCCL sees, from the environment and the interfaces of the host.

use crate::handle::PLANES_MAX;
use std::ffi::CString;
use std::fs;
use strandway_mover::Options;
use strandway_mover::environment::{self, PlaneInterface};

/// Connections of a node: two for each peer and channel of a large job.
const CONNECTIONS_MAX: usize = 4_096;

/// A device: one or several planes.
pub(crate) struct Device {
    pub(crate) options: Options,
    pub(crate) name: CString,
    /// Its directory in /sys, if it has one.
    pub(crate) pci_path: Option<CString>,
    /// Mb/s of all its planes.
    pub(crate) speed: u32,
    /// Its number, if each plane is a device.
    pub(crate) plane: Option<i16>,
}

/// The devices that the variables of the environment and the interfaces give.
///
/// # Errors
/// A line on what is wrong, with the remedy.
pub(crate) fn devices(get: impl Fn(&str) -> Option<String>) -> Result<Vec<Device>, String> {
    let remedy = "`head -c 32 /dev/urandom > key`, copy it to all hosts, and set STRANDWAY_KEY_FILE";
    let key =
        environment::key(&get)?.ok_or_else(|| format!("no key: {remedy}; or STRANDWAY_KEY with hexadecimal digits"))?;
    let planes = environment::planes(&get)?;
    if planes.len() > PLANES_MAX {
        let count = planes.len();
        return Err(format!("{count} planes, but a handle of NCCL has room for {PLANES_MAX}: set STRANDWAY_IFNAME"));
    }
    let each = match get("STRANDWAY_NCCL_DEVICES").as_deref() {
        None | Some("one") => false,
        Some("each") => true,
        Some(other) => return Err(format!("STRANDWAY_NCCL_DEVICES is {other}: give one or each")),
    };
    let sets: Vec<Vec<PlaneInterface>> =
        if each { planes.into_iter().map(|plane| vec![plane]).collect() } else { vec![planes] };
    sets.iter().enumerate().map(|(at, set)| device(&get, &key, set, each.then_some(at as i16))).collect()
}

fn device(
    get: &impl Fn(&str) -> Option<String>,
    key: &[u8],
    planes: &[PlaneInterface],
    number: Option<i16>,
) -> Result<Device, String> {
    let options = Options { connections_max: CONNECTIONS_MAX, ..environment::options(get, key, planes)? };
    let first: &str = planes.first().map_or("", |plane| plane.device.as_str());
    let pci = fs::canonicalize(format!("/sys/class/net/{first}/device")).ok();
    let names: Vec<&str> = planes.iter().map(|plane| plane.device.as_str()).collect();
    Ok(Device {
        options,
        name: CString::new(names.join("+")).unwrap_or_default(),
        pci_path: pci.and_then(|path| CString::new(path.to_string_lossy().into_owned()).ok()),
        speed: planes.iter().map(PlaneInterface::mbps).sum(),
        plane: number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_without_a_key_are_refused_with_a_remedy() {
        let with = |name: &'static str, value: &'static str| move |of: &str| (of == name).then(|| value.to_string());
        assert!(devices(|_| None).err().expect("no key").contains("STRANDWAY_KEY_FILE"));
        assert!(devices(with("STRANDWAY_KEY", "0g")).err().expect("no digits").contains("hexadecimal"));
        assert!(devices(with("STRANDWAY_KEY", "012")).err().expect("odd").contains("hexadecimal"));
        assert!(devices(with("STRANDWAY_KEY", "00")).err().expect("short").contains("16"));
        let many = |name: &str| match name {
            "STRANDWAY_KEY" => Some("0123456789abcdefABCDEF0123456789".to_string()),
            "STRANDWAY_PLANES" => Some(["10.0.0.1"; 7].join(",")),
            _ => None,
        };
        assert!(devices(many).err().expect("too many").contains("room for 6"));
        assert!(devices(with("STRANDWAY_KEY_FILE", "/no/such")).err().expect("no file").contains("/no/such"));
        let get = |name: &str| match name {
            "STRANDWAY_KEY" => Some("0123456789abcdefABCDEF0123456789".to_string()),
            "STRANDWAY_PLANES" => Some("127.0.0.1,127.0.0.2".to_string()),
            "STRANDWAY_NCCL_DEVICES" => Some("each".to_string()),
            _ => None,
        };
        let found = devices(get).expect("two devices");
        assert_eq!(
            found.iter().map(|one| (one.plane, one.speed)).collect::<Vec<_>>(),
            [(Some(0), 10_000), (Some(1), 10_000)]
        );
    }
}
