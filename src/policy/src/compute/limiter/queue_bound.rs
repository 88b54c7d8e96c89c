//! Bounds the work in flight on the GPU.
//!
//! The library cannot take queued work back. The bound of its predicted time has two uses. A new share or a higher priority
//! takes effect soon. A wrong estimate is wrong for only little work.

use super::super::cost::estimate::Key;
use crate::time::{GpuTime, WallTime};

/// Smallest bound of predicted GPU time: 20 ms. With it the GPU does not wait for any host.
pub const LEAST_BOUND: GpuTime = GpuTime::from_millis(20);
/// Smallest bound where other processes of the slice use the device: 4 ms of predicted GPU time, one
/// turn ([`super::lease::turn`]).
///
/// The GPU divides its time among contexts. Example: one process spends 20 ms of saved time at once. Kernels of 0.4 ms of
/// seven other processes then take 3 ms and more, and are measured so. Turns become too long, and a launch waits for up to
/// three times its fair turn.
pub const LEAST_BESIDE: GpuTime = GpuTime::from_millis(4);
/// Largest bound of predicted GPU time: 50 ms.
///
/// A stream on which no work has started for as long counts as blocked. It may wait for a host function, a word in memory,
/// another device or a semaphore. If a thread waited for the queue, it might be the thread that must end the stream's wait.
/// So blocked work does not count. The slice's paid time bounds later launches, as always.
pub const MOST_BOUND: GpuTime = GpuTime::from_millis(50);
/// Launches that may be in flight on a stream when a thread takes credit, if the driver's queues have the usual length.
///
/// The driver's queue of a stream has about 1024 places. A launch into a full queue waits in the driver, with locks that
/// other threads need. Example: kernels of 5 us fill the queue after 5 ms, long before 20 ms of predicted time are queued.
/// The other half of the places is for launches that the new credit pays for, and for events and copies.
const MOST_LAUNCHES: u32 = 512;
/// Launches of one unknown key that may be in flight.
const UNKNOWN_OF_KEY: u8 = 2;
/// Launches of all unknown keys that may be in flight. A program meets thousands of shapes in its warm-up.
const MOST_UNKNOWN: u8 = 8;
/// Time for which a launch waits for the measurement of an unknown launch: 50 ms.
pub const UNKNOWN_WAIT: WallTime = WallTime::from_millis(50);

/// Time before the end of the queued work at which the next launch is admitted: 0.3 ms. A host takes that long
/// to wake up and launch.
pub const AT_END: WallTime = WallTime::from_micros(300);

/// Returns the bound for launches of this cost: two launches and a quarter, at most [`MOST_BOUND`].
fn two(cost: GpuTime) -> GpuTime {
    cost.saturating_mul(2).saturating_add(cost.part(4)).min(MOST_BOUND)
}

/// Returns the smallest bound if other slices leave `room`. One launch may always be queued. `is_alone`: no other process
/// of the slice uses the device.
#[must_use]
pub fn least(room: GpuTime, is_alone: bool) -> GpuTime {
    room.min(if is_alone { LEAST_BOUND } else { LEAST_BESIDE })
}

/// Returns the bound of launches in flight on a stream. `scale` is the length of the driver's queues in thousandths of the
/// usual length, from [`queue_scale`].
#[must_use]
pub fn launches(scale: u32) -> u32 {
    u32::try_from(u64::from(MOST_LAUNCHES).saturating_mul(scale.into()) / 1000).unwrap_or(u32::MAX)
}

/// Returns the launches in flight on a stream. `queued` launches on the device are not known to have ended. The stream is
/// predicted to be busy for `left`, and each of its launches is predicted to take `each`.
///
/// The count alone may be a millisecond old, and the prediction alone may run ahead of the GPU without end.
#[must_use]
pub fn launches_ahead(queued: u32, left: WallTime, each: WallTime) -> u32 {
    let predicted = left.nanos().checked_div(each.nanos()).and_then(|count| u32::try_from(count).ok());
    predicted.map_or(queued, |predicted| queued.min(predicted))
}

/// Returns the length of the driver's queues in thousandths of the usual one, from the value of `CUDA_SCALE_LAUNCH_QUEUES`.
/// The driver knows `0.25x`, `0.5x`, `2x` and `4x`, and ignores other values.
#[must_use]
pub fn queue_scale(value: Option<&[u8]>) -> u32 {
    match value {
        Some(b"0.25x") => 250,
        Some(b"0.5x") => 500,
        Some(b"2x") => 2000,
        Some(b"4x") => 4000,
        _ => 1000,
    }
}

/// Predicted work of closed batches that is not known to have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueuedWork {
    queued: GpuTime,
}

impl QueuedWork {
    /// Makes a queue of `queued`.
    #[must_use]
    pub const fn of(queued: GpuTime) -> Self {
        Self { queued }
    }

    /// Returns the GPU time of the work in flight.
    #[must_use]
    pub const fn queued(&self) -> GpuTime {
        self.queued
    }

    /// Returns true if a launch of this cost may follow. The bound is two such launches and a quarter, within 20 to 50 ms,
    /// because estimates vary from launch to launch. One launch is always admitted.
    #[must_use]
    pub fn admits(&self, cost: GpuTime) -> bool {
        self.admits_within(cost, LEAST_BOUND)
    }

    /// Decides like [`admits`](Self::admits), with another smallest bound, from [`least`]. If other slices must not wait
    /// for long, only one long launch may be queued.
    #[inline]
    #[must_use]
    pub fn admits_within(&self, cost: GpuTime, least: GpuTime) -> bool {
        self.queued.saturating_add(cost) <= least || self.admits_long(cost, least)
    }

    /// Decides about a launch that is longer than the room under the smallest bound.
    #[cold]
    fn admits_long(&self, cost: GpuTime, least: GpuTime) -> bool {
        self.queued.is_zero() || (least >= LEAST_BOUND && self.queued.saturating_add(cost) <= two(cost))
    }

    /// Returns true if a launch may follow because the queued work ends in `left`. Otherwise the GPU would be idle while
    /// the host wakes up. A third launch is never admitted, whatever the prediction.
    #[must_use]
    pub fn admits_at_end(&self, cost: GpuTime, left: WallTime) -> bool {
        left <= AT_END && self.queued.saturating_add(cost) <= two(cost)
    }

    /// Adds a closed batch for which `prepaid` was paid.
    pub const fn add(&mut self, prepaid: GpuTime) {
        self.queued = self.queued.saturating_add(prepaid);
    }

    /// Removes a batch that is known to have ended.
    pub const fn done(&mut self, prepaid: GpuTime) {
        self.queued = self.queued.saturating_sub(prepaid);
    }
}

/// Launches in flight whose cost is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unknown {
    under_way: [(u64, u8); MOST_UNKNOWN as usize],
}

impl Unknown {
    /// Returns true if one more launch of this key is admitted.
    #[must_use]
    pub fn admits(&self, key: &Key) -> bool {
        let all =
            self.under_way.iter().map(|(_, count)| count).fold(0_u8, |sum, count| sum.saturating_add(*count));
        let of_key = self.under_way.iter().find(|(id, _)| *id == key.id()).map_or(0, |(_, count)| *count);
        all < MOST_UNKNOWN && of_key < UNKNOWN_OF_KEY
    }

    /// Returns true if any such launch is in flight.
    #[must_use]
    pub fn any(&self) -> bool {
        self.under_way.iter().any(|(_, count)| *count > 0)
    }

    /// Counts an admitted launch of this key.
    pub fn add(&mut self, key: &Key) {
        let same = self.under_way.iter().position(|(id, _)| *id == key.id());
        let free = || self.under_way.iter().position(|(_, count)| *count == 0);
        if let Some((id, count)) = same.or_else(free).and_then(|at| self.under_way.get_mut(at)) {
            (*id, *count) = (key.id(), count.saturating_add(1));
        }
    }

    /// Removes a launch of this key that was measured, or whose measurement failed.
    pub fn done(&mut self, key: &Key) {
        if let Some((id, count)) = self.under_way.iter_mut().find(|(id, _)| *id == key.id()) {
            *count = count.saturating_sub(1);
            *id = if *count == 0 { 0 } else { *id };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::{ms, ns, us};

    #[test]
    fn predicted_work_is_bounded_and_one_launch_always_goes() {
        let mut ahead = QueuedWork::default();
        assert!(ahead.admits(ms(400)));
        ahead.add(ms(19));
        assert!(ahead.admits(ms(1)));
        assert!(!ahead.admits(ms(2)));
        assert!(ahead.admits(ms(20)), "two of a longer one");
        assert!(ahead.admits(ms(16)), "also where less was expected of the second");
        assert!(!ahead.admits(ms(15)));
        assert!(!ahead.admits(ms(32)), "but no more than 50 ms");
        assert_eq!(ahead.queued(), ms(19));
        ahead.done(ms(19));
        assert_eq!(ahead, QueuedWork::default());
    }

    #[test]
    fn beside_others_less_may_be_queued_and_of_long_launches_one() {
        let ahead = QueuedWork::of(ms(3));
        let admits = |ahead: QueuedWork, cost, room| ahead.admits_within(cost, least(room, true));
        assert!(admits(ahead, ms(1), ms(4)));
        assert!(!admits(ahead, us(1_500), ms(4)));
        assert!(!admits(ahead, ms(3), ms(4)));
        assert!(!admits(QueuedWork::of(ms(30)), ms(1), ns(u64::MAX)), "its own bound stays");
        assert!(admits(QueuedWork::default(), ms(400), ns(0)));
        assert_eq!(
            [GpuTime::MAX, ms(3)].map(|room| least(room, false)),
            [LEAST_BESIDE, ms(3)],
            "beside processes of the slice"
        );
    }

    #[test]
    fn the_next_one_goes_as_the_last_is_about_to_end_but_no_third() {
        let one = QueuedWork::of(ms(5));
        assert!(one.admits_at_end(ms(5), AT_END) && one.admits_at_end(ms(5), ns(0)));
        assert!(!one.admits_at_end(ms(5), AT_END + ns(1)));
        assert!(!QueuedWork::of(ms(10)).admits_at_end(ms(5), ns(0)));
    }

    #[test]
    fn the_bound_of_launches_follows_the_length_of_the_queue() {
        let scales = [None, Some("0.25x"), Some("0.5x"), Some("2x"), Some("4x"), Some("3x"), Some("")];
        let bounds = scales.map(|scale| launches(queue_scale(scale.map(str::as_bytes))));
        assert_eq!(bounds, [512, 128, 256, 1024, 2048, 512, 512]);
    }

    #[test]
    fn launches_count_that_have_neither_ended_nor_should_have() {
        assert_eq!(launches_ahead(700, ms(10), us(5)), 700);
        assert_eq!(launches_ahead(700, us(50), us(5)), 10, "the count is old");
        assert_eq!(launches_ahead(3, WallTime::MAX, us(5)), 3, "the prediction is wrong");
        assert_eq!(launches_ahead(700, ms(1), WallTime::ZERO), 700);
    }

    #[test]
    fn of_one_unknown_key_two_go_and_of_all_together_eight() {
        let mut unknown = Unknown::default();
        for key in (0..4).map(Key::graph) {
            assert!(unknown.admits(&key));
            unknown.add(&key);
            assert!(unknown.admits(&key));
            unknown.add(&key);
            assert!(!unknown.admits(&key));
        }
        assert!(!unknown.admits(&Key::graph(9)));
        unknown.done(&Key::graph(3));
        assert!(unknown.admits(&Key::graph(9)));
        assert!(unknown.admits(&Key::graph(3)));
        assert!(!unknown.admits(&Key::graph(2)));
        unknown.add(&Key::graph(3));
        unknown.done(&Key::graph(0));
        assert!(!unknown.admits(&Key::graph(3)), "the one of before counts");
    }
}
