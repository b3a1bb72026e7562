//! Which files of `copy` and `cast`, and what of them.

use crate::Failure;
use crate::args::ChoiceArgs;
use strandway_files::copy::{Exclude, Preserve};
use strandway_import::read_file;

/// The names that are left out.
pub(super) fn exclude(args: &ChoiceArgs) -> Result<Exclude, Failure> {
    let texts = args.exclude_from.iter().map(|path| read_file(path)).collect::<Result<Vec<String>, _>>()?;
    let lines = texts.iter().flat_map(|text| Exclude::lines(text));
    let patterns = args.exclude.iter().map(String::as_str).chain(lines);
    Exclude::new(patterns).map_err(|said| Failure::Usage(format!("--exclude: {said}")))
}

/// The properties of files that are kept.
pub(super) fn preserve(args: &ChoiceArgs, owners: bool) -> Preserve {
    Preserve { sparse: args.sparse, hard_links: args.hard_links, attributes: args.xattrs, owners }
}
