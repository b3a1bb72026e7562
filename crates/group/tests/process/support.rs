//! Ranks as threads, each with a process on the wire of its own.

use std::thread;
use std::time::Duration;
use strandway_group::process::{Buffer, Group, GroupOptions, Process, ProcessOptions, Values};

/// Options on this number of planes.
pub(crate) fn planes(count: usize) -> ProcessOptions {
    ProcessOptions::on(vec!["[::1]:0".parse().expect("an address"); count])
}

/// Runs `work` at `ranks` ranks.
pub(crate) fn ranks<T: Send + 'static>(
    ranks: u32,
    count: usize,
    work: impl Fn(&Group) -> T + Clone + Send + 'static,
) -> Vec<T> {
    with(ranks, &planes(count), move |_, group| work(&group))
}

/// Runs `work` at `ranks` ranks with these options; it may end the process itself.
pub(crate) fn with<T: Send + 'static>(
    ranks: u32,
    options: &ProcessOptions,
    work: impl Fn(&Process, Group) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let store = Values::default();
    let all: Vec<_> = (0..ranks)
        .map(|rank| {
            let (mut store, work, options) = (store.clone(), work.clone(), options.clone());
            thread::spawn(move || {
                let process = Process::join(&mut store, rank, &options).expect("a process");
                let options = GroupOptions { timeout: Duration::from_secs(20), ..GroupOptions::default() };
                let group = Group::form(&process, &mut store, rank, ranks, options).expect("a group");
                work(&process, group)
            })
        })
        .collect();
    all.into_iter().map(|rank| rank.join().expect("no panic")).collect()
}

/// Memory that its buffer keeps alive.
#[allow(unsafe_code, reason = "the buffer owns what it lends")]
pub(crate) fn lent(numbers: Vec<i64>) -> Buffer {
    let (first, length) = (numbers.as_ptr().cast(), size_of_val(numbers.as_slice()));
    // SAFETY: the vector goes along as the owner, and nobody else has it.
    unsafe { Buffer::read(first, length, Some(Box::new(numbers))) }
}

/// Memory for a result that the test ignores.
pub(crate) fn result(length: usize) -> Buffer {
    inout(vec![0; length])
}

/// Numbers that become a result that the test ignores.
#[allow(unsafe_code, reason = "the buffer owns what it lends")]
pub(crate) fn inout(mut numbers: Vec<i64>) -> Buffer {
    let length = numbers.len();
    let first = numbers.as_mut_ptr().cast();
    // SAFETY: the vector goes along as the owner, and nobody else has it.
    unsafe { Buffer::write(first, 8 * length, Some(Box::new(numbers))) }
}

/// Numbers that the caller looks at when the work has ended, and keeps until then.
#[allow(unsafe_code, reason = "the caller keeps what it lends")]
pub(crate) fn shared(numbers: &mut [i64]) -> Buffer {
    // SAFETY: callers wait for the work before they read or drop the numbers.
    unsafe { Buffer::write(numbers.as_mut_ptr().cast(), size_of_val(numbers), None) }
}
