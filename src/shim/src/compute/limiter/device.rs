//! Limiter of GPU time on one device, in this process.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::compute::limiter::credit::CreditLock;
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use gpuslice_policy::compute::limiter::queue_bound::{self, Ahead, Unknown};
use parking_lot::Mutex;

/// A device whose time is paced.
#[derive(Debug)]
pub(crate) struct DeviceLimiter {
    /// Which one.
    pub(crate) place: SliceDevice,
    /// Which thread of this process asks for GPU time.
    pub(crate) asking: CreditLock,
    /// When it was looked last whether the region is still there.
    pub(crate) looked: AtomicU64,
    /// How often something has ended, or nobody will see its end; wraps.
    pub(crate) landings: AtomicU32,
    /// Streams that it launches on, as seen lately.
    pub(crate) lanes: AtomicUsize,
    /// Predicted GPU time of closed runs that have not been seen to end, in nanoseconds.
    pub(crate) queued: AtomicU64,
    /// When the last of them is predicted to end, on the monotonic clock.
    pub(crate) until: AtomicU64,
    /// Whether the GPU was at one when it was looked at last, queued or set aside.
    pub(crate) runs: AtomicBool,
    /// What launches owe that went beside others since the slice's time was paid for last, in nanoseconds of GPU time.
    pub(crate) owed: AtomicU64,
    /// The room that other slices leave for that; as heard at the helper's last round.
    pub(crate) room: AtomicU64,
    /// Whether no other process of the slice uses the device, as seen when the slice's time was last taken.
    pub(crate) is_alone: AtomicBool,
    /// The bound of queued time for short launches that follows from both.
    pub(crate) least_ahead: AtomicU64,
    /// Launches under way of which nothing is known.
    pub(crate) unknown: Mutex<Unknown>,
}

impl DeviceLimiter {
    /// The pacer of a device, before any launch.
    pub(crate) fn new(place: SliceDevice) -> Self {
        Self {
            place,
            asking: CreditLock::default(),
            looked: AtomicU64::new(0),
            landings: AtomicU32::new(0),
            lanes: AtomicUsize::new(0),
            queued: AtomicU64::new(0),
            until: AtomicU64::new(0),
            runs: AtomicBool::new(false),
            owed: AtomicU64::new(0),
            room: AtomicU64::new(u64::MAX),
            is_alone: AtomicBool::new(true),
            least_ahead: AtomicU64::new(queue_bound::LEAST),
            unknown: Mutex::default(),
        }
    }

    /// Whether the slice has less than all of the device's time now, or divides it with others.
    #[inline]
    pub(crate) fn is_pacing(&self, slice: &Slice) -> bool {
        slice.region().is_paced(self.place.device)
    }

    /// Whether a launch of this cost may follow what is queued ahead.
    #[inline]
    pub(crate) fn admits(&self, cost: u64) -> bool {
        let least = self.least_ahead.load(Ordering::Relaxed);
        Ahead::of(self.queued.load(Ordering::Relaxed)).admits_within(cost, least)
    }

    /// So much less of its work is queued; what is left.
    pub(crate) fn less_queued(&self, by: u64) -> u64 {
        let less = |queued: u64| Some(queued.saturating_sub(by));
        let before = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or(0).saturating_sub(by)
    }

    /// Whether other slices leave less room than usual for what is queued.
    pub(crate) fn gives_way(&self) -> bool {
        self.room.load(Ordering::Relaxed) < queue_bound::LEAST
    }

    /// Whether they, or other processes of the slice, leave less room than usual.
    pub(crate) fn queues_little(&self) -> bool {
        self.least_ahead.load(Ordering::Relaxed) < queue_bound::LEAST
    }

    /// Other slices leave so much room for what is queued.
    pub(crate) fn leave_room(&self, room: u64) {
        self.room.store(room, Ordering::Relaxed);
        self.bound_queue();
    }

    /// Whether no other process of the slice uses the device.
    pub(crate) fn set_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
        self.bound_queue();
    }

    pub(crate) fn bound_queue(&self) {
        let least =
            queue_bound::least(self.room.load(Ordering::Relaxed), self.is_alone.load(Ordering::Relaxed));
        self.least_ahead.store(least, Ordering::Relaxed);
    }
}
