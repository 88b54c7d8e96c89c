//! The cache of estimates that each thread keeps.
//!
//! The estimate table belongs to the process and is behind a lock. A thread copies the estimates that it uses. So the usual
//! launch takes no lock, and does one look-up in the thread's own table.
//!
//! A copy is valid for one epoch of its key. The owner of the estimate table increments the epoch when the estimate has
//! changed. All keys share [`EPOCHS`] epochs. Example: in a training step of hundreds of shapes, one shape is measured
//! every few launches. The thread then looks up again only the keys of that epoch.

use super::estimate::{Estimate, Key};

/// Number of epochs.
pub const EPOCHS: usize = 512;
/// Number of copies in a new table: 2.5 KiB.
const FEW: usize = 64;
/// Largest number of copies: 160 KiB, for the several hundred shapes of a training step.
const MANY: usize = 4096;
/// The table grows when the lost copies reach one part in four of its places.
const CROWDED: usize = 4;

/// Returns the epoch of the key with this id, below [`EPOCHS`].
#[inline]
#[must_use]
pub fn epoch_of(id: u64) -> usize {
    bits(id, 40) & EPOCHS.saturating_sub(1)
}

/// A thread's copies of estimates. Each key has two places; the table grows while many are in use.
#[derive(Debug, Clone, Default)]
pub struct Recent {
    places: Vec<Copied>,
    /// Number of copies that other copies have replaced.
    lost: usize,
}

#[derive(Debug, Clone, Copy)]
struct Copied {
    id: u64,
    epoch: u64,
    estimate: Estimate,
}

impl Copied {
    const NONE: Self = Self { id: 0, epoch: 0, estimate: Estimate::NONE };
}

impl Recent {
    /// No copies, and no memory.
    pub const NONE: Self = Self { places: Vec::new(), lost: 0 };

    /// Returns the copy of a key's estimate, if its epoch is the key's present `epoch`.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, key: &Key, epoch: u64) -> Option<&Estimate> {
        let at = self.place(key);
        let first = self.places.get(at)?;
        let copied = if first.id == key.id() { first } else { self.second(at, key)? };
        (copied.epoch == epoch).then_some(&copied.estimate)
    }

    /// Keeps a copy. The caller has read `epoch` before the estimate.
    pub fn keep(&mut self, key: &Key, epoch: u64, estimate: Estimate) {
        if self.places.is_empty() || (self.lost >= self.places.len() / CROWDED && self.places.len() < MANY) {
            // The thread looks the lost copies up again.
            let places = self.places.len().saturating_mul(2).clamp(FEW, MANY);
            *self = Self { places: vec![Copied::NONE; places], lost: 0 };
        }
        let at = self.place(key);
        let new = Copied { id: key.id(), epoch, estimate };
        let Ok([first, second]) = self.places.get_disjoint_mut([at, at ^ 1]) else { return };
        if second.id == new.id {
            *second = new;
            return;
        }
        if first.id != new.id && first.id != 0 {
            self.lost = self.lost.saturating_add(usize::from(second.id != 0));
            *second = *first;
        }
        *first = new;
    }

    #[inline(never)]
    fn second(&self, at: usize, key: &Key) -> Option<&Copied> {
        self.places.get(at ^ 1).filter(|copied| copied.id == key.id())
    }

    #[inline]
    fn place(&self, key: &Key) -> usize {
        bits(key.id(), 24) & self.places.len().wrapping_sub(1)
    }
}

/// Returns the bits of an id, from bit `from` on.
#[inline]
fn bits(id: u64, from: u32) -> usize {
    usize::try_from(id.wrapping_shr(from)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::estimate::LaunchShape;
    use super::*;

    /// Returns the key of a kernel. The functions of the program lie one after the other.
    fn function(number: u64) -> Key {
        let shape = LaunchShape { function: number * 96, grid: [64, 1, 1], block: [128, 1, 1], shared: 0 };
        Key::kernel(&shape)
    }

    /// Returns how many of `keys` keys a table finds after it has grown. The program uses the keys in turn.
    fn found(keys: u64) -> usize {
        let mut recent = Recent::NONE;
        let mut round = || {
            let mut found = 0;
            for key in (0..keys).map(function) {
                match recent.find(&key, 1) {
                    Some(_) => found += 1,
                    None => recent.keep(&key, 1, Estimate::NONE),
                }
            }
            found
        };
        (0..1000).map(|_| round()).max().unwrap()
    }

    #[test]
    fn a_copy_is_found_until_the_epoch_has_passed() {
        let key = Key::graph(7);
        let mut recent = Recent::NONE;
        assert_eq!(recent.find(&key, 0), None);
        recent.keep(&key, 4, Estimate::NONE);
        assert!(recent.find(&key, 4).is_some());
        assert_eq!(recent.find(&key, 5), None);
        assert_eq!(recent.find(&Key::graph(8), 4), None);
        recent.keep(&key, 5, Estimate::NONE);
        assert!(recent.find(&key, 5).is_some());
    }

    #[test]
    fn keys_have_epochs_of_their_own_as_far_as_there_are_so_many() {
        let mut keys = [0; EPOCHS];
        (0..10 * EPOCHS as u64).for_each(|key| keys[epoch_of(function(key).id())] += 1);
        let most = keys.iter().max().unwrap();
        assert!(*most < 30 && !keys.contains(&0), "{keys:?}");
    }

    #[test]
    fn nearly_all_shapes_of_a_step_are_at_hand() {
        assert_eq!(found(16), 16);
        assert!(found(256) >= 250, "{}", found(256));
        assert!(found(1000) >= 900, "{}", found(1000));
    }

    #[test]
    fn the_largest_table_stays_full() {
        let mut recent = Recent::NONE;
        for key in 0..200_000 {
            recent.keep(&function(key), 1, Estimate::NONE);
            let kept = || recent.places.iter().filter(|copied| copied.id != 0).count();
            assert!(key < 100_000 || key % 100 > 0 || kept() > MANY * 99 / 100, "{}", kept());
        }
    }

    #[test]
    fn few_shapes_take_little_memory_and_very_many_a_bounded_one() {
        let places = |keys: u64| {
            let mut recent = Recent::NONE;
            (0..keys).for_each(|key| recent.keep(&function(key), 1, Estimate::NONE));
            recent.places.len()
        };
        assert_eq!(places(0), 0);
        assert_eq!(places(8), FEW);
        assert!(places(150) > FEW, "of which a good part was lost");
        assert_eq!(places(1_000_000), MANY);
    }
}
