//! EV profiles: which entropy values a connection's set is made of.
//!
//! OCP MRC 1.0 has three modes. AUTO: the NIC chooses. EXPLICIT: the controller writes every value. GENERATED: the
//! values are expanded from fields. An entropy value has 32 bits; its lowest 16 are the plane (4 bits) and the number
//! of the path in the plane (12 bits), in our layout ([`ev_of`]).

use crate::packet::PathId;
use crate::path::spread::PORTS_MAX;

/// Bits of an entropy value that are the number of a path.
const PATH_BITS: u32 = 12;

/// The most values of a profile; ours, as many as `active` and `backup` may have together.
pub const EVS_MAX: usize = 8192;

/// The entropy value of a path: its plane in bits 12 to 15, its number in the lowest 12. `None` if a number does not
/// fit.
pub const fn ev_of(path: PathId) -> Option<u32> {
    let (plane, number) = (path.port() as u32, path.entropy());
    if plane < 16 && number < 1 << PATH_BITS { Some(plane << PATH_BITS | number) } else { None }
}

/// The path of an entropy value; its upper 16 bits do not name a path.
pub const fn path_of_ev(ev: u32) -> PathId {
    PathId::new((ev >> PATH_BITS & 0xf) as u8, ev & ((1 << PATH_BITS) - 1))
}

/// One field of generated entropy values (OCP MRC 1.0, EV profile fields).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EvField {
    /// Its bits, 1 to 32.
    pub width: u8,
    /// Its value before bits are written into it.
    pub init: u32,
    /// Smaller values of the bits written are left out.
    pub min: u32,
    /// Larger values of the bits written are left out.
    pub max: u32,
    /// The bits that vary; zero for a constant field, which also has `min` and `max` zero.
    pub mask: u32,
}

/// The entropy values of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum EvProfile {
    /// A random subset of all paths, equally many of each plane: `active` of them in use, `backup` in reserve.
    #[default]
    Auto,
    /// Exactly these.
    Explicit(Vec<PathId>),
    /// The values that these fields take, the first field in the most significant bits, counted up; at most `count`.
    Generated {
        /// The fields, from the most significant bits on.
        fields: Vec<EvField>,
        /// The most values.
        count: u32,
    },
}

impl EvProfile {
    /// Checks the fields and values.
    ///
    /// # Errors
    /// A sentence that names the wrong value.
    pub fn check(&self) -> Result<(), String> {
        match self {
            EvProfile::Auto => return Ok(()),
            EvProfile::Explicit(paths) => {
                if let Some(path) = paths.iter().find(|path| usize::from(path.port()) >= PORTS_MAX) {
                    return Err(format!("plane {} does not exist: a NIC has at most {PORTS_MAX} ports", path.port()));
                }
                if let Some(at) = (1..paths.len()).find(|&at| paths[..at].contains(&paths[at])) {
                    let path = paths[at];
                    return Err(format!("p{}:{} is in the list twice", path.port(), path.entropy()));
                }
            }
            EvProfile::Generated { fields, .. } => {
                let width: u32 = fields.iter().map(|field| u32::from(field.width)).sum();
                if fields.is_empty() || width > 32 {
                    return Err(format!("fields of {width} bits do not fit an entropy value of 32"));
                }
                for EvField { width, init, min, max, mask } in fields {
                    let fits = |value: u32| *width >= 32 || value >> width == 0;
                    let bits = mask.count_ones();
                    let room = if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
                    if *width == 0 || !fits(*init) || !fits(*mask) || *max > room || min > max {
                        return Err(format!(
                            "a field of {width} bits with init {init}, min {min}, max {max} and mask {mask:#x}: init and mask must fit \
                             the width, max the {bits} bits of the mask, and min must not exceed max"
                        ));
                    }
                }
            }
        }
        let paths = self.paths().unwrap_or_default();
        match paths.len() {
            0 => Err("has no entropy values".into()),
            count if count > EVS_MAX => Err(format!("{count} entropy values are more than {EVS_MAX}")),
            _ => Ok(()),
        }
    }

    /// Its paths, in order, each once; `None` for [`EvProfile::Auto`]. At most one more than [`EVS_MAX`].
    pub fn paths(&self) -> Option<Vec<PathId>> {
        match self {
            EvProfile::Auto => None,
            EvProfile::Explicit(paths) => Some(paths.iter().copied().take(EVS_MAX + 1).collect()),
            EvProfile::Generated { fields, count } => {
                let bits: u32 = fields.iter().map(|field| field.mask.count_ones()).sum();
                let numbers = 0..1u64 << bits.min(24);
                let mut paths: Vec<PathId> = Vec::new();
                for number in numbers {
                    if paths.len() >= (*count as usize).min(EVS_MAX + 1) {
                        break;
                    }
                    if let Some(path) = expand(fields, number, bits).map(path_of_ev)
                        && !paths.contains(&path)
                    {
                        paths.push(path);
                    }
                }
                Some(paths)
            }
        }
    }
}

/// The value that the fields take for a number: the bits of the number, the most significant first, are written at the
/// mask bits of the fields, the most significant first. `None` if a field leaves its value out.
fn expand(fields: &[EvField], number: u64, bits: u32) -> Option<u32> {
    let (mut left, mut value) = (bits, 0u64);
    for field in fields {
        let (mut written, mut part) = (0u32, field.init);
        for at in (0..u32::from(field.width)).rev().filter(|at| field.mask >> at & 1 == 1) {
            left -= 1;
            let bit = (number >> left & 1) as u32;
            written = written << 1 | bit;
            part = (part & !(1 << at)) | (bit << at);
        }
        if field.mask != 0 && !(field.min..=field.max).contains(&written) {
            return None;
        }
        value = value << field.width | u64::from(part);
    }
    Some(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(width: u8, mask: u32, min: u32, max: u32) -> EvField {
        EvField { width, init: 0, min, max, mask }
    }

    fn named(paths: &[PathId]) -> Vec<(u8, u32)> {
        paths.iter().map(|path| (path.port(), path.entropy())).collect()
    }

    #[test]
    fn fields_expand_bit_by_bit_and_leave_out_what_is_not_between_their_bounds() {
        let profile = EvProfile::Generated { fields: vec![field(4, 1, 0, 1), field(12, 0b11, 1, 3)], count: 100 };
        let paths = profile.paths().expect("generated");
        assert_eq!(named(&paths), [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]);
        assert_eq!(profile.check(), Ok(()));
        // A number's bits go to the mask's bits, wherever these are; other bits keep their first value.
        let apart = EvField { width: 12, init: 0b100, min: 0, max: 3, mask: 0b1010 };
        let profile = EvProfile::Generated { fields: vec![apart], count: 3 };
        assert_eq!(named(&profile.paths().expect("generated")), [(0, 0b0100), (0, 0b0110), (0, 0b1100)]);
        // Fields narrower than the format fill it with zeros from the left.
        let all = EvProfile::Generated {
            fields: vec![field(16, 0, 0, 0), field(4, 0b1, 1, 1), field(12, 0, 0, 0)],
            count: 9,
        };
        assert_eq!(named(&all.paths().expect("generated")), [(1, 0)]);
    }

    #[test]
    fn values_that_cannot_be_a_profile_are_named() {
        let said = |profile: EvProfile| profile.check().expect_err("wrong");
        let generated = |fields: Vec<EvField>| EvProfile::Generated { fields, count: 9 };
        assert!(said(generated(vec![])).contains("0 bits"));
        assert!(said(generated(vec![field(30, 1, 0, 1), field(3, 0, 0, 0)])).contains("33 bits"));
        for wrong in
            [field(2, 0b100, 0, 1), field(2, 0b1, 0, 2), field(2, 0b1, 1, 0), EvField { init: 4, ..field(2, 1, 0, 1) }]
        {
            assert!(said(generated(vec![wrong])).contains("must fit"), "{wrong:?}");
        }
        assert!(said(EvProfile::Explicit(vec![])).contains("has no entropy values"));
        assert!(said(EvProfile::Explicit(vec![PathId::new(0, 1); 2])).contains("p0:1 is in the list twice"));
        assert!(
            said(EvProfile::Generated { fields: vec![field(16, 0xffff, 0, 0xffff)], count: 10_000 })
                .contains("more than 8192")
        );
        assert_eq!(EvProfile::Auto.paths(), None);
    }

    #[test]
    fn an_entropy_value_names_a_path_both_ways() {
        for path in [PathId::new(0, 0), PathId::new(7, 4095), PathId::new(15, 9)] {
            assert_eq!(ev_of(path).map(path_of_ev), Some(path));
        }
        assert_eq!((ev_of(PathId::new(16, 0)), ev_of(PathId::new(0, 4096))), (None, None));
    }
}
