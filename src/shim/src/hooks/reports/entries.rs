//! Lists of processes: forms of their entries, and delivery to the program.

use crate::driver_calls::nvml::answers::{
    Blank, LONG_ENTRY, NO_INSTANCE, SHORT_ENTRY, UNWRITTEN, USUAL_ENTRY, UnknownEntry, driver_version,
};
use core::ffi::c_uint;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::types::{
    Status, nvmlProcessDetail_v1_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t, status,
};

/// Report of NVML about one process.
pub(crate) trait Listed {
    fn pid(&self) -> c_uint;
}

/// An entry of a process list.
pub(crate) trait Form: Copy + Listed + Blank {
    /// Returns the entry with at most `bytes` bytes of memory. "Not available" is more than any number.
    fn at_most(self, bytes: u64) -> Self;
    /// Returns an entry for a process that the driver does not name.
    fn of_ledger(pid: c_uint, held: u64) -> Self;
    /// Returns the entry in these words. Fields for which there are none are as for [`of_ledger`](Self::of_ledger).
    fn of_words(words: &[u64]) -> Self;
}

macro_rules! listed {
    ($($form:ident),*) => { $(
        impl Listed for $form {
            fn pid(&self) -> c_uint {
                self.pid
            }
        }
    )* };
}

listed! {
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlProcessDetail_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessUtilizationInfo_v1_t
}

impl Listed for c_uint {
    fn pid(&self) -> c_uint {
        *self
    }
}

impl Form for nvmlProcessInfo_v1_t {
    fn at_most(self, bytes: u64) -> Self {
        Self { used_gpu_memory: self.used_gpu_memory.min(bytes), ..self }
    }

    fn of_ledger(pid: c_uint, held: u64) -> Self {
        Self { pid, used_gpu_memory: held }
    }

    fn of_words(words: &[u64]) -> Self {
        let detail = nvmlProcessDetail_v1_t::of_words(words);
        Self { pid: detail.pid, used_gpu_memory: detail.used_gpu_memory }
    }
}

impl Form for nvmlProcessInfo_v2_t {
    fn at_most(self, bytes: u64) -> Self {
        Self { used_gpu_memory: self.used_gpu_memory.min(bytes), ..self }
    }

    fn of_ledger(pid: c_uint, held: u64) -> Self {
        Self { pid, used_gpu_memory: held, ..Self::BLANK }
    }

    fn of_words(words: &[u64]) -> Self {
        let nvmlProcessDetail_v1_t { pid, used_gpu_memory, gpu_instance_id, compute_instance_id, .. } =
            nvmlProcessDetail_v1_t::of_words(words);
        Self { pid, used_gpu_memory, gpu_instance_id, compute_instance_id }
    }
}

impl Form for nvmlProcessDetail_v1_t {
    fn at_most(self, bytes: u64) -> Self {
        Self {
            used_gpu_memory: self.used_gpu_memory.min(bytes),
            used_gpu_cc_protected_memory: self.used_gpu_cc_protected_memory.min(bytes),
            ..self
        }
    }

    fn of_ledger(pid: c_uint, held: u64) -> Self {
        Self { pid, used_gpu_memory: held, ..Self::BLANK }
    }

    fn of_words(words: &[u64]) -> Self {
        let word = |place: usize| words.get(place).copied();
        let (gpu_instance_id, compute_instance_id) = word(2).map_or((NO_INSTANCE, NO_INSTANCE), halves);
        Self {
            pid: word(0).map_or(0, |word| halves(word).0),
            used_gpu_memory: word(1).unwrap_or(0),
            gpu_instance_id,
            compute_instance_id,
            used_gpu_cc_protected_memory: word(3).unwrap_or(0),
        }
    }
}

/// Returns two fields of 32 bits in the order in which they lie in memory.
fn halves(word: u64) -> (c_uint, c_uint) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (c_uint::from_ne_bytes([a, b, c, d]), c_uint::from_ne_bytes([e, f, g, h]))
}

/// Returns the first `count` entries of an answer whose form is known now.
pub(crate) fn entries<T: Form>(answer: &[UnknownEntry], count: usize) -> impl Iterator<Item = T> {
    let each = size_of::<T>() / size_of::<u64>();
    answer.as_flattened().chunks_exact(each).take(count).map(T::of_words)
}

/// Returns how many words each of `count` entries has: by the words that the driver wrote, or else by the driver's version.
pub(crate) fn words(answer: &[UnknownEntry], count: usize) -> usize {
    let written = answer.as_flattened().iter().rposition(|word| *word != UNWRITTEN);
    let end = written.map_or(0, |last| last.saturating_add(1));
    let told = [SHORT_ENTRY, USUAL_ENTRY, LONG_ENTRY]
        .into_iter()
        .find(|each| count > 0 && each.checked_mul(count) == Some(end));
    told.unwrap_or_else(|| if is_early_535() { LONG_ENTRY } else { USUAL_ENTRY })
}

/// Returns true if this is one of the drivers whose third form is longer than declared.
fn is_early_535() -> bool {
    driver_version().is_some_and(|(major, minor)| major == 535 && (43..=86).contains(&minor))
}

/// Gives the program `list`, or tells how much room the list needs.
///
/// # Safety
/// `count` is null or valid, and says how many entries there is room for at `to`, which may be null.
pub(crate) unsafe fn deliver<T: Copy>(list: &[T], count: *mut c_uint, to: *mut T) -> Status {
    let needed = c_uint::try_from(list.len()).unwrap_or(c_uint::MAX);
    // SAFETY: by this function's contract `count` is null or valid.
    let room = unsafe { read_in(count) }.unwrap_or(0);
    // SAFETY: by this function's contract `count` is null or valid.
    unsafe { write_out(count, needed) };
    if room < needed {
        return status::NVML_INSUFFICIENT_SIZE;
    }
    if to.is_null() && needed > 0 {
        return status::NVML_INVALID_ARGUMENT;
    }
    for (place, entry) in list.iter().enumerate() {
        // SAFETY: by this function's contract `to` has room for `room` entries, and the list is not longer.
        unsafe { write_out(to.wrapping_add(place), *entry) };
    }
    status::SUCCESS
}
