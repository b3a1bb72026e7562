//! Asks the processor to bring memory into its cache before it is needed.
//!
//! A plain read would do the same, but the processor cannot complete later instructions while it waits for the value.
//! A prefetch has no value, so nothing waits for it. Only this file of the crate has `unsafe` code.
#![allow(unsafe_code, reason = "a prefetch is an intrinsic of the processor")]

/// Brings the cache line at `address` into the cache, if that processor has an instruction for it. Changes nothing.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint. It gives the program no value, changes no memory and never faults, whatever the
        // address. Its instruction is part of SSE, which every x86-64 processor has.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Brings all cache lines of a value into the cache. Their number is known when this is compiled, so there is no loop.
#[inline(always)]
pub(crate) fn prefetch_value<T>(value: &T) {
    let first = std::ptr::from_ref(value).cast::<u8>();
    for line in 0..size_of::<T>() / 64 {
        prefetch(first.wrapping_add(64 * line));
    }
    // A value need not begin where a line begins.
    prefetch(first.wrapping_add(size_of::<T>().saturating_sub(1)));
}

/// Brings all cache lines of a slice into the cache.
#[inline(always)]
pub(crate) fn prefetch_all<T>(value: &[T]) {
    let first = value.as_ptr().cast::<u8>();
    // A slice need not begin where a line begins.
    let skew = first.addr() % 64;
    for at in (0..skew + size_of_val(value)).step_by(64) {
        prefetch(first.wrapping_sub(skew).wrapping_add(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_faults_and_no_value_changes() {
        for address in [0, 1, 4095, usize::MAX / 2, usize::MAX] {
            prefetch(std::ptr::without_provenance(address));
        }
        let value = [7u8; 200];
        prefetch_value(&value);
        prefetch_value(&());
        prefetch_all(&value[3..77]);
        assert_eq!(value, [7u8; 200]);
    }
}
