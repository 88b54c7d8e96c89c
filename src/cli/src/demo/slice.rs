//! What does one of the demo's slices consist of, and what does it hold?

use super::stage::Stage;
use super::verdict::Account;
use super::wire::Counts;
use crate::failure::Failure;
use crate::system::Signals;
use crate::{run, slices};
use gpuslice_policy::units::{Permille, Setting as _};
use gpuslice_region::{Device, Limits, Monitor, Trust, remove_if_unused};
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Programs of a slice that take memory; one more computes.
const WORKERS: u64 = 2;
/// How far back what is used of the GPU's time is told.
const LATELY: Duration = Duration::from_secs(1);
/// How often a figure above the quota is read again, once a millisecond. What is held contains reservations that
/// are not decided yet, and an undecided one that does not fit is taken back.
const SECOND_LOOKS: u32 = 50;

/// How long the last words of a program may be on their way.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A slice with its programs. Dropping it ends them and removes the region.
pub(super) struct Slice {
    /// What it held, as far as it was seen.
    pub(super) account: Account,
    /// What its programs said on standard error, each line once.
    words: Vec<String>,
    /// How many of these lines were shown.
    shown: usize,
    workers: Vec<Worker>,
    heard: Receiver<(usize, Said)>,
    watched: Option<(Monitor, Device)>,
    /// When how much GPU time had been charged, over the last moments.
    charged: VecDeque<(Instant, u64)>,
    region: RegionFile,
}

/// A region that goes with this value.
struct RegionFile(PathBuf);

impl Drop for RegionFile {
    fn drop(&mut self) {
        let _said_by_the_verdict = remove_if_unused(&self.0, Trust::AnyOwner);
    }
}

/// A program of a slice. Dropping it ends it.
struct Worker {
    child: Child,
    counts: Option<Counts>,
    ended: Option<ExitStatus>,
    killed: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _already_dead = self.child.kill();
            let _no_child = self.child.wait();
        }
    }
}

/// What came from a program.
enum Said {
    Counts(Counts),
    Words(String),
}

/// A program that was killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Killed {
    pub(super) pid: u32,
    /// What it held.
    pub(super) held: u64,
    pub(super) at: Instant,
}

impl Slice {
    /// Starts a slice.
    pub(super) fn start(
        name: &'static str,
        (limit, share): (u64, Permille),
        stage: &Stage,
        signals: &Signals,
    ) -> Result<Self, Failure> {
        let region = RegionFile(slices::of_demo(name));
        let (tell, heard) = mpsc::channel();
        let mut slice = Self {
            account: Account { name, limit, share: share.get().into(), held: 0, peak: 0, exceeded: false },
            words: Vec::new(),
            shown: 0,
            workers: Vec::new(),
            heard,
            watched: None,
            charged: VecDeque::new(),
            region,
        };
        let seed = |number| Some(u64::from(std::process::id()) * WORKERS + number);
        for seed in (0..WORKERS).map(seed).chain([None]) {
            let mut command = stage.command("demo-worker", name)?;
            command.args(seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
            command
                .env("LD_PRELOAD", run::preload(&stage.library)?)
                .env("GPU_MEM_LIMIT", limit.to_string())
                .env("GPU_CORE_PERCENT", share.setting())
                .env("GPUSLICE_REGION", &slice.region.0);
            slice.workers.push(Worker::start(&mut command, signals, slice.workers.len(), &tell)?);
        }
        Ok(slice)
    }

    /// Looks at what its programs said and what it holds.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        while let Ok((worker, said)) = self.heard.try_recv() {
            match said {
                Said::Counts(counts) => {
                    if let Some(worker) = self.workers.get_mut(worker) {
                        worker.counts = Some(counts);
                    }
                }
                Said::Words(words) => self.hear_words(&words),
            }
        }
        for worker in &mut self.workers {
            worker.ended = match worker.ended {
                Some(status) => Some(status),
                None => worker.child.try_wait().map_err(|error| Failure::new(error.to_string()))?,
            };
        }
        if let Some((monitor, device)) = &self.watched {
            let account = &mut self.account;
            account.held = settled(monitor, *device, account.limit);
            account.peak = account.peak.max(account.held);
            account.exceeded |= account.held > account.limit;
            let (now, used) = (Instant::now(), monitor.time_used(*device).used);
            self.charged.push_back((now, used));
            while self.charged.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= LATELY) {
                self.charged.pop_front();
            }
        }
        Ok(())
    }

    fn hear_words(&mut self, line: &str) {
        let words = line.strip_prefix("gpuslice: ").unwrap_or(line);
        if !self.words.iter().any(|known| known == words) {
            self.words.push(words.to_owned());
        }
    }

    /// What its programs said since this was asked last.
    pub(super) fn news(&mut self) -> Vec<String> {
        let news = self.words.get(self.shown..).unwrap_or_default().to_vec();
        self.shown = self.words.len();
        news
    }

    /// Whether all of its programs are at work. Opens the region then.
    pub(super) fn is_ready(&mut self, stage: &Stage) -> Result<bool, Failure> {
        if self.workers.iter().any(|worker| worker.ended.is_some()) {
            thread::sleep(LAST_WORDS);
            self.look()?;
            let words = self.words.join("; ");
            return Err(Failure::new(format!("a program of {} ended at once: {words}", self.account.name)));
        }
        if self.workers.iter().any(|worker| worker.counts.is_none()) {
            return Ok(false);
        }
        let missing = || Failure::new(format!("{}: its programs run without a quota", self.account.name));
        let monitor = Monitor::open(&self.region.0, Trust::OwnerOnly)?.ok_or_else(missing)?;
        let device = monitor.device(&stage.gpu.uuid).ok_or_else(missing)?;
        let limit = monitor.limits(device).memory;
        if limit != Some(self.account.limit) {
            return Err(Failure::new(format!(
                "{}: its quota is {limit:?} instead of {}; an operator's file sets another one",
                self.account.name, self.account.limit
            )));
        }
        self.watched = Some((monitor, device));
        Ok(true)
    }

    /// Kills the program that holds most, at whatever it is doing.
    pub(super) fn kill_one(&mut self) -> Result<Killed, Failure> {
        let held_by = |worker: &Worker| {
            self.watched.as_ref().map_or(0, |(monitor, device)| held_by(monitor, *device, worker.child.id()))
        };
        let held = self.workers.iter().map(held_by).max().unwrap_or(0);
        let Some(worker) = self.workers.iter_mut().max_by_key(|worker| held_by(worker)) else {
            return Err(Failure::new("no program to kill"));
        };
        let pid = worker.child.id();
        worker.killed = true;
        worker
            .child
            .kill()
            .map_err(|error| Failure::new(format!("process {pid} cannot be killed: {error}")))?;
        Ok(Killed { pid, held, at: Instant::now() })
    }

    /// Whether nothing is charged any more to a process that is dead.
    pub(super) fn has_back(&self, killed: &Killed) -> bool {
        self.watched.as_ref().is_some_and(|(monitor, device)| held_by(monitor, *device, killed.pid) == 0)
    }

    /// Gives it another quota.
    pub(super) fn set_limit(&mut self, limit: u64) -> Result<(), Failure> {
        if let Some((monitor, device)) = &self.watched {
            let quota = |limits| Limits { memory: Some(limit), ..limits };
            monitor.change_limits(|view| (view.device == *device).then(|| quota(view.limits)))?;
            self.account.limit = limit;
        }
        Ok(())
    }

    /// GPU time that it was charged, in nanoseconds, and when that was read.
    pub(super) fn charged(&self) -> Option<(Instant, u64)> {
        self.charged.back().copied()
    }

    /// Thousandths of the GPU's time that it was charged lately.
    pub(super) fn used_lately(&self) -> u64 {
        let first = self.charged.front().copied();
        first.zip(self.charged()).map_or(0, |(first, last)| permille(first, last))
    }

    /// What its programs counted, together.
    pub(super) fn counts(&self) -> Counts {
        self.workers.iter().filter_map(|worker| worker.counts).fold(Counts::default(), |sum, counts| Counts {
            granted: sum.granted.saturating_add(counts.granted),
            refused: sum.refused.saturating_add(counts.refused),
        })
    }

    /// Programs that run.
    pub(super) fn running(&self) -> usize {
        self.workers.iter().filter(|worker| worker.ended.is_none()).count()
    }

    /// Lets its programs end.
    pub(super) fn finish(&mut self) {
        self.workers.iter_mut().for_each(|worker| drop(worker.child.stdin.take()));
    }

    /// Whether every program ended by itself and with success, but the one that was killed.
    pub(super) fn ended_well(&self) -> bool {
        self.workers.iter().all(|worker| worker.killed || worker.ended.is_some_and(|status| status.success()))
    }

    /// What is charged after the end of all programs.
    pub(super) fn left(&self) -> Result<u64, Failure> {
        let Some((monitor, device)) = &self.watched else { return Ok(0) };
        monitor.reap()?;
        Ok(monitor.held(*device))
    }
}

impl Worker {
    fn start(
        command: &mut Command,
        signals: &Signals,
        number: usize,
        tell: &Sender<(usize, Said)>,
    ) -> Result<Self, Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = signals
            .spawn(command)
            .map_err(|error| Failure::new(format!("a program of the demo does not start: {error}")))?;
        hear(child.stdout.take(), number, tell.clone(), |line| Counts::read(&line).map(Said::Counts));
        hear(child.stderr.take(), number, tell.clone(), |line| Some(Said::Words(line)));
        Ok(Self { child, counts: None, ended: None, killed: false })
    }
}

/// Passes on the lines of a program until it ends.
fn hear(
    from: Option<impl Read + Send + 'static>,
    number: usize,
    tell: Sender<(usize, Said)>,
    meaning: impl Fn(String) -> Option<Said> + Send + 'static,
) {
    let Some(from) = from else { return };
    thread::spawn(move || {
        for said in BufReader::new(from).lines().map_while(Result::ok).filter_map(meaning) {
            if tell.send((number, said)).is_err() {
                break;
            }
        }
    });
}

/// Thousandths of the time between two moments by which a sum of nanoseconds rose.
pub(super) fn permille((began, before): (Instant, u64), (ended, after): (Instant, u64)) -> u64 {
    let passed = ended.duration_since(began).as_nanos().max(1);
    u64::try_from(u128::from(after.saturating_sub(before)) * 1000 / passed).unwrap_or(u64::MAX)
}

/// What a slice holds, without reservations that are about to be taken back.
fn settled(monitor: &Monitor, device: Device, limit: u64) -> u64 {
    let mut held = monitor.held(device);
    for _ in 0..SECOND_LOOKS {
        if held <= limit {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        held = held.min(monitor.held(device));
    }
    held
}

fn held_by(monitor: &Monitor, device: Device, pid: u32) -> u64 {
    let processes = monitor.processes();
    let process = processes.iter().find(|process| process.pid == pid);
    process.and_then(|process| process.held.get(device.index()).copied()).unwrap_or(0)
}
