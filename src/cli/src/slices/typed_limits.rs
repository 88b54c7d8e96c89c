//! The limits that a user typed for a slice, as settings of the slice's operator's file.

use crate::arguments::{Burst, Cdi, Cores, Memory, Set};
use gpuslice_policy::config::{CorePolicy, Priority, Weight};
use gpuslice_policy::units::Setting as _;

/// Limits that a user typed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypedLimits<'a> {
    mem: Option<&'a Memory>,
    cores: Option<&'a Cores>,
    burst: Option<&'a Burst>,
    policy: Option<CorePolicy>,
    weight: Option<Weight>,
    priority: Option<Priority>,
}

impl<'a> From<&'a Cdi> for TypedLimits<'a> {
    fn from(wish: &'a Cdi) -> Self {
        let Cdi { policy, weight, priority, .. } = *wish;
        let (mem, cores, burst) = (wish.mem.as_ref(), wish.cores.as_ref(), wish.burst.as_ref());
        Self { mem, cores, burst, policy, weight, priority }
    }
}

/// Leaves out lists. `set` numbers devices as the slice does, and the file numbers them as the bus does. A list in the file would
/// also remove the limit from devices that it does not name.
impl<'a> From<&'a Set> for TypedLimits<'a> {
    fn from(wish: &'a Set) -> Self {
        let Set { policy, weight, priority, .. } = *wish;
        let mem = wish.mem.as_ref().filter(|mem| mem.quotas.named.is_empty());
        let cores = wish.cores.as_ref().filter(|cores| cores.shares.named.is_empty());
        Self { mem, cores, burst: wish.burst.as_ref(), policy, weight, priority }
    }
}

impl TypedLimits<'_> {
    /// Returns the limits as settings of an operator's file.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("GPU_MEM_LIMIT", self.mem.map(|memory| memory.text.clone())),
            ("GPU_CORE_PERCENT", self.cores.map(|cores| cores.text.clone())),
            ("GPU_CORE_BURST", self.burst.map(|burst| burst.text.clone())),
            ("GPU_CORE_POLICY", self.policy.map(|policy| policy.setting())),
            ("GPU_CORE_WEIGHT", self.weight.map(|weight| weight.get().to_string())),
            ("GPU_PRIORITY", self.priority.map(|priority| priority.setting())),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}
