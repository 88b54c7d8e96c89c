//! Tells slices of programs that use their GPU and publish nothing.
//!
//! Example: a container without the library runs beside two slices in private folders. The driver gives it time slices, and the
//! slices count these as their own. Slices of one folder [ask NVML](gpuslice_policy::compute::attribution::unknown_processes)
//! themselves. For slices in different folders, the agent asks once for the whole node. If it finds such a program, it writes
//! the time of the finding into their regions.

use super::slices::{CotenantSlice, CotenantSlices};
use crate::gpus::Gpus;
use gpuslice_policy::compute::attribution::unknown_processes::UnknownProcesses;
use gpuslice_policy::time::Monotonic;
use gpuslice_region::Uuid;
use std::collections::HashMap;
use std::time::Instant;

/// The processes that publish no intervals, by GPU.
#[derive(Debug, Default)]
pub(super) struct Programs {
    by_gpu: HashMap<Uuid, UnknownProcesses>,
    /// Time of NVML's last answer.
    answered_at: Option<Instant>,
}

impl Programs {
    /// Reads NVML's answer, if there is a new one. Records in the regions of a GPU's slices that such programs use the GPU, if
    /// any do.
    pub(super) fn look(&mut self, gpus: &Gpus, slices: &mut CotenantSlices, now: Monotonic) {
        let Some(answer) = gpus.newer_uses(&mut self.answered_at) else { return };
        self.by_gpu.retain(|gpu, _| answer.contains_key(gpu));
        for (gpu, uses) in answer {
            let members: Vec<_> = slices
                .ready()
                .filter(|slice| slice.on(gpu).is_some())
                .flat_map(|slice| members(slice))
                .collect();
            let found = self.by_gpu.entry(gpu).or_default();
            found.look(&uses, members, now);
            if !found.are_there() {
                continue;
            }
            for slice in slices.ready() {
                if let Some(known) = slice.on(gpu) {
                    slice.cotenant.region().note_programs(known.device, now);
                }
            }
        }
    }
}

/// Returns the processes of a slice as pairs of a namespace's number and a process's number. The first number also contains the
/// slice's number, so no process of another slice has the same pair.
fn members(slice: &CotenantSlice) -> Vec<(u64, u32)> {
    let number = |namespace: u64| u64::from(slice.number) << 32 | namespace & u64::from(u32::MAX);
    let processes = slice.cotenant.region().processes();
    processes.iter().map(|member| (number(member.pid_namespace), member.pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cotenants::puppet::{GPU, Puppet, slices};
    use gpuslice_policy::compute::attribution::nvml_windows::Use;
    use gpuslice_policy::time::WallTime;
    use gpuslice_region::now;

    const SECOND: WallTime = WallTime::from_millis(1_000);

    #[test]
    fn slices_of_a_gpu_are_told_of_its_programs_for_three_seconds_after_the_last() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| Puppet::join(&root.path().join(folder), "1", GPU));
        let elsewhere = Puppet::join(&root.path().join("c"), "1", Uuid([8; 16]));
        let (mut slices, mut programs, gpus) =
            (slices(&[&a, &b, &elsewhere]), Programs::default(), Gpus::default());
        let start = now();
        let mut look = |pids: &[u32], second: u64| {
            let at = start + second * SECOND;
            let uses = pids.iter().map(|pid| Use { pid: *pid, stamp: 1, percent: 50 }).collect();
            gpus.answer(&GPU.0, uses);
            programs.look(&gpus, &mut slices, at);
            // The answer has not changed, so it does not count again.
            programs.look(&gpus, &mut slices, at);
            [&a, &b, &elsewhere].map(|puppet| puppet.member.has_programs(puppet.device, at))
        };
        assert_eq!(
            [1, 2, 3].map(|second| look(&[7, 8], second)),
            [[false; 3]; 3],
            "both slices have a process"
        );
        let looks = [4, 5, 6].map(|second| look(&[7, 8, 9], second));
        assert_eq!(looks, [[false; 3], [false; 3], [true, true, false]]);
        let last = [7, 8].map(|second| look(&[7, 8], second));
        assert_eq!(last, [[true, true, false]; 2]);
        assert_eq!(look(&[7, 8], 20), [false; 3]);
    }
}
