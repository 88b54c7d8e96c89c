//! A slice on a GPU that several slices share, in the view of the GPU's arbiter.

use std::collections::BTreeMap;

use gpuslice_policy::arbiter::{
    Arbiter, SharingSlice, SliceSettings,
    demand::{STOPPED, SliceFigures},
    grant_word,
};
use gpuslice_policy::compute::limiter::queue_bound;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use gpuslice_policy::units::Permille;

use crate::handle::{
    device::{Device, Uuid},
    limits::Limits,
    monitor::Monitor,
    region::Region,
};

/// Interval between two searches for dead members of a slice. A dead member's work does not count.
const REAP_COTENANT_EVERY: WallTime = WallTime::from_millis(250);

/// One of the slices among which an arbiter divides GPUs.
#[derive(Debug)]
pub struct Cotenant {
    id: u64,
    monitor: Monitor,
    reaped_at: Monotonic,
    /// For each device and process: the GPU time that it had used, and the instant since which that time has not changed.
    still: BTreeMap<Device, Vec<(GpuTime, Monotonic)>>,
}

impl Cotenant {
    /// Makes the cotenant of a region. `id`: a number that no other slice of the arbiter has.
    #[must_use]
    pub fn new(id: u64, monitor: Monitor) -> Self {
        Self { id, monitor, reaped_at: Monotonic::BEGIN, still: BTreeMap::new() }
    }

    /// Returns the slice's number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the slice's region.
    #[must_use]
    pub fn region(&self) -> &Region {
        self.monitor.region()
    }

    /// Reclaims the work of dead processes, if that is due. `now` is the present instant.
    pub fn reap(&mut self, now: Monotonic) {
        if now.since(self.reaped_at) >= REAP_COTENANT_EVERY {
            self.reaped_at = now;
            let _noticed = self.monitor.reap_if_due(now);
        }
    }

    /// Returns the slice's demand and settings on a GPU, and the index of the GPU in its region. `None`: the slice has no
    /// part in the division.
    fn demand(&mut self, gpu: &Uuid, clock: &impl Fn() -> Monotonic) -> Option<(Device, SharingSlice)> {
        let region = self.monitor.region();
        let device = region.device(gpu).filter(|device| region.is_paced(*device))?;
        if !region.is_ready() || !region.is_inhabited() {
            return None;
        }
        let paid_until = region.paid_until(device);
        // The clock is read after the word. If the process is stopped in between, the debt must not grow by that time.
        let now = clock();
        let mut figures = SliceFigures { owed: paid_until.since(now), ..SliceFigures::default() };
        let still = self.still.entry(device).or_default();
        for (slot, work) in region.process_activity(device, now).enumerate() {
            figures.used = figures.used.saturating_add(work.used);
            figures.throttled = figures.throttled.saturating_add(work.throttled);
            figures.waits |= work.waits;
            if still.len() <= slot {
                still.push((work.used, now));
            }
            let Some((used, since)) = still.get_mut(slot) else { continue };
            if *used != work.used || work.queued.is_zero() {
                (*used, *since) = (work.used, now);
            }
            if now.since(*since) < STOPPED {
                figures.queued = figures.queued.saturating_add(work.queued);
            }
        }
        Some((device, SharingSlice { id: self.id, settings: settings(region.limits(device)), figures }))
    }
}

fn settings(limits: Limits) -> SliceSettings {
    let limit = u16::try_from(limits.cores_permille).ok().and_then(Permille::new);
    SliceSettings {
        policy: limits.sharing.policy,
        limit: limit.unwrap_or(Permille::FULL),
        weight: limits.sharing.weight,
        priority: limits.sharing.priority,
        burst: limits.burst,
    }
}

/// Divides a GPU among all slices on it, and writes their grants. Returns true if any of them has work or waits. `clock`
/// returns the present instant. This function reads it beside each word, because the process may be stopped between the
/// words. A slice's debt is the distance of its word to the clock.
pub fn allocate_gpu(
    arbiter: &mut Arbiter,
    cotenants: &mut [&mut Cotenant],
    gpu: &Uuid,
    clock: impl Fn() -> Monotonic,
) -> bool {
    let now = clock();
    let demand = |(at, cotenant): (usize, &mut &mut Cotenant)| {
        cotenant.demand(gpu, &clock).map(|(device, slice)| (at, device, slice))
    };
    let demands: Vec<_> = cotenants.iter_mut().enumerate().filter_map(demand).collect();
    let slices: Vec<SharingSlice> = demands.iter().map(|(_, _, slice)| *slice).collect();
    for ((at, device, _), given) in demands.iter().zip(arbiter.look(now, &slices)) {
        let Some(cotenant) = cotenants.get(*at) else { continue };
        let (region, grant) = (cotenant.region(), grant_word::encode(&given, now));
        let before = region.grant(*device);
        // A slice that gets its own limit needs no grant.
        let is_own = given.rate_limit == region.own_rate_limit(*device)
            && given.queue_bound >= queue_bound::MOST_BOUND;
        if (before != 0 || !is_own) && grant_word::must_write(before, grant, now) {
            region.set_grant(*device, grant, &clock);
        }
        if !given.wall_credit.is_zero() {
            region.credit_wall_time(*device, given.wall_credit, &clock);
        }
    }
    slices.iter().any(|slice| !slice.figures.queued.is_zero() || slice.figures.waits)
}
