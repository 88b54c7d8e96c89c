//! After a process of a slice died: is everything as if it had never been?

use super::bench::Bench;
use super::living::Living;
use super::outcome::but_refusals;
use gpuslice_region::{Device, LEAVING, Monitor, Trust};
use std::time::{Duration, Instant};

/// Quota of the slice.
pub(crate) const QUOTA: u64 = 64 << 20;
/// The bytes that the witness holds all the time.
pub(crate) const HELD: u64 = 4 << 20;
/// In which all that the dead had must be there again, and the longest that anybody may wait.
const SOON: Duration = Duration::from_secs(1);

/// A slice in which others die, with a member that lives on.
#[derive(Debug)]
pub(crate) struct Aftermath {
    /// Where they all run.
    pub(crate) bench: Bench,
    /// The member that lives on.
    pub(crate) witness: Living,
    monitor: Monitor,
    open: String,
    longest: Duration,
}

impl Aftermath {
    /// A slice with its witness.
    pub(crate) fn new() -> Self {
        Self::on(Bench::simulated().with_quick_nvml())
    }

    /// The same on a bench of one's own.
    pub(crate) fn on(bench: Bench) -> Self {
        let bench = bench.with("GPU_MEM_LIMIT", &QUOTA.to_string());
        let mut witness = bench.host("witness", &[&HELD.to_string()]).loaded().start();
        assert_eq!(witness.hear().as_deref(), Some("ready"));
        let monitor = Monitor::open(&bench.region(), Trust::AnyOwner)
            .expect("the region can be read")
            .expect("the witness has made the region");
        // The descriptors of the first call are open from now on.
        witness.ask(&format!("take {QUOTA}"));
        let open = witness.ask("open");
        Self { bench, witness, monitor, open, longest: Duration::ZERO }
    }

    /// Lets the witness take and give back this much: the status it gets.
    #[track_caller]
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        // While memory leaves, one that stands still in a memory call keeps free memory from being an exact witness.
        let leaves = self.monitor.devices().iter().any(|view| self.monitor.leaving(view.device) > 0)
            || self.monitor.processes().iter().any(|process| has_ended(process.pid));
        let most = if leaves { SOON + Duration::from_nanos(LEAVING) } else { SOON };
        let answer = self.witness.numbers(&format!("take {bytes}"));
        let &[status, microseconds] = answer.as_slice() else { panic!("{answer:?}") };
        let waited = Duration::from_micros(microseconds);
        self.longest = self.longest.max(waited);
        assert!(waited < most, "a member waited for {waited:?}, and {most:?} at most is right");
        status
    }

    /// Returns the bytes that the ledger counts, without those of the dead.
    #[track_caller]
    pub(crate) fn ledger(&self) -> u64 {
        self.monitor.reap().expect("the dead can be told");
        self.monitor.held(self.device())
    }

    /// How much of it contexts hold.
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

    /// The ledger is the truth, and this much is held, beside what the witness holds, by so many others.
    #[track_caller]
    pub(crate) fn holds(&self, bytes: u64, others: usize) {
        // The device may have memory of the dead back later: what leaves is nobody's.
        let (ledger, truth) = (self.ledger(), self.bench.truth(0));
        assert_eq!(
            (ledger, truth.living()),
            (HELD + bytes, HELD + bytes),
            "the ledger, and what is held in truth"
        );
        let processes = self.monitor.processes();
        assert_eq!(processes.len(), 1 + others);
        // Contexts take nothing here, and nobody who lives has given one more room.
        let told: Vec<u64> = processes.into_iter().flat_map(|process| process.contexts).collect();
        assert_eq!(
            (self.contexts(), told),
            (0, vec![0; 1 + others]),
            "what contexts hold, together and each"
        );
    }

    /// Nobody but the witness lives: within a second the whole rest of the quota can be had again in one piece,
    /// the ledger is the truth to the byte, nobody has a place but the witness, and nobody waited for long.
    #[track_caller]
    pub(crate) fn settles(&mut self) {
        let started = Instant::now();
        while self.take(QUOTA - HELD) != 0 {
            assert!(started.elapsed() < SOON, "the quota is not free again: {:?}", self.monitor.processes());
        }
        self.holds(0, 0);
        assert_eq!(self.bench.truth_at_rest(0).held, HELD, "the dead have left something behind");
    }

    /// The witness lives, has no descriptor and no mapping more than in the beginning, and said nothing; the quota
    /// was never passed by a byte. Returns the longest that the witness waited.
    #[track_caller]
    pub(crate) fn end(self) -> Duration {
        let longest = self.longest;
        assert_eq!(self.ended(), "");
        longest
    }

    /// The same for a witness that said one line with these words.
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

    /// The slice has lost its region: its witness gets no more memory and says so once with these words, what it
    /// holds is held in truth and nothing else, and it lives on to an end of its own.
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
