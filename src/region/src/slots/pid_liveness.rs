//! Which members are alive in a region whose file was removed?
//!
//! Life locks can be asked for through a descriptor of the file only, and a member has none. Its slot says its process
//! number, when it started, and its process-number namespace. A number is used again, but not with the same start. The
//! words may say anything, so this decides only where locks cannot.

use core::convert::Infallible;

use crate::{
    layout::Layout,
    slots::identity,
    slots::roster::{Liveness, Reaped},
};

/// Finds out whether processes of this process-number namespace are alive.
#[derive(Debug)]
pub(crate) struct PidLiveness<'region> {
    layout: &'region Layout,
    /// The namespace; 0: nobody can be asked.
    namespace: u64,
    /// This process.
    me: u64,
}

impl<'region> PidLiveness<'region> {
    /// As this process sees it.
    pub(crate) fn here(layout: &'region Layout) -> Self {
        let who = identity::own_identity();
        let namespace = if identity::is_proc_ours() { who.pid_namespace } else { 0 };
        Self { layout, namespace, me: reaper(who.pid, who.start) }
    }

    /// Whether another member that clears the dead is alive.
    fn is_reaped_by_another(&self, keeper: u64) -> bool {
        let [pid, start] = [keeper & u64::from(u32::MAX), keeper >> 32];
        let pid = u32::try_from(pid).unwrap_or(0);
        keeper != 0 && identity::is_alive(pid, |found| found & u64::from(u32::MAX) == start)
    }
}

/// A process as one word.
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
    /// Clears the slots of the dead where nobody can have the join lock.
    ///
    /// One member at a time: `keeper` says which. Members of several process-number namespaces may not see each other, but
    /// then each clears processes of its own namespace alone. No newcomer can join.
    pub(crate) fn reap_detached(&self, numbers: &PidLiveness<'_>, now: u64) -> Reaped {
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
