//! Tests that the words of the compute ledger have the values written to them, and no values from an earlier epoch.

use gpuslice_policy::compute::attribution::correction::WHOLE_FACTOR;
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::measuring::peer_intervals::{Interval, IntervalEntry};
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::Monotonic;
use gpuslice_policy::time::literals::{ms, ns};
use gpuslice_region::SamplerLease::{Elsewhere, Kept, Taken};
use gpuslice_region::{
    DeviceRequest, INTERVAL_SLOTS, Limits, Member, Monitor, Origin, Reader, Sharing, TimeUsed, Trust, Uuid,
};

use crate::{
    puppet::{directory, join, lease_size, request},
    time::{figure, now, write},
};

const LIMIT: u64 = 1000;
/// Any instant.
const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

#[test]
fn a_region_that_is_made_anew_keeps_its_debt_and_remembers_nothing_else() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    for _ in 0..3 {
        member.publish(device, Interval { start: ns(10), end: ns(20), ..Interval::default() });
    }
    assert_eq!(member.acquire(device, ms(1000), now()), Ok(()));
    member.begin_work(device);
    member.note_second(device, NOW);
    member.count_used(device, ns(5));
    member.set_measure_source(device, 2);
    member.set_correction(device, 300_000);
    assert!(member.renew_sampler_lease(device, NOW, ms(1)).is_held());
    member.add_overlap(device, ms(1000), ms(500));
    // The region must clear these values later.
    assert_eq!((member.measure_source(device), member.overlap_part(device, ns(8))), (2, ns(4)));
    assert_eq!(member.used_over(device, 1, NOW).used, ns(5));
    let paid_until = member.paid_until(device);
    member.leave();
    let (member, device) = join(&path, LIMIT);
    assert!(member.paid_until(device).nanos().abs_diff(paid_until.nanos()) <= 2, "but for what is rounded");
    assert_eq!((member.measure_source(device), member.correction(device)), (0, 1_000_000));
    assert_eq!(
        (member.time_used(device), member.interval_head(device, Origin::Slice)),
        (TimeUsed::default(), 0)
    );
    assert_eq!(
        (member.interval_at(device, Origin::Slice, 0), member.overlap_part(device, ns(8))),
        (IntervalEntry::default(), ns(8))
    );
    assert!(member.acquire(device, ms(1), now()).is_err());
}

#[test]
fn sums_of_figures_never_fall_and_each_process_has_its_own() {
    let directory = directory();
    let path = directory.path().join("region");
    let (watcher, device) = join(&path, LIMIT);
    for round in 1..=3_u64 {
        let (member, _) = join(&path, LIMIT);
        assert_eq!(member.slot(), 1);
        member.count_used(device, ns(100));
        member.count_throttled(device, ns(10));
        member.count_copied(device, ns(1));
        member.count_launches(device, 7);
        member.set_queued(device, ns(3));
        let own = TimeUsed { used: ns(100), throttled: ns(10), copied: ns(1), queued: ns(3), launches: 7 };
        assert_eq!(watcher.processes()[1].time, [own]);
        assert_eq!(
            (watcher.time_used_beside(device), watcher.numbers_beside()),
            (own, vec![std::process::id(); 2])
        );
        let sum = TimeUsed {
            used: ns(100 * round),
            throttled: ns(10 * round),
            copied: ns(round),
            queued: ns(3),
            launches: 7 * round,
        };
        assert_eq!(watcher.time_used(device), sum);
        member.leave();
        assert_eq!(watcher.time_used(device), TimeUsed { queued: ns(0), ..sum });
        assert_eq!(watcher.time_used_beside(device), TimeUsed { queued: ns(0), ..own }, "until it is reused");
    }
}

#[test]
fn a_device_that_is_added_later_owes_nothing_whatever_its_words_were() {
    let directory = directory();
    let path = directory.path().join("region");
    let (first, _) = join(&path, LIMIT);
    let size = figure("time.size");
    for offset in (0..size).step_by(8) {
        write(&path, size + offset, u64::MAX);
    }
    let other = DeviceRequest { uuid: Uuid([9; 16]), ..request(LIMIT) };
    let (second, _) = Member::join(&path, Trust::OwnerOnly, &[other]).unwrap();
    let device = second.device(&other.uuid).unwrap();
    assert_eq!((first.time_used(device), first.paid_until(device)), (TimeUsed::default(), ns(0)));
    assert_eq!((second.acquire(device, ms(1), NOW), first.acquire(device, ms(1), NOW)), (Ok(()), Ok(())));
    assert_eq!(second.processes()[1].time[device.index()], TimeUsed::default());
}

#[test]
fn the_elected_stays_for_as_long_as_it_says_so_and_the_dead_are_replaced() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    let elected = |at: u64| {
        [
            first.renew_sampler_lease(device, NOW + ms(at), ms(10)),
            second.renew_sampler_lease(device, NOW + ms(at), ms(10)),
        ]
    };
    assert_eq!(elected(0), [Taken, Elsewhere]);
    assert_eq!([elected(9), elected(18)], [[Kept, Elsewhere]; 2]);
    assert_eq!(second.renew_sampler_lease(device, NOW + ms(30), ms(10)), Taken, "the first is silent");
    assert_eq!(elected(31), [Elsewhere, Kept]);
    // The first member learns that another process was elected in between, although that process has been silent for long.
    assert_eq!(elected(60), [Taken, Elsewhere]);
    assert_eq!(second.renew_sampler_lease(device, NOW + ms(70), ms(10)), Taken);
    second.leave();
    assert_eq!(first.renew_sampler_lease(device, NOW + ms(71), ms(10)), Taken, "the second is gone");
    write(&path, figure("time.sampler_lease"), u64::MAX - 5);
    assert!(
        first.renew_sampler_lease(device, NOW + ms(72), ms(10)).is_held(),
        "no process can be elected in the future"
    );
}

#[test]
fn beside_neighbours_a_turn_is_leased() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    let turn = lease::turn(second.rate_limit(device));
    let least = || lease_size(&second, device, NOW);
    assert!(least() < turn, "alone");
    first.set_correction(device, 500_000);
    first.leave();
    assert_eq!(
        (second.correction(device), least()),
        (500_000, turn),
        "beside slices that publish what they do"
    );
    second.set_correction(device, WHOLE_FACTOR);
    assert!(least() < turn);
    second.set_measure_source(device, Measured::by(Source::Whole).word());
    assert_eq!(least(), turn, "beside other programs");
}

#[test]
fn intervals_are_read_as_they_were_told_and_half_written_ones_are_not() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    let told = |number: u64| Interval {
        start: ns(number * 10),
        end: ns(number * 10 + 7),
        context: u16::MAX - u16::try_from(number).unwrap(),
        goes_on: number.is_multiple_of(3),
    };
    for number in 0..INTERVAL_SLOTS + 2 {
        let writer = if number % 2 == 0 { &first } else { &second };
        assert_eq!(writer.publish(device, told(number)), number);
    }
    assert_eq!(first.interval_head(device, Origin::Slice), INTERVAL_SLOTS + 2);
    for number in 2..INTERVAL_SLOTS + 2 {
        assert_eq!(
            first.interval_at(device, Origin::Slice, number),
            IntervalEntry::new(number, told(number))
        );
    }
    write(&path, figure("time.intervals") + 5 * figure("interval.size") + figure("interval.packed"), 8);
    assert_eq!(first.interval_at(device, Origin::Slice, 5), IntervalEntry::default());
}

#[test]
fn relayed_intervals_are_apart_from_the_slices_own_and_end_with_the_slice() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let interval = Interval { start: ns(10), end: ns(20), context: 3, goes_on: false };
    Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap().relay(device, interval);
    assert_eq!(
        (member.interval_head(device, Origin::Slice), member.interval_head(device, Origin::Relayed)),
        (0, 1)
    );
    assert_eq!(member.interval_at(device, Origin::Relayed, 0), IntervalEntry::new(0, interval));
    assert_eq!(member.interval_at(device, Origin::Slice, 0), IntervalEntry::default());
    member.leave();
    let (next, device) = join(&path, LIMIT);
    assert_eq!(next.interval_head(device, Origin::Relayed), 0);
    assert_eq!(next.interval_at(device, Origin::Relayed, 0), IntervalEntry::default());
}

#[test]
fn the_slice_remembers_its_peak_its_refusals_and_how_it_shares() {
    let directory = directory();
    let path = directory.path().join("region");
    let (watcher, device) = join(&path, LIMIT);
    let (member, _) = join(&path, LIMIT);
    assert_eq!((member.reserve(device, 600), watcher.reserve(device, 300)), (Ok(()), Ok(())));
    assert_eq!((member.refund(device, 500), watcher.peak(device)), (0, 900));
    member.charge(device, 900);
    member.count_quota_denial(device);
    member.count_device_denial(device);
    member.spill(device, 70);
    member.unspill(device, 20);
    assert_eq!((watcher.peak(device), watcher.spilled(device)), (1300, 50));
    assert_eq!(watcher.processes()[1].spilled, [50]);
    member.leave();
    let counted = [
        watcher.peak(device),
        watcher.quota_denials(device),
        watcher.device_denials(device),
        watcher.spilled(device),
    ];
    assert_eq!(counted, [1300, 1, 1, 0], "the dead hold nothing; what happened stays");
    let sharing = Sharing { policy: CorePolicy::Equal, priority: Priority::High, weight: 7 };
    let limits = Limits { sharing, oversubscribe: true, ..watcher.limits(device) };
    watcher.set_limits(device, limits);
    assert_eq!(watcher.limits(device), limits);
    watcher.leave();
    let (member, device) = join(&path, LIMIT);
    assert_eq!([member.peak(device), member.quota_denials(device), member.device_denials(device)], [0; 3]);
    assert_eq!(member.limits(device).sharing, Sharing::FIXED);
}

#[test]
fn memory_of_contexts_is_reported_of_each_process_and_ends_with_it() {
    let directory = directory();
    let path = directory.path().join("region");
    let (watcher, device) = join(&path, LIMIT);
    let reader = Reader::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    let told = || {
        let each: Vec<_> = reader.processes().unwrap().iter().map(|process| process.contexts[0]).collect();
        (reader.device(0).unwrap().unwrap().contexts, each)
    };
    watcher.charge(device, 100);
    watcher.begin_context(device, 90);
    let (member, _) = join(&path, LIMIT);
    let slot = member.slot();
    member.charge(device, 200);
    member.begin_context(device, 150);
    member.begin_context(device, 30);
    assert_eq!(told(), (270, vec![90, 180]));
    member.end_context(device, 150);
    assert_eq!((told(), watcher.contexts(device)), ((120, vec![90, 30]), 120));
    member.end_context(device, 31);
    assert_eq!(told(), (90, vec![90, 0]), "never less than nothing");
    member.begin_context(device, 40);
    member.leave();
    assert_eq!(told(), (90, vec![90]));
    // The words of a free slot have no meaning for the next process in it.
    let word = figure("time.processes") + slot as u64 * figure("process.size");
    write(&path, word + figure("process.context_bytes"), 77);
    assert_eq!(watcher.contexts(device), 167);
    let (member, _) = join(&path, LIMIT);
    assert_eq!((member.slot(), told()), (slot, (90, vec![90, 0])));
    // The words of a device have no meaning before the device is added.
    let of_second = figure("time.size") + figure("time.processes");
    let second = DeviceRequest { uuid: Uuid([9; 16]), ..request(LIMIT) };
    write(&path, of_second + figure("process.context_bytes"), 78);
    let (_third, _) = Member::join(&path, Trust::OwnerOnly, &[second]).unwrap();
    assert_eq!(reader.device(1).unwrap().unwrap().contexts, 0);
}
