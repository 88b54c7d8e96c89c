//! Models of shared memory: it is charged at every instant, and to one process in the end.

use loom::sync::Arc;

use super::{DEVICE, NOW, SLOTS, World, beside, layout, model};
use crate::sync::atomics::broken::{self, Break};

const KEY: u64 = 7;
const BYTES: u64 = 6;

/// Makes memory of slot 0 that other processes can use.
fn lent() -> (Arc<World>, usize) {
    let world = World::new([true; SLOTS], [BYTES, 0, 0]);
    let owner = world.layout.share_owned(0, DEVICE, KEY, BYTES).unwrap();
    (world, owner)
}

/// The owner ends its use while another process begins one.
fn one_leaves_while_another_comes() {
    model(|| {
        let (world, owner) = lent();
        let other = beside(&world, |world| {
            let share = world.layout.share_borrowed(1, KEY)?;
            world.layout.begin_use(share);
            Some(share)
        });
        world.layout.end_use(owner, true);
        assert_eq!(world.layout.refund(DEVICE, 0, BYTES), 0);
        let expected = other.join().unwrap().map_or(0, |_| BYTES);
        assert_eq!(world.sum(), expected, "no process pays, or two do");
    });
}

#[test]
fn a_process_that_comes_while_the_payer_leaves_pays() {
    one_leaves_while_another_comes();
}

#[test]
#[should_panic(expected = "no process pays, or two do")]
fn without_the_fences_neither_sees_the_other() {
    broken::make(Break::NoFence);
    one_leaves_while_another_comes();
}

/// The owner ends its use, or dies, while another process sums the ledger.
fn the_owner_leaves_while_somebody_sums(dies: bool) {
    model(move || {
        let (world, owner) = lent();
        let user = world.layout.share_borrowed(1, KEY).unwrap();
        world.layout.begin_use(user);
        let leaving = beside(&world, move |world| {
            if dies {
                world.lives[0].publish(0);
                world.reap(false);
            } else {
                world.layout.end_use(owner, true);
                assert_eq!(world.layout.refund(DEVICE, 0, BYTES), 0);
            }
        });
        assert!(world.sum() >= BYTES, "for an instant no process paid");
        leaving.join().unwrap();
        assert_eq!(world.sum(), BYTES, "no process pays, or two do");
    });
}

#[test]
fn a_sum_never_misses_memory_that_an_owner_hands_on() {
    the_owner_leaves_while_somebody_sums(false);
}

#[test]
fn a_sum_never_misses_memory_that_a_dead_owner_leaves() {
    the_owner_leaves_while_somebody_sums(true);
}

#[test]
#[should_panic(expected = "no process pays, or two do")]
fn where_no_process_inherits_none_pays() {
    broken::make(Break::NoTransfer);
    the_owner_leaves_while_somebody_sums(false);
}

/// A payer transfers its charge to an entry with a lower index, while another process sums the ledger.
fn a_payer_leaves_while_somebody_sums() {
    model(|| {
        let (world, owner) = lent();
        let payer = world.layout.share_borrowed(1, KEY).unwrap();
        world.layout.begin_use(payer);
        world.layout.end_use(owner, true);
        assert_eq!(world.layout.refund(DEVICE, 0, BYTES), 0);
        let next = world.layout.share_borrowed(2, KEY).unwrap();
        assert!(next < payer);
        world.layout.begin_use(next);
        let leaving = beside(&world, move |world| world.layout.end_use(payer, true));
        assert!(world.sum() >= BYTES, "for an instant no process paid");
        leaving.join().unwrap();
        assert_eq!(world.sum(), BYTES, "no process pays, or two do");
    });
}

#[test]
fn a_sum_never_misses_memory_that_a_payer_hands_on() {
    a_payer_leaves_while_somebody_sums();
}

#[test]
#[should_panic(expected = "for an instant no process paid")]
fn where_moves_are_ignored_a_sum_misses_one() {
    broken::make(Break::MovesIgnored);
    a_payer_leaves_while_somebody_sums();
}

/// Two processes begin to use memory while its payer leaves.
#[test]
fn of_two_that_come_while_the_payer_leaves_one_pays() {
    model(|| {
        let (world, owner) = lent();
        let first = world.layout.share_borrowed(1, KEY).unwrap();
        let other = beside(&world, move |world| world.layout.begin_use(first));
        world.layout.end_use(owner, true);
        assert_eq!(world.layout.refund(DEVICE, 0, BYTES), 0);
        other.join().unwrap();
        assert_eq!(world.sum(), BYTES, "no process pays, or two do");
    });
}

/// Two borrowers find no payer at the same time. The borrower with the lower index becomes the payer, and ends its use.
#[test]
fn a_borrower_that_lets_another_pay_pays_when_the_other_leaves() {
    model(|| {
        let (world, owner) = lent();
        let stays = world.layout.share_borrowed(1, KEY).unwrap();
        world.layout.end_use(owner, false);
        assert_eq!(world.layout.refund(DEVICE, 0, BYTES), 0);
        let leaves = world.layout.share_borrowed(2, KEY).unwrap();
        assert!(leaves < stays);
        let other = beside(&world, move |world| world.layout.begin_use(stays));
        world.layout.begin_use(leaves);
        world.layout.end_use(leaves, true);
        other.join().unwrap();
        assert_eq!(world.sum(), BYTES, "no process pays, or two do");
    });
}

/// An owner searches for a borrower to pay. Meanwhile the borrower ends its use, and uses other memory through the same
/// entry. The owner of that other memory ends its use too.
#[test]
fn a_borrower_that_an_owner_took_for_another_pays_for_its_own_memory() {
    const OTHER: u64 = 8;
    model(|| {
        let region = Arc::new(layout::<1, 3>());
        region.charge(DEVICE, 0, BYTES);
        region.charge(DEVICE, 2, BYTES);
        let owner = region.share_owned(0, DEVICE, KEY, BYTES).unwrap();
        let borrower = region.share_borrowed(1, KEY).unwrap();
        let other_owner = region.share_owned(2, DEVICE, OTHER, BYTES).unwrap();
        let other = beside(&region, move |region| {
            region.end_use(borrower, true);
            region.begin_use(region.share_borrowed(1, OTHER).unwrap());
            region.end_use(other_owner, true);
            assert_eq!(region.refund(DEVICE, 2, BYTES), 0);
        });
        region.end_use(owner, true);
        assert_eq!(region.refund(DEVICE, 0, BYTES), 0);
        other.join().unwrap();
        assert_eq!(region.held(DEVICE), BYTES, "no process pays, or two do");
    });
}

/// A process that held memory is dead, and the device may not have the memory back. One process requests the same number of
/// bytes while another reaps.
fn the_dead_ones_memory_leaves_while_somebody_asks() {
    model(|| {
        let world = World::new([false, true, true], [BYTES, 0, 0]);
        world.layout.devices[DEVICE].available.set(1);
        let clearing = beside(&world, |world| {
            world.reap(false);
        });
        assert!(world.reserve(1, BYTES).is_err(), "leaving memory was granted");
        clearing.join().unwrap();
        assert_eq!(world.layout.leaving(DEVICE, NOW), BYTES, "it does not leave, or twice");
        assert!(world.layout.end_if_back(DEVICE, || Some(u64::MAX)));
        assert!(world.reserve(1, BYTES).is_ok());
    });
}

#[test]
fn leaving_memory_is_granted_to_no_process() {
    the_dead_ones_memory_leaves_while_somebody_asks();
}

#[test]
#[should_panic(expected = "leaving memory was granted")]
fn a_word_that_is_cleared_before_its_memory_leaves_is_granted() {
    broken::make(Break::LeavesLate);
    the_dead_ones_memory_leaves_while_somebody_asks();
}

/// A process that held memory is dead. One process is charged for more while another reaps.
fn somebody_is_charged_while_memory_leaves() {
    model(|| {
        let world = World::new([false, true, true], [BYTES, 0, 0]);
        let clearing = beside(&world, |world| {
            world.reap(false);
        });
        world.layout.charge(DEVICE, 1, 1);
        clearing.join().unwrap();
        assert!(world.layout.devices[DEVICE].peak.get() <= BYTES + 1, "counted twice");
    });
}

#[test]
fn leaving_memory_is_not_counted_twice_in_the_peak() {
    somebody_is_charged_while_memory_leaves();
}

#[test]
#[should_panic(expected = "counted twice")]
fn where_leaving_memory_counts_the_peak_is_too_high() {
    broken::make(Break::PeakOfLeaving);
    somebody_is_charged_while_memory_leaves();
}
