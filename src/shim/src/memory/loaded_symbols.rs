//! Look-ups of code whose memory the library has measured. A program may look up the same function before every launch, and only
//! the first look-up can load code.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering};

/// Number of look-ups that the table holds. If two look-ups have the same place, the table holds the later one. The library then
/// measures the earlier one again.
const REMEMBERED_LOOK_UPS: usize = 1024;

/// Look-ups that have already loaded all code that they can load.
#[derive(Debug)]
pub(crate) struct LoadedSymbols(Box<[AtomicU64]>);

impl Default for LoadedSymbols {
    fn default() -> Self {
        Self(core::iter::repeat_with(AtomicU64::default).take(REMEMBERED_LOOK_UPS).collect())
    }
}

/// Look-up, as a hash. 0 marks an empty place of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LookUpKey(u64);

impl LookUpKey {
    /// Returns the key of a look-up in a module, library or kernel. `scope` distinguishes look-ups with the same handle. It is
    /// the context into which the handle is loaded, or the kind of the requested object.
    pub(crate) fn new(handle: usize, scope: usize) -> Self {
        Self::of_numbers(handle as u64, scope as u64)
    }

    /// Returns the key of code in a context, by the number of the code and the number of the context.
    pub(crate) fn of_numbers(code: u64, context: u64) -> Self {
        Self(0xcbf2_9ce4_8422_2325).with(code).with(context)
    }

    /// Adds a name to the key.
    ///
    /// # Safety
    /// `name` is null or a string that ends in zero.
    pub(crate) unsafe fn of_name(self, name: *const c_char) -> Self {
        if name.is_null() {
            return self;
        }
        // SAFETY: `from_ptr` requires a string that ends in zero. By this method's contract `name`, which is not null, is one.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_bytes().iter().fold(self, |key, byte| key.with(u64::from(*byte)))
    }

    /// Returns the key of a name alone.
    pub(crate) fn of_text(name: &CStr) -> Self {
        // SAFETY: `of_name` requires a string that ends in zero, as every `CStr` does.
        unsafe { Self::new(0, 0).of_name(name.as_ptr()) }
    }

    /// Returns the key as a number.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Adds a word to the key, by FNV-1a over words instead of bytes.
    fn with(self, word: u64) -> Self {
        Self((self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23))
    }
}

impl LoadedSymbols {
    /// Returns true if this look-up was measured.
    pub(crate) fn contain(&self, key: LookUpKey) -> bool {
        self.place(key).is_some_and(|place| place.load(Ordering::Relaxed) == key.0)
    }

    /// Notes that this look-up was measured.
    pub(crate) fn add(&self, key: LookUpKey) {
        if let Some(place) = self.place(key) {
            place.store(key.0, Ordering::Relaxed);
        }
    }

    /// Forgets all look-ups, because code or a context ended and a handle may be used again.
    pub(crate) fn forget(&self) {
        self.0.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    }

    fn place(&self, key: LookUpKey) -> Option<&AtomicU64> {
        usize::try_from(key.0 >> 40).ok().and_then(|number| self.0.get(number % REMEMBERED_LOOK_UPS))
    }
}
