//! Which estimates does a thread keep at hand?
//!
//! The book of estimates is the process's and behind a lock. A thread copies what it uses, so that the usual launch
//! takes no lock: one look into a small table. A copy is good until the book's epoch, which its owner counts up
//! whenever an estimate has changed, has passed.

use super::cost::{Estimate, Key};

/// Copies that a thread keeps: 2.5 KiB. A training step has more shapes, and then asks the book for some.
const PLACES: usize = 64;

/// A thread's copies of estimates.
#[derive(Debug, Clone, Copy)]
pub struct Recent {
    places: [Copied; PLACES],
}

#[derive(Debug, Clone, Copy)]
struct Copied {
    id: u64,
    epoch: u64,
    estimate: Estimate,
}

impl Recent {
    /// No copies; made at compile time, for a thread-local.
    pub const NONE: Self = Self { places: [Copied { id: 0, epoch: 0, estimate: Estimate::NONE }; PLACES] };

    /// The copy of a key's estimate, if there is one that is as young as `epoch`.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &Key, epoch: u64) -> Option<&Estimate> {
        let copied = self.places.get(place(key))?;
        (copied.id == key.id() && copied.epoch == epoch).then_some(&copied.estimate)
    }

    /// Keeps a copy; `epoch` was read before the estimate was.
    pub fn keep(&mut self, key: &Key, epoch: u64, estimate: Estimate) {
        if let Some(copied) = self.places.get_mut(place(key)) {
            *copied = Copied { id: key.id(), epoch, estimate };
        }
    }
}

#[inline]
fn place(key: &Key) -> usize {
    usize::try_from(key.id() >> 40).unwrap_or(0) & PLACES.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_found_until_the_epoch_has_passed() {
        let key = Key::graph(7);
        let mut recent = Recent::NONE;
        assert_eq!(recent.find(&key, 0), None);
        recent.keep(&key, 4, Estimate::NONE);
        assert!(recent.find(&key, 4).is_some());
        assert_eq!(recent.find(&key, 5), None);
        assert_eq!(recent.find(&Key::graph(8), 4), None);
    }
}
