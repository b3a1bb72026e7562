//! Files of algorithms (MSCCL) that the rules of a group name: each rank reads its own copy.

use crate::error::GroupError;
use std::io::Read;
use std::sync::Arc;
use strandway_collective::Recipe;
use strandway_collective::plan::Algorithms;

/// The longest file that is read: ours. MSCCL's own for 64 GPUs have some megabytes.
const BYTES_MAX: u64 = 64 << 20;

/// Loads the files of these rules.
///
/// # Errors
/// If one cannot be read, does not compute its collective, or is not the file of rank 0; the message names it.
pub(super) fn load(algorithms: &mut Algorithms) -> Result<(), GroupError> {
    algorithms.load(read).map_err(|error| GroupError::Config(format!("an algorithm from a file: {error}")))
}

fn read(path: &str) -> Result<(Arc<Recipe>, String), String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("{path}: {error}: every rank reads this file"))?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| format!("{path}: {error}"))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("{path} has more than {BYTES_MAX} bytes: name a file of MSCCL"));
    }
    let recipe = strandway_import::msccl::for_data(path, &text).map_err(|problems| problems.to_string())?;
    Ok((Arc::new(recipe), blake3::hash(text.as_bytes()).to_hex().to_string()))
}
