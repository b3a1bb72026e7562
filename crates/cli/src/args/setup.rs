//! The arguments of `strandway completions` and `strandway man`.

use clap::Args as ClapArgs;
use clap_complete::Shell;
use std::path::PathBuf;

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  strandway completions bash > ~/.local/share/bash-completion/completions/strandway
  strandway completions zsh > ~/.zfunc/_strandway
  strandway completions fish > ~/.config/fish/completions/strandway.fish";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  strandway man | man -l -                             read it here
  sudo strandway man --into /usr/local/share/man/man1  install the pages of all commands";

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ManArgs {
    /// Write one page per command into this directory; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}
