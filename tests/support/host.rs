//! Measures how late this machine wakes threads, so that a test can tell a bad figure from a busy machine.
//!
//! One processor of a virtual machine can stand still while the others run, and the kernel can keep one for itself. Therefore one
//! sleeper watches each processor.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "a test: it ends where something is wrong"
)]

use std::fs;
use std::mem;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time that a sleeper of the watch sleeps.
const SLEEP: Duration = Duration::from_millis(1);
/// Lateness in microseconds; a machine on which 1 % of the sleeps end this late had too little time for the programs.
const LATE: u64 = 500;
/// Lateness in microseconds; a machine on which one sleep ends this late had too little time for the programs.
const VERY_LATE: u64 = 10_000;
/// Real-time priority of the sleepers; `ci/accuracy.sh` gives the programs 1.
const FIRST: i32 = 2;
/// Part of the time in thousandths; a machine on which a program waits for a processor for longer had too little time for them.
const WAITING: u64 = 50;

/// Lateness of the sleepers in microseconds, and the time for which programs waited for a processor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Host {
    pub(crate) late_p99: u64,
    pub(crate) late_most: u64,
    /// Microseconds by which the sleeps of one processor ended later than [`LATE`], summed up. The largest sum of all processors.
    pub(crate) lost: u64,
    /// The longest wait of a program, in thousandths of the time.
    pub(crate) waited: u64,
}

impl Host {
    /// Returns true if the machine had too little time for the programs.
    pub(crate) fn is_late(&self) -> bool {
        self.late_p99 > LATE || self.late_most > VERY_LATE || self.waited > WAITING
    }

    /// Returns the figures as text, e.g. `0.06/1.20 ms 0.3 %`.
    pub(crate) fn text(&self) -> String {
        let ms = |us: u64| format!("{}.{:02}", us / 1000, us % 1000 / 10);
        let waited = format!("{}.{}", self.waited / 10, self.waited % 10);
        format!("{}/{} ms {waited} %", ms(self.late_p99), ms(self.late_most))
    }
}

/// Sleepers that read the clock when they wake, one on each processor.
pub(crate) struct Watch {
    stops: Vec<Sender<()>>,
    sleepers: Vec<JoinHandle<Vec<u64>>>,
    began: Instant,
    waited: Vec<(u32, u64)>,
}

impl Watch {
    /// Starts to watch the machine and the processes `pids`.
    pub(crate) fn start(pids: &[u32]) -> Self {
        let start = |processor| {
            let (stop, stopped) = mpsc::channel();
            let began = Instant::now();
            (stop, thread::spawn(move || sleep(processor, began, &stopped)))
        };
        let (stops, sleepers) = processors().into_iter().map(start).unzip();
        Self { stops, sleepers, began: Instant::now(), waited: waits(pids) }
    }

    /// Ends the watch; returns how late the machine was.
    pub(crate) fn end(self) -> Host {
        let pids: Vec<u32> = self.waited.iter().map(|(pid, _)| *pid).collect();
        let time = self.began.elapsed().as_nanos().max(1) as u64;
        let now = waits(&pids);
        let waited = now.iter().zip(&self.waited).map(|((_, now), (_, before))| now.saturating_sub(*before));
        let waited = waited.max().unwrap_or_default() * 1000 / time;
        drop(self.stops);
        let by_processor: Vec<Vec<u64>> =
            self.sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).collect();
        let lost = by_processor.iter().map(|late| late.iter().map(|late| late.saturating_sub(LATE)).sum());
        let lost = lost.max().unwrap_or_default();
        let mut late = by_processor.concat();
        late.sort_unstable();
        let at =
            |part: usize| late.get(late.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
        Host { late_p99: at(99), late_most: at(100), lost, waited }
    }
}

/// Returns the processors that this process may use.
fn processors() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is an array of integers, for which all zeros is a valid value: the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the call may write as many bytes as its second argument says, and that is the size of `set`.
    let code = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(code, 0, "sched_getaffinity");
    // SAFETY: `CPU_ISSET` needs a number below `CPU_SETSIZE`, the number of bits of a set, and the range ends there.
    (0..libc::CPU_SETSIZE as usize).filter(|processor| unsafe { libc::CPU_ISSET(*processor, &set) }).collect()
}

/// Keeps this thread on `processor`. If the programs have a real-time priority, the thread gets a higher one, so that the
/// programs cannot make it late.
fn watch(processor: usize) {
    // SAFETY: `cpu_set_t` is an array of integers, for which all zeros is a valid value: the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `CPU_SET` needs a number below `CPU_SETSIZE`, and `processors` returns only such numbers.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the call may read as many bytes as its second argument says, and that is the size of `set`.
    let code = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(code, 0, "sched_setaffinity to {processor}");
    // SAFETY: the call takes a number and touches no memory.
    if unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER {
        return;
    }
    let priority = libc::sched_param { sched_priority: FIRST };
    // SAFETY: the call reads a `sched_param`, and `priority` is one that lives until the call returns.
    let code = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    assert_eq!(code, 0, "sched_setscheduler");
}

/// Returns by how many microseconds each sleep on `processor` was too long. The first sleep begins before the thread runs,
/// because a machine may be late to start the thread.
fn sleep(processor: usize, mut began: Instant, stopped: &Receiver<()>) -> Vec<u64> {
    watch(processor);
    let mut late = Vec::new();
    loop {
        let is_stopped = stopped.recv_timeout(SLEEP) != Err(RecvTimeoutError::Timeout);
        // The interrupted sleep counts too: a stall may end with the measurement.
        late.push(began.elapsed().saturating_sub(SLEEP).as_micros() as u64);
        if is_stopped {
            return late;
        }
        began = Instant::now();
    }
}

/// Returns the time that the threads of each process have waited for a processor, in nanoseconds.
fn waits(pids: &[u32]) -> Vec<(u32, u64)> {
    pids.iter().map(|pid| (*pid, wait_of(*pid))).collect()
}

fn wait_of(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// Describes the machine: its processors, its load and the priority of this process.
pub(crate) fn machine() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<_> = load.split_whitespace().take(3).collect();
    let processors = thread::available_parallelism().map_or(0, usize::from);
    let class = fs::read_to_string("/proc/self/sched").unwrap_or_default();
    let policy = class.lines().find(|line| line.starts_with("policy")).unwrap_or_default();
    let real_time = matches!(policy.chars().last(), Some('1' | '2'));
    let priority = if real_time { "real-time priority" } else { "ordinary priority" };
    format!("{processors} processors, load {}, {priority}", load.join(" "))
}
