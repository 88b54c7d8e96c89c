//! Property tests of usage samples: a report has the counts of its span, after any sequence of work and pauses.

use proptest::prelude::*;

use super::{CASES, World};
use crate::{compute::history::RecentUsage, layout::constants::SECONDS};
use gpuslice_policy::time::literals::ns;

const DEVICE: usize = 1;
const SECOND: u64 = 1_000_000_000;

/// Returns a pause, and the counts after it.
fn step() -> impl Strategy<Value = (u64, u64)> {
    let pause = prop_oneof![
        8 => 0..SECOND / 3,
        2 => 0..3 * SECOND,
        1 => 0..80 * SECOND,
    ];
    (pause, 0..50_000_000_u64)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn recent_use_is_the_count_since_the_span_began(
        start in 0..1_u64 << 45,
        steps in proptest::collection::vec(step(), 1..200)
    ) {
        let world = World::new(0);
        let (layout, mut now, mut counted) = (&world.layout, start, Vec::new());
        layout.header.slot_high_water.set(1);
        let counts = &layout.time[DEVICE].processes[0].counts;
        for (pause, used) in steps {
            now += pause;
            layout.note_second(DEVICE, ns(now));
            counts.charged_ns.add(ns(used));
            counts.throttled_ns.add(ns(2 * used));
            counted.push((now, used));
            for seconds in [1, 10, 60, 62] {
                let lately = layout.used_over(DEVICE, seconds, ns(now));
                // A span begins with a second.
                let began = (now / SECOND * SECOND).saturating_sub(seconds * SECOND);
                let since = |(at, used): &(u64, u64)| if *at >= began { *used } else { 0 };
                let used: u64 = counted.iter().map(since).sum();
                let was_noted = counted.iter().any(|(at, _)| at / SECOND == began / SECOND);
                let is_known = now >= seconds * SECOND;
                let span = if was_noted && is_known { now - began } else { seconds * SECOND };
                prop_assert_eq!(lately, RecentUsage { used: ns(used), throttled: ns(2 * used), span: ns(span) });
            }
            // Much later there was no recent use.
            let later = now + 70 * SECOND;
            prop_assert_eq!(layout.used_over(DEVICE, 1, ns(later)), RecentUsage { span: ns(SECOND), ..RecentUsage::default() });
        }
    }

    #[test]
    fn words_of_any_value_report_nothing_beyond_the_count(
        words in proptest::collection::vec(any::<[u64; 3]>(), SECONDS),
        near in any::<bool>(),
        used in any::<u64>(),
        seconds in any::<u64>(),
        now in any::<u64>(),
    ) {
        let world = World::new(0);
        let layout = &world.layout;
        layout.header.slot_high_water.set(1);
        layout.time[DEVICE].processes[0].counts.charged_ns.set(ns(used));
        for (moment, [second, used, throttled]) in layout.time[DEVICE].history.iter().zip(words) {
            // Seconds within the history are rare among random words.
            let second = if near { (now / SECOND).saturating_sub(second % 70) + 1 } else { second };
            moment.second.publish(second);
            moment.charged_ns.set(ns(used));
            moment.throttled_ns.set(ns(throttled));
        }
        let lately = layout.used_over(DEVICE, seconds, ns(now));
        prop_assert!(lately.used <= ns(used) && lately.throttled.is_zero());
        prop_assert!((SECOND..64 * SECOND).contains(&lately.span.nanos()));
        layout.note_second(DEVICE, ns(now));
        prop_assert!(layout.used_over(DEVICE, seconds, ns(now)).used <= ns(used));
    }
}

#[test]
fn a_note_that_was_never_finished_is_a_gap_that_the_next_one_fills() {
    let world = World::new(0);
    let layout = &world.layout;
    layout.header.slot_high_water.set(1);
    let (time, used) = (&layout.time[DEVICE], &layout.time[DEVICE].processes[0].counts.charged_ns);
    let now = 1000 * SECOND;
    layout.note_second(DEVICE, ns(now));
    used.set(ns(300));
    // A process killed during the write leaves this state.
    time.history[usize::try_from(1001_u64).unwrap() % SECONDS].second.publish(0);
    let at = |now| layout.used_over(DEVICE, 1, ns(now));
    assert_eq!(at(now + SECOND), RecentUsage { used: ns(300), throttled: ns(0), span: ns(SECOND) });
    layout.note_second(DEVICE, ns(now + SECOND));
    used.set(ns(350));
    assert_eq!(at(now + 2 * SECOND), RecentUsage { used: ns(50), throttled: ns(0), span: ns(SECOND) });
}

#[test]
fn a_second_is_noted_once() {
    let world = World::new(0);
    let layout = &world.layout;
    layout.header.slot_high_water.set(1);
    let used = &layout.time[DEVICE].processes[0].counts.charged_ns;
    for used_before in [5, 70, 900] {
        layout.note_second(DEVICE, ns(7 * SECOND + used_before));
        used.set(ns(used_before));
    }
    assert_eq!(layout.used_over(DEVICE, 1, ns(8 * SECOND)).used, ns(900));
    assert_eq!(layout.used_over(0, 1, ns(8 * SECOND)).used, ns(0));
    layout.note_second(DEVICE, ns(8 * SECOND));
    assert_eq!(layout.used_over(DEVICE, 1, ns(9 * SECOND)).used, ns(0));
}
