//! State of a slice after one of its processes died: nothing of that process may remain.

use super::bench::Bench;
use super::living::Living;
use super::outcome::but_refusals;
use gpuslice_region::{Device, LEAVING, Monitor, Trust};
use std::time::{Duration, Instant};

/// Quota of the slice.
pub(crate) const QUOTA: u64 = 64 << 20;
/// Bytes that the witness, the member that lives on, holds all the time.
pub(crate) const HELD: u64 = 4 << 20;
/// Time in which everything that a dead process held must be available again, and the longest that a member may wait.
const SOON: Duration = Duration::from_secs(1);

/// A slice in which processes die, with a member that lives on.
#[derive(Debug)]
pub(crate) struct Aftermath {
    /// Bench on which the processes of the slice run.
    pub(crate) bench: Bench,
    /// The member that lives on.
    pub(crate) witness: Living,
    monitor: Monitor,
    open: String,
    longest: Duration,
}

impl Aftermath {
    /// Makes a slice with its witness, on a simulated GPU with a quick NVML.
    pub(crate) fn new() -> Self {
        Self::on(Bench::simulated_without_contexts().with_quick_nvml())
    }

    /// Makes a slice with its witness on `bench`.
    pub(crate) fn on(bench: Bench) -> Self {
        let bench = bench.with("GPU_MEM_LIMIT", &QUOTA.to_string());
        let mut witness = bench.host("witness", &[&HELD.to_string()]).loaded().start();
        assert_eq!(witness.hear().as_deref(), Some("ready"));
        let monitor = Monitor::open(&bench.region(), Trust::AnyOwner)
            .expect("the region can be read")
            .expect("the witness has made the region");
        // The witness opens descriptors in its first call and keeps them. The count below includes them.
        witness.ask(&format!("take {QUOTA}"));
        let open = witness.ask("open");
        Self { bench, witness, monitor, open, longest: Duration::ZERO }
    }

    /// Lets the witness take `bytes` and give them back. Returns the status that the witness gets.
    #[track_caller]
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        // While memory of dead processes is leaving, a figure of free memory is no exact evidence, and a call may wait for it.
        let leaves = self.monitor.devices().iter().any(|view| self.monitor.leaving(view.device) > 0);
        let members = self.monitor.processes();
        let answer = self.witness.numbers(&format!("take {bytes}"));
        let &[status, microseconds] = answer.as_slice() else { panic!("{answer:?}") };
        let waited = Duration::from_micros(microseconds);
        self.longest = self.longest.max(waited);
        // A member may die before the call or during it.
        let has_died = members.iter().any(|member| has_ended(member.pid));
        let most = if leaves || has_died { SOON + LEAVING.duration() } else { SOON };
        assert!(waited < most, "a member waited for {waited:?}, and {most:?} at most is right");
        status
    }

    /// Returns the bytes that the ledger counts, without those of dead processes.
    #[track_caller]
    pub(crate) fn ledger(&self) -> u64 {
        self.monitor.reap().expect("dead members can be found");
        self.monitor.held(self.device())
    }

    /// Returns the bytes of the ledger that belong to contexts.
    #[track_caller]
    fn contexts(&self) -> u64 {
        self.monitor.contexts(self.device())
    }

    #[track_caller]
    fn device(&self) -> Device {
        let devices = self.monitor.devices();
        let [device] = devices.as_slice() else { panic!("{devices:?}") };
        device.device
    }

    /// Asserts that the ledger equals the ground truth: the witness holds its own bytes, and `others` processes hold `bytes`.
    #[track_caller]
    pub(crate) fn holds(&self, bytes: u64, others: usize) {
        // The device may get back memory of dead processes later. No living process holds memory that is leaving.
        let (ledger, truth) = (self.ledger(), self.bench.truth(0));
        assert_eq!(
            (ledger, truth.living()),
            (HELD + bytes, HELD + bytes),
            "the ledger, and what is held in truth"
        );
        let processes = self.monitor.processes();
        assert_eq!(processes.len(), 1 + others);
        // Contexts take no memory on this GPU, so the ledger charges no living process for one.
        let contexts: Vec<u64> = processes.into_iter().flat_map(|process| process.contexts).collect();
        assert_eq!(
            (self.contexts(), contexts),
            (0, vec![0; 1 + others]),
            "what contexts hold, together and each"
        );
    }

    /// Asserts that the witness, the only living process, gets the rest of the quota in one piece within a second. Asserts also
    /// that the ledger equals the ground truth, that only the witness has a slot, and that no call of the witness took long.
    #[track_caller]
    pub(crate) fn settles(&mut self) {
        let started = Instant::now();
        while self.take(QUOTA - HELD) != 0 {
            assert!(started.elapsed() < SOON, "the quota is not free again: {:?}", self.monitor.processes());
        }
        self.holds(0, 0);
        assert_eq!(self.bench.truth_at_rest(0).held, HELD, "the dead have left something behind");
    }

    /// Ends the witness. Asserts that it has as many descriptors and mappings as in the beginning, that it printed nothing, and
    /// that the peak is exactly the quota. Returns the longest that the witness waited.
    #[track_caller]
    pub(crate) fn end(self) -> Duration {
        let longest = self.longest;
        assert_eq!(self.ended(), "");
        longest
    }

    /// Ends the witness as [`end`](Self::end) does. Asserts that it printed one line, with `words` in it.
    #[track_caller]
    pub(crate) fn ends_saying(self, words: &str) {
        let said = self.ended();
        assert!(said.lines().count() == 1 && said.contains(words), "{said}");
    }

    #[track_caller]
    fn ended(mut self) -> String {
        assert_eq!(self.bench.truth(0).peak, QUOTA);
        assert_eq!(self.witness.ask("open"), self.open, "descriptors, and mappings of the region");
        let (status, said) = self.witness.end();
        assert!(status.success(), "{status}: {said}");
        but_refusals(&said)
    }

    /// Ends the witness of a slice that has lost its region. Asserts that the witness gets no more memory, prints one line with
    /// `words` in it, and holds in truth the same bytes as before.
    #[track_caller]
    pub(crate) fn ends_without_its_region(mut self, words: &str) {
        assert_eq!((self.take(QUOTA - HELD), self.take(QUOTA - HELD)), (800, 800));
        let truth = self.bench.truth_at_rest(0);
        assert!(truth.held == HELD && truth.peak <= QUOTA, "{truth:?}");
        let (status, said) = self.witness.end();
        let said = but_refusals(&said);
        assert!(status.success() && said.lines().count() == 1 && said.contains(words), "{status}: {said}");
    }
}

/// Returns true if a process is a zombie, or gone.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['Z', 'X'])))
}
