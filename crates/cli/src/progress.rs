//! Watches runs: shows a progress bar for long ones. Ctrl-C (or SIGTERM, SIGHUP) ends a run early; its report contains
//! the measurements so far.

#[cfg(target_os = "linux")]
mod real;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
#[cfg(target_os = "linux")]
pub(crate) use real::RealBar;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strandway_lab::Experiment;
use strandway_sim::Control;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Shorter runs show no progress bar.
const LONG: Duration = Duration::from_millis(800);

/// Interval at which progress is read.
const LOOK: Duration = Duration::from_millis(100);

/// The first Ctrl-C, SIGTERM or SIGHUP asks the run to end; a second one ends the process.
pub(crate) fn handle_interrupts() {
    let result = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
    if result.is_err() {
        crate::outputs::complain("Ctrl-C and SIGTERM will end the run without a report: no handler could be installed");
    }
}

/// True if the user has pressed Ctrl-C, or the process was asked to end.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The bars of all simultaneous runs.
pub(crate) struct Bars {
    bars: Option<MultiProgress>,
}

impl Bars {
    pub(crate) fn new(quiet: bool) -> Bars {
        let wanted = !quiet && std::io::stderr().is_terminal();
        Bars { bars: wanted.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8))) }
    }

    /// Watches a run until the result is dropped.
    pub(crate) fn watch(&self, label: &str, experiment: &Experiment, control: Arc<Control>) -> Watch {
        let work = Work { flows: experiment.plan.flows.len() as u64, hops: experiment.expected_hops().max(1) };
        let bars = self.bars.clone();
        let label = label.to_string();
        let done = Arc::new(AtomicBool::new(false));
        let over = done.clone();
        let thread = std::thread::spawn(move || refresh(bars, &label, work, &control, &over));
        Watch { done, thread: Some(thread) }
    }
}

/// The common bar of many runs; it disappears when it is dropped.
pub(crate) struct All {
    bar: Option<ProgressBar>,
}

impl Bars {
    /// A bar for `runs` runs with about `hops` packet hops together.
    pub(crate) fn all(&self, runs: usize, hops: u64) -> All {
        let bar = self.bars.as_ref().filter(|_| runs > 1).map(|bars| {
            let bar = bars.add(ProgressBar::new(hops.max(1)));
            let form = "[{bar:24}] {msg} of {runs} runs, {elapsed} so far, about {eta} left";
            let style = ProgressStyle::with_template(&form.replace("{runs}", &runs.to_string()));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar.set_message("0");
            bar
        });
        All { bar }
    }
}

impl All {
    /// One of the runs; drop it when the run has ended.
    pub(crate) fn one(&self, experiment: &Experiment) -> One {
        One { bar: self.bar.clone(), hops: experiment.expected_hops() }
    }
}

impl Drop for All {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// One of many runs.
pub(crate) struct One {
    bar: Option<ProgressBar>,
    hops: u64,
}

impl Drop for One {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.inc(self.hops);
            let done = bar.message().parse::<u64>().unwrap_or(0) + 1;
            bar.set_message(done.to_string());
        }
    }
}

/// A watched run; dropping it ends the watch.
pub(crate) struct Watch {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The amount of work of a run.
#[derive(Clone, Copy)]
struct Work {
    flows: u64,
    hops: u64,
}

fn refresh(bars: Option<MultiProgress>, label: &str, work: Work, control: &Control, done: &AtomicBool) {
    let began = Instant::now();
    let mut bar: Option<ProgressBar> = None;
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(LOOK);
        if interrupted() {
            control.stop();
        }
        let elapsed = began.elapsed();
        let Some(bars) = bars.as_ref().filter(|_| elapsed > LONG) else { continue };
        let bar = bar.get_or_insert_with(|| new_bar(bars, label, work));
        let hops = control.packet_hops();
        let per_second = hops as f64 / elapsed.as_secs_f64();
        bar.set_position(hops.min(work.hops));
        // Jobs decide during the run what they send.
        let flows = match work.flows {
            0 => format!("{} flows", control.finished()),
            all => format!("{} of {all} flows", control.finished()),
        };
        bar.set_message(format!(
            "{} simulated, {flows}, {:.1} million hops/s{}",
            control.simulated(),
            per_second / 1e6,
            left(work.hops.saturating_sub(hops), per_second)
        ));
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

/// The estimated time left; empty without an estimate, because retransmissions may make a run longer than expected.
fn left(hops: u64, per_second: f64) -> String {
    if hops == 0 || per_second <= 0.0 {
        return String::new();
    }
    let seconds = (hops as f64 / per_second).ceil();
    match seconds {
        s if s < 120.0 => format!(", about {s:.0} s left"),
        s if s < 7_200.0 => format!(", about {:.0} min left", s / 60.0),
        s if s < 172_800.0 => format!(", about {:.0} h left", s / 3_600.0),
        s => format!(", about {:.0} days left", s / 86_400.0),
    }
}

fn new_bar(bars: &MultiProgress, label: &str, work: Work) -> ProgressBar {
    let bar = bars.add(ProgressBar::new(work.hops));
    let style = ProgressStyle::with_template("{prefix}[{bar:24}] {percent} %, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(if label.is_empty() { String::new() } else { format!("{label} ") });
    bar
}
