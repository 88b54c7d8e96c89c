//! Finds dead members of a region with a removed file, by process number and start time.
//!
//! A process can ask for life locks only through a descriptor of the file, and a member has none. Each slot has the owner's
//! process number, start time and process-number namespace. The kernel uses a process number again, but not with the same
//! start time. Other processes may write anything into these words. So the words decide only where locks cannot.

use core::convert::Infallible;

use crate::{
    layout::Layout,
    slots::identity,
    slots::roster::{Liveness, Reaped},
};
use gpuslice_policy::time::Monotonic;

/// Asks `/proc` for the owners of slots in this process's process-number namespace.
#[derive(Debug)]
pub(crate) struct PidLiveness<'region> {
    layout: &'region Layout,
    /// The namespace; 0: `/proc` cannot answer, and all owners count as alive.
    namespace: u64,
    /// This process, as a value of `Header::reaper`.
    me: u64,
}

impl<'region> PidLiveness<'region> {
    /// Makes the liveness proof for the region at `layout`, as this process sees it.
    pub(crate) fn here(layout: &'region Layout) -> Self {
        let who = identity::own_identity();
        let namespace = if identity::is_proc_ours() { who.pid_namespace } else { 0 };
        Self { layout, namespace, me: reaper(who.pid, who.start) }
    }

    /// Tells whether `keeper`, a value of `Header::reaper`, names a process that is alive.
    fn is_reaped_by_another(&self, keeper: u64) -> bool {
        let [pid, start] = [keeper & u64::from(u32::MAX), keeper >> 32];
        let pid = u32::try_from(pid).unwrap_or(0);
        keeper != 0 && identity::is_alive(pid, |found| found & u64::from(u32::MAX) == start)
    }
}

/// Packs a process into one word.
fn reaper(pid: u32, start: u64) -> u64 {
    start << 32 | u64::from(pid)
}

impl Liveness for PidLiveness<'_> {
    type Error = Infallible;

    fn is_alive(&self, slot: usize) -> Result<bool, Infallible> {
        let Some(entry) = self.layout.slots.get(slot) else { return Ok(false) };
        let [start, namespace] = [entry.start.get(), entry.pid_namespace.get()];
        if self.namespace == 0 || namespace != self.namespace || start == 0 {
            return Ok(true);
        }
        Ok(identity::is_alive(entry.pid.get(), |found| found == start))
    }
}

impl Layout {
    /// Reaps dead members without the join lock, which needs the file.
    ///
    /// Only one member reaps at a time: `Header::reaper` names it. A member replaces a dead reaper. Members of different
    /// process-number namespaces may not see each other in `/proc`, but each reaps processes of its own namespace only. No
    /// process can join meanwhile, because the file is gone.
    pub(crate) fn reap_detached(&self, numbers: &PidLiveness<'_>, now: Monotonic) -> Reaped {
        let Ok(true) = self.any_dead(numbers) else { return Reaped::Nobody };
        let keeper = &self.header.reaper;
        let before = keeper.get();
        if numbers.is_reaped_by_another(before) || !keeper.replace(before, numbers.me) {
            return Reaped::UnderWay;
        }
        let Ok((dead, _living)) = self.reap_locked(numbers, now);
        keeper.replace(numbers.me, 0);
        if dead == 0 { Reaped::Nobody } else { Reaped::Dead(dead) }
    }
}
