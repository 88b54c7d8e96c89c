//! Models of the compute ledger. GPU time is paid once, no wake-up is lost, and the time of dead processes is refunded
//! once.

use loom::sync::Arc;

use super::{DEVICE, NOW, SHARES, SLOTS, World, beside, layout, model};
use gpuslice_policy::arbiter::Grant;
use gpuslice_policy::arbiter::grant_word::{GRANT_LASTS, encode};
use gpuslice_policy::compute::limiter::token_bucket::RateLimit;
use gpuslice_policy::compute::measuring::overlap::Overlap;
use gpuslice_policy::time::literals::{ms, ns};
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};
use gpuslice_policy::units::Permille;

use crate::{
    compute::rate_limit::rate_limit,
    compute::sampler_lease::{self, SamplerLease},
    layout::constants::WHOLE_SHARE,
    sync::atomics::broken::{self, Break},
    sync::futex,
};

/// Returns a world in which time is paid until `ahead` milliseconds from now, without a burst. The slice has the whole
/// share, so that GPU time equals wall time.
fn paid(ahead: u64, living: [bool; SLOTS]) -> Arc<World> {
    let world = World::new(living, [0; SLOTS]);
    world.layout.devices[DEVICE].cores_permille.set(WHOLE_SHARE);
    world.layout.time[DEVICE].paid.0.until.set(NOW + ms(ahead));
    world
}

impl World {
    /// Returns the time that the slice owes.
    fn owed(&self) -> WallTime {
        self.layout.time[DEVICE].paid.0.until.get().since(NOW)
    }

    fn settle(&self, difference: i64) {
        self.layout.settle_time(DEVICE, GpuTimeChange::from_nanos(difference), NOW);
    }

    /// Sets the share, as `Limits` do.
    fn set_share(&self, permille: u32) {
        let new = rate_limit(permille, GpuTime::ZERO);
        self.layout.set_own_rate_limit(
            DEVICE,
            new,
            || NOW,
            |entry| rate_limit(entry.cores_permille.swap(permille), GpuTime::ZERO),
        );
    }

    /// Takes time, and sleeps in between as the library does. `late`: reads the wake sequence only after the denial.
    fn take_or_sleep(&self, slot: usize, amount: GpuTime, late: bool) {
        let word = &self.layout.time[DEVICE].wake_seq.0;
        loop {
            let seen = word.sequence();
            if self.layout.take_time(DEVICE, slot, amount, (NOW, NOW)).is_ok() {
                return;
            }
            futex::sleep(word, if late { word.sequence() } else { seen });
        }
    }
}

/// One process takes 3 ms. Another settles a batch that took 2 ms more than prepaid, and one that took 1 ms less.
fn payments_and_settlements() {
    model(|| {
        let world = paid(0, [true; SLOTS]);
        let other = beside(&world, |world| {
            world.settle(2_000_000);
            world.settle(-1_000_000);
        });
        let taken = world.layout.take_time(DEVICE, 0, ms(3), (NOW, NOW));
        other.join().unwrap();
        assert_eq!(world.owed(), ms::<WallTime>(1) + taken.map_or(ms(0), |()| ms(3)), "a payment was lost");
    });
}

#[test]
fn no_payment_and_no_settlement_is_lost() {
    payments_and_settlements();
}

#[test]
#[should_panic(expected = "a payment was lost")]
fn where_the_last_to_write_wins_payments_are_lost() {
    broken::make(Break::LastWins);
    payments_and_settlements();
}

/// Two processes request 3 ms each of a device that is paid up to now.
fn two_requests_take_the_same_instant() {
    model(|| {
        let world = paid(0, [true; SLOTS]);
        let other = beside(&world, |world| world.layout.take_time(DEVICE, 1, ms(3), (NOW, NOW)));
        let results = [world.layout.take_time(DEVICE, 0, ms(3), (NOW, NOW)), other.join().unwrap()];
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "both have gone");
        assert_eq!(world.owed(), ms(3));
    });
}

#[test]
fn of_two_requests_for_the_same_instant_one_succeeds() {
    two_requests_take_the_same_instant();
}

#[test]
#[should_panic(expected = "both have gone")]
fn where_the_last_to_write_wins_both_go() {
    broken::make(Break::LastWins);
    two_requests_take_the_same_instant();
}

/// A process waits because the slice owes 10 ms, and another process refunds them.
fn a_refund_comes_while_one_goes_to_sleep(late: bool) {
    model(move || {
        let world = paid(10, [true; SLOTS]);
        let other = beside(&world, |world| world.settle(-10_000_000));
        world.take_or_sleep(1, ms(1), late);
        other.join().unwrap();
        assert_eq!(world.owed(), ms(1));
    });
}

#[test]
fn no_process_sleeps_through_a_refund() {
    a_refund_comes_while_one_goes_to_sleep(false);
}

#[test]
#[should_panic(expected = "no wake came")]
fn without_the_fences_one_sleeps_through_a_refund() {
    broken::make(Break::NoFence);
    a_refund_comes_while_one_goes_to_sleep(false);
}

#[test]
#[should_panic(expected = "no wake came")]
fn a_process_that_listens_only_after_a_refusal_sleeps_through_a_refund() {
    a_refund_comes_while_one_goes_to_sleep(true);
}

/// A process goes to sleep at a share of a thousandth, for less than a nanosecond of GPU time. Meanwhile another process
/// sets the whole share.
fn another_rate_limit_comes_while_one_goes_to_sleep(late: bool) {
    model(move || {
        let world = paid(0, [true; SLOTS]);
        world.layout.devices[DEVICE].cores_permille.set(1);
        let old = world.layout.rate_limit(DEVICE);
        world.layout.time[DEVICE].paid.0.until.set(NOW + ns(999));
        let other = beside(&world, move |world| {
            world.layout.devices[DEVICE].cores_permille.set(WHOLE_SHARE);
            world.layout.change_rate_limit(DEVICE, (old, world.layout.rate_limit(DEVICE)), || NOW);
        });
        world.take_or_sleep(1, ms(1), late);
        other.join().unwrap();
    });
}

#[test]
fn no_process_sleeps_through_a_change_of_the_rate_limit() {
    another_rate_limit_comes_while_one_goes_to_sleep(false);
}

#[test]
#[should_panic(expected = "no wake came")]
fn a_process_that_listens_only_after_a_refusal_sleeps_through_a_change_of_the_rate_limit() {
    another_rate_limit_comes_while_one_goes_to_sleep(true);
}

/// The owner of slot 0 died. It had paid 4 of the 10 ms that the slice owes. Two others reap, and one of them may be
/// killed.
fn the_dead_leave_time(killed: bool) {
    model(move || {
        let world = paid(10, [false, true, true]);
        let process = &world.layout.time[DEVICE].processes[0];
        process.unsettled_ns.set(ms(4));
        process.settled_at.set(NOW);
        process.counts.charged_ns.set(ns(7));
        if killed {
            broken::kill_next_reaper();
        }
        let other = beside(&world, |world| world.reap(false));
        world.reap(false);
        other.join().unwrap();
        world.reap(false);
        assert_eq!(world.owed(), ms(6), "what the dead left was given back twice");
        assert_eq!(world.layout.time_used(DEVICE).used, ns(7));
    });
}

#[test]
fn credit_of_the_dead_is_given_back_once() {
    the_dead_leave_time(false);
}

#[test]
fn credit_of_the_dead_is_given_back_once_though_the_heir_is_killed() {
    the_dead_leave_time(true);
}

#[test]
#[should_panic(expected = "given back twice")]
fn credit_that_stays_in_the_word_of_the_dead_is_given_back_twice() {
    broken::make(Break::UnsettledKept);
    the_dead_leave_time(true);
}

/// Returns a grant of `thousandths` of the GPU.
fn word_of(thousandths: u16, now: Monotonic) -> u64 {
    let rate_limit = RateLimit::new(Permille::new(thousandths).unwrap(), GpuTime::from_nanos(0));
    encode(&Grant { rate_limit, wall_credit: WallTime::ZERO, queue_bound: GpuTime::MAX }, now)
}

/// Two processes find that a grant of half of the GPU is too old. 10 ms of wall time are owed.
fn two_members_notice_that_a_grant_is_stale() {
    model(|| {
        let world = paid(10, [true; SLOTS]);
        world.layout.time[DEVICE].control.0.grant.set(word_of(500, NOW - GRANT_LASTS));
        let other = beside(&world, |world| world.layout.expire_grant(DEVICE, || NOW));
        world.layout.expire_grant(DEVICE, || NOW);
        other.join().unwrap();
        assert_eq!(world.owed(), ms(5), "what is owed was changed twice");
    });
}

#[test]
fn a_stale_grant_changes_the_debt_once() {
    two_members_notice_that_a_grant_is_stale();
}

#[test]
#[should_panic(expected = "changed twice")]
fn where_both_take_the_stale_word_away_it_changes_twice() {
    broken::make(Break::LastWins);
    two_members_notice_that_a_grant_is_stale();
}

/// `lower` sets the rate to a tenth while a process pays for 1 ms: 10 ms of wall time at the new rate.
fn a_payment_while(lower: fn(&World)) {
    model(move || {
        let world = paid(0, [true; SLOTS]);
        let other = beside(&world, |world| world.layout.take_time(DEVICE, 0, ms(1), (NOW, NOW)));
        lower(&world);
        let taken = other.join().unwrap();
        assert!(taken.is_ok());
        assert!((ms(1)..=ms(10)).contains(&world.owed()), "it paid by the lower rate twice");
    });
}

/// The arbiter grants a tenth.
fn grant_a_tenth(world: &World) {
    world.layout.set_grant(DEVICE, word_of(100, NOW), || NOW);
}

/// A process sets the share to a tenth.
fn set_a_tenth(world: &World) {
    world.set_share(100);
}

#[test]
fn a_payment_while_a_lower_rate_is_granted_is_by_one_of_the_rates() {
    a_payment_while(grant_a_tenth);
}

#[test]
#[should_panic(expected = "by the lower rate twice")]
fn a_payment_where_the_rate_is_granted_first_may_count_it_twice() {
    broken::make(Break::RateFirst);
    a_payment_while(grant_a_tenth);
}

#[test]
fn a_payment_while_a_lower_share_is_set_is_by_one_of_the_shares() {
    a_payment_while(set_a_tenth);
}

#[test]
#[should_panic(expected = "by the lower rate twice")]
fn a_payment_where_the_share_is_written_first_may_count_it_twice() {
    broken::make(Break::RateFirst);
    a_payment_while(set_a_tenth);
}

/// Two processes set the share, to a half and to a quarter. 8 ms of wall time are owed at the whole GPU.
fn two_set_the_share() {
    model(|| {
        let world = paid(8, [true; SLOTS]);
        let other = beside(&world, |world| world.set_share(500));
        world.set_share(250);
        other.join().unwrap();
        let left = (world.layout.devices[DEVICE].cores_permille.get(), world.owed());
        assert!([(500, ms(16)), (250, ms(32))].contains(&left), "the debt became another: {left:?}");
    });
}

#[test]
fn two_processes_that_set_the_share_leave_the_debt() {
    two_set_the_share();
}

#[test]
#[should_panic(expected = "the debt became another")]
fn where_the_last_to_write_wins_two_processes_that_set_the_share_change_the_debt() {
    broken::make(Break::LastWins);
    two_set_the_share();
}

/// The arbiter writes a grant while a process expires the one before. 8 ms of wall time are owed at half of the GPU.
fn one_tells_while_another_forgets() {
    model(|| {
        let world = paid(8, [true; SLOTS]);
        world.layout.time[DEVICE].control.0.grant.set(word_of(500, NOW - GRANT_LASTS));
        let other = beside(&world, |world| world.layout.expire_grant(DEVICE, || NOW));
        let new = word_of(250, NOW);
        world.layout.set_grant(DEVICE, new, || NOW);
        other.join().unwrap();
        // The debt is 4 ms of GPU time, at a quarter or at the whole rate.
        let expected = [(new, ms(16)), (0, ms(4))];
        let left = (world.layout.time[DEVICE].control.0.grant.get(), world.owed());
        assert!(expected.contains(&left), "the debt became another: {left:?}");
    });
}

#[test]
fn setting_and_expiring_a_grant_leave_the_debt() {
    one_tells_while_another_forgets();
}

#[test]
#[should_panic(expected = "the debt became another")]
fn where_the_last_to_write_wins_setting_and_expiring_a_grant_change_the_debt() {
    broken::make(Break::LastWins);
    one_tells_while_another_forgets();
}

/// The longest silence of a lease holder.
const PATIENCE: WallTime = WallTime::from_millis(500);
const SILENT: u64 = (NOW.nanos() - 2 * PATIENCE.nanos()) & !0xffff | 3;

/// Two processes request the sampler lease. `last` is the word of the lease before.
fn two_want_to_ask(last: u64) {
    model(move || {
        let world = paid(0, [true; SLOTS]);
        world.layout.time[DEVICE].sampler.0.lease.set(last);
        let other = beside(&world, |world| world.layout.renew_sampler_lease(DEVICE, 1, NOW, PATIENCE));
        let elected = [world.layout.renew_sampler_lease(DEVICE, 0, NOW, PATIENCE), other.join().unwrap()];
        assert_eq!(elected.iter().filter(|lease| lease.is_held()).count(), 1, "two ask");
    });
}

#[test]
fn of_two_processes_that_want_to_ask_nvml_one_does() {
    two_want_to_ask(0);
    two_want_to_ask(SILENT);
}

#[test]
#[should_panic(expected = "two ask")]
fn where_the_last_to_write_wins_two_ask() {
    broken::make(Break::LastWins);
    two_want_to_ask(SILENT);
}

#[test]
fn two_threads_that_renew_the_lease_of_their_process_keep_it() {
    model(|| {
        let world = paid(0, [true; SLOTS]);
        assert!(world.layout.renew_sampler_lease(DEVICE, 0, NOW, PATIENCE).is_held());
        let later = NOW.saturating_add(PATIENCE);
        let other = beside(&world, move |world| world.layout.renew_sampler_lease(DEVICE, 0, later, PATIENCE));
        let is_kept = world.layout.renew_sampler_lease(DEVICE, 0, later, PATIENCE);
        assert!([other.join().unwrap(), is_kept] == [SamplerLease::Kept; 2], "the process was deposed");
    });
}

/// The lease holder has died. One process reaps it while another process takes the lease over.
fn one_takes_over_while_the_dead_is_deposed() {
    model(|| {
        let world = paid(0, [true; SLOTS]);
        world.layout.time[DEVICE].sampler.0.lease.set(SILENT);
        let other = beside(&world, |world| sampler_lease::end_lease(&world.layout.time[DEVICE].sampler.0, 2));
        // The reaping process may change the word during the first renewal. The second renewal then succeeds.
        let is_elected = (0..2).any(|_| world.layout.renew_sampler_lease(DEVICE, 1, NOW, PATIENCE).is_held());
        other.join().unwrap();
        assert!(is_elected);
        assert_eq!(world.layout.time[DEVICE].sampler.0.lease.get() & 0xffff, 2, "the new one was deposed");
    });
}

#[test]
fn a_process_that_takes_over_from_a_dead_one_stays_elected() {
    one_takes_over_while_the_dead_is_deposed();
}

#[test]
#[should_panic(expected = "the new one was deposed")]
fn where_the_last_to_write_wins_the_new_one_is_deposed() {
    broken::make(Break::LastWins);
    one_takes_over_while_the_dead_is_deposed();
}

/// The slice owes 10 ms. One process overdraws 3 ms more, and an arbiter credits 4 ms.
fn a_gift_comes_while_more_is_owed() {
    model(|| {
        let world = paid(10, [true; SLOTS]);
        let other = beside(&world, |world| world.layout.credit_wall_time(DEVICE, ms(4), || NOW));
        assert!(world.layout.overdraw(DEVICE, 0, ms(3), NOW));
        other.join().unwrap();
        assert_eq!(world.owed(), ms(9), "a wall credit or a debt was lost");
    });
}

#[test]
fn no_gift_and_no_debt_is_lost() {
    a_gift_comes_while_more_is_owed();
}

#[test]
#[should_panic(expected = "a wall credit or a debt was lost")]
fn where_the_last_to_write_wins_a_gift_or_a_debt_is_lost() {
    broken::make(Break::LastWins);
    a_gift_comes_while_more_is_owed();
}

/// A process waits because the slice owes 10 ms on one device. Meanwhile a batch on another device overruns.
fn a_batch_overruns_while_a_process_goes_to_sleep(late: bool) {
    model(move || {
        let world = Arc::new(layout::<2, SHARES>());
        world.header.device_count.publish(2);
        world.header.slot_high_water.set(1);
        world.time[1].paid.0.until.set(NOW + ms(10));
        let other = beside(&world, |world| world.note_overrun(0, NOW));
        let word = &world.time[1].wake_seq.0;
        loop {
            let seen = word.sequence();
            if world.take_time(1, 0, ms(1), (NOW, NOW)).is_ok()
                || world.overdraw_for_peer(1, 0, ms(1), (NOW, NOW))
            {
                break;
            }
            futex::sleep(word, if late { word.sequence() } else { seen });
        }
        other.join().unwrap();
    });
}

#[test]
fn no_process_sleeps_through_an_overrun_that_waits_for_it() {
    a_batch_overruns_while_a_process_goes_to_sleep(false);
}

#[test]
#[should_panic(expected = "no wake came")]
fn without_the_fences_a_process_sleeps_through_an_overrun() {
    broken::make(Break::NoFence);
    a_batch_overruns_while_a_process_goes_to_sleep(false);
}

#[test]
#[should_panic(expected = "no wake came")]
fn a_process_that_listens_only_after_a_refusal_sleeps_through_an_overrun() {
    a_batch_overruns_while_a_process_goes_to_sleep(true);
}

/// A launch that was throttled for 2 ms is admitted, long after one that was throttled for 50 ms. Another process reads the
/// last throttle meanwhile.
fn one_looks_while_a_throttled_launch_is_noted() {
    model(|| {
        let world = paid(0, [true; SLOTS]);
        let step = &world.layout.time[DEVICE].coupling.0;
        step.throttled_from.set(NOW - ms(1000));
        step.throttled_until.publish(NOW - ms(950));
        let other = beside(&world, |world| world.layout.last_throttle(DEVICE));
        assert_eq!(world.layout.take_time(DEVICE, 1, ms(1), (NOW - ms(2), NOW)), Ok(()));
        let kept = other.join().unwrap();
        assert!(kept.until.since(kept.since) <= ms(50), "no launch was throttled for so long: {kept:?}");
    });
}

#[test]
fn a_throttled_launch_is_never_seen_as_throttled_for_longer_than_it_was() {
    one_looks_while_a_throttled_launch_is_noted();
}

#[test]
#[should_panic(expected = "no launch was throttled for so long")]
fn a_reader_that_loads_the_start_first_may_see_a_throttling_that_never_was() {
    broken::make(Break::TornBelieved);
    one_looks_while_a_throttled_launch_is_noted();
}

/// Two processes count intervals of 3 ms each. Of one, 1 ms was newly covered, and of the other 2 ms.
fn two_members_add_overlap() {
    model(|| {
        let world = paid(0, [true; SLOTS]);
        let other = beside(&world, |world| world.layout.add_overlap(DEVICE, ms(3), ms(1)));
        world.layout.add_overlap(DEVICE, ms(3), ms(2));
        other.join().unwrap();
        let both = [[2, 1], [1, 2]].map(|order| {
            let mut overlap = Overlap::default();
            order.into_iter().for_each(|covered| overlap.add(ms(3), ms(covered)));
            overlap.word()
        });
        let told = world.layout.time[DEVICE].overlap.0.get();
        assert!(both.contains(&told), "one was not heard");
    });
}

#[test]
fn whatever_two_tell_of_overlap_is_heard() {
    two_members_add_overlap();
}

#[test]
#[should_panic(expected = "one was not heard")]
fn where_the_last_to_write_wins_one_is_not_heard() {
    broken::make(Break::LastWins);
    two_members_add_overlap();
}
