//! The functions of the header, in its order.
#![allow(unsafe_code, reason = "functions with names for C, and pointers as arguments")]

use crate::raw::{self, Answers};
use crate::registry::{Entry, LABS, add, lock, run};
use crate::structs::{ABI_VERSION, CEvent, CResult, Handler, INVALID, SCENARIO, SYSTEM};
use std::ffi::{c_char, c_void};
use std::io;
use std::path::Path;
use strandway_ffi::{Failure, last_error};
use strandway_lab::live::{LiveError, LiveOutcome};
use strandway_lab::output::Output;
use strandway_lab::{Lab, facts, pcap};
use strandway_proto::{HostId, Span};
use strandway_report::{csv, html, markdown, text};
use strandway_scenario::Scenario;

/// The most changes of a scenario; ours.
const CHANGES_MAX: usize = 1000;

fn refused(error: LiveError) -> Failure {
    Failure::new(INVALID, error.to_string())
}

fn wrong(text: &str) -> Failure {
    Failure::new(INVALID, text.to_string())
}

/// The version of the interface that this library has.
#[unsafe(no_mangle)]
pub extern "C" fn swb_abi_version() -> u32 {
    ABI_VERSION
}

/// The text of the last call of this thread that failed.
#[unsafe(no_mangle)]
pub extern "C" fn swb_last_error() -> *const c_char {
    last_error()
}

/// Opens a scenario file.
///
/// # Safety
/// As strandway_backend.h says for pointers: each is null, or leads to what it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_open(
    scenario: *const c_char,
    changes: *const *const c_char,
    changes_count: usize,
    lab: *mut u64,
) -> i32 {
    run(|| {
        raw::check(lab, "lab")?;
        // SAFETY: the caller's pointers lead to what they name.
        let (file, changes) =
            unsafe { (raw::text(scenario, "scenario")?, raw::texts(changes, changes_count, CHANGES_MAX, "changes")?) };
        let opened = || {
            let mut scenario = Scenario::load(Path::new(&file))?;
            changes.iter().try_for_each(|change| scenario.set(change))?;
            Lab::open(&scenario)
        };
        let number = add(opened().map_err(|problems| Failure::new(SCENARIO, problems.to_string()))?);
        // SAFETY: the pointer was checked above.
        unsafe { raw::write(lab, number, "lab") }
    })
}

/// Closes a lab.
#[unsafe(no_mangle)]
pub extern "C" fn swb_close(lab: u64) -> i32 {
    run(|| LABS.remove(lab).map(drop))
}

/// Says how many hosts there are.
///
/// # Safety
/// As strandway_backend.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_hosts(lab: u64, hosts: *mut u32) -> i32 {
    run(|| {
        let count = LABS.find(lab)?.lab.hosts();
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(hosts, count, "hosts") }
    })
}

/// Says how fast a host's NIC is.
///
/// # Safety
/// As strandway_backend.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_rate(lab: u64, bits_per_second: *mut u64) -> i32 {
    run(|| {
        let rate = LABS.find(lab)?.lab.rate().0;
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(bits_per_second, rate, "bits_per_second") }
    })
}

/// Says the time of the present event.
///
/// # Safety
/// As strandway_backend.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_now(lab: u64, now: *mut u64) -> i32 {
    run(|| {
        let time = LABS.find(lab)?.lab.now().0;
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(now, time, "now") }
    })
}

/// Opens a connection before the run.
#[unsafe(no_mangle)]
pub extern "C" fn swb_connect(lab: u64, from: u32, to: u32) -> i32 {
    run(|| LABS.find(lab)?.lab.connect(HostId(from), HostId(to)).map_err(refused))
}

/// Posts a message.
///
/// # Safety
/// As strandway_backend.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_post(lab: u64, from: u32, to: u32, bytes: u64, tag: u64, message: *mut u64) -> i32 {
    run(|| {
        raw::check(message, "message")?;
        let number = LABS.find(lab)?.lab.post(HostId(from), HostId(to), bytes, tag).map_err(refused)?;
        // SAFETY: the pointer was checked above.
        unsafe { raw::write(message, number, "message") }
    })
}

/// Sets a timer.
#[unsafe(no_mangle)]
pub extern "C" fn swb_schedule(lab: u64, host: u32, delay: u64, number: u64) -> i32 {
    run(|| LABS.find(lab)?.lab.schedule(HostId(host), Span(delay), number).map_err(refused))
}

/// Runs until nothing is left to do.
///
/// # Safety
/// The handler takes these arguments and does not throw, as strandway_backend.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_run(lab: u64, handler: Handler, context: *mut c_void) -> i32 {
    run(|| {
        let entry = LABS.find(lab)?;
        let answers = Answers::new(handler, context)?;
        let done = entry.lab.run(move |lab, event| answers.answer(&CEvent::of(lab, event))).map_err(refused)?;
        *lock(&entry.done) = Some(done);
        Ok(())
    })
}

/// Runs to the next event.
///
/// # Safety
/// As strandway_backend.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_next_event(lab: u64, event: *mut CEvent, any: *mut i32) -> i32 {
    run(|| {
        raw::check(event, "event")?;
        raw::check(any, "any")?;
        let entry = LABS.find(lab)?;
        let next = next_of(&entry)?;
        // SAFETY: the pointers were checked above.
        unsafe {
            raw::write(any, i32::from(next.is_some()), "any")?;
            raw::write(event, next.unwrap_or_default(), "event")
        }
    })
}

fn next_of(entry: &Entry) -> Result<Option<CEvent>, Failure> {
    if lock(&entry.done).is_some() {
        return Ok(None);
    }
    let mut steps = lock(&entry.steps);
    if let Some(event) = steps.get_or_insert_with(|| entry.lab.steps()).next_event() {
        return Ok(Some(CEvent::of(&entry.lab, &event)));
    }
    let done = steps.take().map(|steps| steps.finish().map_err(refused)).transpose()?;
    *lock(&entry.done) = done;
    Ok(None)
}

/// Asks the run to end soon.
#[unsafe(no_mangle)]
pub extern "C" fn swb_stop(lab: u64) -> i32 {
    run(|| {
        LABS.find(lab)?.lab.stop();
        Ok(())
    })
}

/// Says how a run ended.
///
/// # Safety
/// As strandway_backend.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_result_of(lab: u64, result: *mut CResult) -> i32 {
    run(|| {
        let entry = LABS.find(lab)?;
        let done = lock(&entry.done).as_ref().map(CResult::of).ok_or_else(|| wrong("the run is not over"))?;
        // SAFETY: the caller gives room for a result.
        unsafe { raw::write(result, done, "result") }
    })
}

/// Writes a report.
///
/// # Safety
/// As strandway_backend.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn swb_report(lab: u64, file: *const c_char) -> i32 {
    run(|| {
        // SAFETY: the caller's pointer leads to a text.
        let file = unsafe { raw::text(file, "file") }?;
        let entry = LABS.find(lab)?;
        let done = lock(&entry.done);
        write_report(done.as_ref().ok_or_else(|| wrong("the run is not over"))?, Path::new(&file))
    })
}

fn write_report(done: &LiveOutcome, path: &Path) -> Result<(), Failure> {
    let (report, measured) = (&done.outcome.report, &done.outcome.measurements);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let failed = |error: io::Error| Failure::new(SYSTEM, format!("{}: {error}", path.display()));
    let contents = match ending {
        "html" => html::report(report),
        "json" => report.to_json(),
        "md" => markdown::report(report),
        "txt" => text::report(report),
        "csv" => csv::flows(facts::flow_rows(&done.experiment, measured)),
        "pcapng" if done.experiment.plan.capture.is_none() => {
            return Err(wrong("no packets were recorded: write capture = \"host0\" under [run] of the scenario"));
        }
        "pcapng" => {
            let output = Output::open(path).map_err(failed)?;
            return output.finish_with(|out| pcap::write(&done.experiment, measured, out)).map(drop).map_err(failed);
        }
        _ => return Err(wrong("the file's ending says the kind of report: html, json, md, txt, csv or pcapng")),
    };
    Output::open(path).and_then(|output| output.finish(contents.as_bytes())).map_err(failed)
}
