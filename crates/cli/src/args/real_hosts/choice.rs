//! Arguments of `copy` and `cast` that say which files, and what of them.

use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct ChoiceArgs {
    /// Leave out names like this, as rsync does: `*.o` at any depth, `/build` at the top, `cache/` directories only,
    /// `logs/**`; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Leave out the names in this file, one pattern per line; # starts a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Keep holes of sparse files; blocks of zeros are not sent
    #[arg(long, short = 'S')]
    pub(crate) sparse: bool,
    /// Keep several names of one file as such
    #[arg(long, short = 'H')]
    pub(crate) hard_links: bool,
    /// Keep extended attributes (user.*)
    #[arg(long, short = 'X')]
    pub(crate) xattrs: bool,
}
