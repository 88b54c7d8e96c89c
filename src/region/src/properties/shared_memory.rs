//! Property tests of shared memory: one process pays for it, after any sequence of uses that begin and end.

use proptest::prelude::*;

use super::{CASES, DEVICES, SHARES, SLOTS, World};

const KEYS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Lend { slot: usize, key: usize },
    Borrow { slot: usize, key: usize },
    Settle(usize),
    Leave { index: usize, hands_on: bool },
    Clear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (slot, key, index) = (0..SLOTS, 0..KEYS, 0..SHARES);
    prop_oneof![
        2 => (slot.clone(), key.clone()).prop_map(|(slot, key)| Step::Lend { slot, key }),
        4 => (slot.clone(), key).prop_map(|(slot, key)| Step::Borrow { slot, key }),
        4 => index.clone().prop_map(Step::Settle),
        4 => (index, prop::bool::weighted(0.8)).prop_map(|(index, hands_on)| Step::Leave { index, hands_on }),
        1 => slot.prop_map(Step::Clear),
    ]
}

/// Returns a size for the memory of a key. A sum of sizes shows the keys in it.
fn bytes(key: usize) -> u64 {
    1 << (8 * key)
}

fn device(key: usize) -> usize {
    key % DEVICES
}

#[derive(Clone, Copy)]
struct Use {
    key: usize,
    slot: usize,
    is_owner: bool,
}

/// The expected entries.
#[derive(Default)]
struct Model {
    uses: [Option<Use>; SHARES],
    /// The entry that pays for each memory.
    payers: [Option<usize>; KEYS],
    /// Number of transfers.
    moves: u64,
}

impl Model {
    fn enter(&mut self, new: Use) -> Option<usize> {
        let index = self.uses.iter().position(Option::is_none)?;
        self.uses[index] = Some(new);
        Some(index)
    }

    fn first_of(&self, key: usize) -> Option<usize> {
        self.uses.iter().position(|entry| entry.is_some_and(|entry| entry.key == key))
    }

    fn leave(&mut self, index: usize, hands_on: bool) {
        let Some(Use { key, .. }) = self.uses[index].take() else { return };
        if self.payers[key] == Some(index) {
            self.payers[key] = if hands_on { self.first_of(key) } else { None };
            self.moves += u64::from(self.payers[key].is_some());
        }
    }

    /// Returns the bytes on a device that `slot` pays for in its entries.
    fn transferred_to(&self, on: usize, slot: usize) -> u64 {
        let paid = |key: usize| {
            let payer = self.payers[key].and_then(|index| self.uses[index]);
            let counts = |payer: Use| device(key) == on && payer.slot == slot && !payer.is_owner;
            if payer.is_some_and(counts) { bytes(key) } else { 0 }
        };
        (0..KEYS).map(paid).sum()
    }
}

fn play(world: &World, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    let layout = &world.layout;
    let word = |key: usize| u64::try_from(key).unwrap() + 1;
    match step {
        // Each memory is made once.
        Step::Lend { slot, key } if model.first_of(key).is_none() => {
            let entry = model.enter(Use { key, slot, is_owner: true });
            prop_assert_eq!(layout.share_owned(slot, device(key), word(key), bytes(key)), entry);
            model.payers[key] = entry;
        }
        Step::Borrow { slot, key } => {
            let entry = model.first_of(key).and_then(|_| model.enter(Use { key, slot, is_owner: false }));
            prop_assert_eq!(layout.share_borrowed(slot, word(key)), entry);
        }
        Step::Settle(index) => {
            layout.begin_use(index);
            if let Some(entry) = model.uses[index].filter(|entry| !entry.is_owner) {
                model.payers[entry.key].get_or_insert(index);
            }
        }
        Step::Leave { index, hands_on } => {
            layout.end_use(index, hands_on);
            model.leave(index, hands_on);
        }
        Step::Clear(slot) => {
            layout.end_uses_of(slot);
            for index in 0..SHARES {
                if model.uses[index].is_some_and(|entry| entry.slot == slot) {
                    model.leave(index, true);
                }
            }
        }
        Step::Lend { .. } => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn memory_that_several_use_is_paid_for_once_by_one_of_them(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let (world, mut model) = (World::new(0), Model::default());
        for step in steps {
            play(&world, &mut model, step)?;
            let layout = &world.layout;
            prop_assert_eq!(layout.header.transfer_seq.observe(), model.moves);
            let transferred = layout.transferred_by_slot();
            for device in 0..DEVICES {
                let by_slot = |slot| {
                    (transferred.get(&(device, slot)).copied().unwrap_or(0), model.transferred_to(device, slot))
                };
                for (transferred, expected) in (0..SLOTS).map(by_slot) {
                    prop_assert_eq!(transferred, expected);
                }
                let sum = (0..SLOTS).map(|slot| model.transferred_to(device, slot)).sum::<u64>();
                prop_assert_eq!(layout.transferred(device), sum);
            }
        }
    }
}
