//! The progress of tasks between real nodes.

use super::LONG;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;

/// The bar of a task between real nodes; it appears if the task takes long.
pub(crate) struct RealBar {
    bar: Option<ProgressBar>,
    began: Instant,
}

impl RealBar {
    /// A bar for a run, which counts flows.
    pub(crate) fn of_flows(quiet: bool) -> RealBar {
        RealBar::new(quiet, "{wide_bar} {pos} of {len} flows, {elapsed}", "█░")
    }

    /// A bar for a copy, which counts bytes and shows a line of text.
    pub(crate) fn of_copy(quiet: bool) -> RealBar {
        RealBar::new(quiet, "[{bar:24}] {percent} %, {msg}", "=> ")
    }

    fn new(quiet: bool, form: &str, characters: &str) -> RealBar {
        let wanted = !quiet && std::io::stderr().is_terminal();
        let style = ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style.progress_chars(characters);
        let bar = || ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style);
        RealBar { bar: wanted.then(bar), began: Instant::now() }
    }

    /// Prints a line on standard error, above the bar.
    pub(crate) fn line(&self, text: &str) {
        match self.bar.as_ref().filter(|bar| !bar.is_hidden()) {
            Some(bar) => bar.println(text),
            None => crate::outputs::complain(text),
        }
    }

    pub(crate) fn show(&self, done: u64, all: u64, message: impl FnOnce() -> String) {
        let Some(bar) = self.bar.as_ref().filter(|_| self.began.elapsed() > LONG) else { return };
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
        bar.set_length(all.max(1));
        bar.set_position(done);
        bar.set_message(message());
    }
}

impl Drop for RealBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
