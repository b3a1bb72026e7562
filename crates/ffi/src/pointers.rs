//! Pointers of C, checked as far as they can be: null and misaligned ones are errors.
#![allow(unsafe_code, reason = "memory of a caller in C is read and written by address")]

use crate::Failure;
use std::ffi::{CStr, c_char};

/// Reads a value; `what` names it in the error.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to a value of the type.
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub unsafe fn read<T: Copy>(from: *const T, what: &str) -> Result<T, Failure> {
    if from.is_null() || !from.is_aligned() {
        return Err(Failure::invalid(format!("{what} is no pointer to a value")));
    }
    // SAFETY: the pointer is neither null nor misaligned, and the caller promises the rest.
    Ok(unsafe { from.read() })
}

/// Writes a result.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to room for a value of the type.
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub unsafe fn write<T>(to: *mut T, value: T, what: &str) -> Result<(), Failure> {
    check(to, what)?;
    // SAFETY: the pointer is neither null nor misaligned, and the caller promises the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Is there a place for a result? Asked before a call does what the result tells of.
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub fn check<T>(to: *mut T, what: &str) -> Result<(), Failure> {
    match to.is_null() || !to.is_aligned() {
        true => Err(Failure::invalid(format!("{what} is no pointer to room for the result"))),
        false => Ok(()),
    }
}

/// Copies a text.
///
/// # Safety
/// A pointer that is not null leads to a text with a zero at its end.
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub unsafe fn text(from: *const c_char, what: &str) -> Result<Option<String>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises that a zero ends it.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(|text| Some(text.to_string())).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// Copies a list of texts, of which there are at most `most`.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to `count` pointers, each as for [`text`].
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub unsafe fn texts(from: *const *const c_char, count: usize, most: usize, what: &str) -> Result<Vec<String>, Failure> {
    if count > most {
        return Err(Failure::invalid(format!("{count} {what}: give at most {most}")));
    }
    if count > 0 {
        // SAFETY: a list that is not empty has a first entry.
        unsafe { read(from, what) }?;
    }
    (0..count)
        .map(|at| {
            // SAFETY: the list has `count` entries, as the caller promises; its beginning is checked.
            let one = unsafe { text(from.add(at).read(), what) }?;
            one.ok_or_else(|| Failure::invalid(format!("entry {at} of {what} is null")))
        })
        .collect()
}

/// Copies bytes, of which there are at most `most`.
///
/// # Safety
/// A pointer that is not null leads to `count` bytes.
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub unsafe fn bytes(from: *const u8, count: usize, most: usize, what: &str) -> Result<Vec<u8>, Failure> {
    if from.is_null() || count > most {
        return Err(Failure::invalid(format!("{what}: give a pointer to at most {most} bytes, not {count}")));
    }
    // SAFETY: the pointer is not null, the count is small, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(from, count) }.to_vec())
}

/// Copies a list of values, of which there are at most `most`.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to `count` values.
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub unsafe fn values<T: Copy>(from: *const T, count: usize, most: usize, what: &str) -> Result<Vec<T>, Failure> {
    if from.is_null() || !from.is_aligned() || count > most {
        return Err(Failure::invalid(format!("{what}: give a pointer to at most {most} values, not {count}")));
    }
    // SAFETY: the pointer is neither null nor misaligned, the count is small, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(from, count) }.to_vec())
}

/// Writes a text with a zero at its end into `capacity` bytes.
///
/// # Safety
/// A pointer that is not null leads to room for `capacity` bytes.
///
/// # Errors
/// If the pointer cannot be followed, or what it leads to is not valid.
pub unsafe fn write_text(to: *mut c_char, capacity: usize, text: &str) -> Result<(), Failure> {
    check(to, "text")?;
    if text.len() >= capacity {
        return Err(Failure::invalid(format!("the text needs {} bytes, but has room for {capacity}", text.len() + 1)));
    }
    // SAFETY: the text and its zero fit the room, and lie elsewhere.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}
