//! One of the demo's slices: its programs, its limits, and its figures.

use super::context::DemoContext;
use super::programs::{Programs, Work};
use super::stage::Stage;
use super::verdict::Account;
use crate::output::failure::Failure;
use crate::preload::preload_list;
use crate::slices;
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_policy::units::{Bytes, Permille, Setting as _};
use gpuslice_region::{Device, Limits, Monitor, Trust, remove_for_good};
use gpuslice_slices::figures::percent;
use gpuslice_slices::time;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Time over which the demo computes the shown use of GPU time.
const SHOWN_SPAN: Duration = Duration::from_secs(1);
/// Number of times that the demo reads a figure above the quota again, once a millisecond. The held bytes contain pending
/// reservations, and a process withdraws one that does not fit.
const SECOND_LOOKS: u32 = 50;

/// A slice with its programs. Dropping this value ends the programs, and removes the region.
pub(super) struct DemoSlice {
    /// The slice's memory and limits, as far as the demo saw them.
    pub(super) account: Account,
    /// The slice's programs.
    pub(super) programs: Programs,
    watched: Option<(Monitor, Device)>,
    /// The slice's charged GPU time in the last moments, each with the time at which it was read.
    charged: VecDeque<(Instant, u64)>,
    region: RegionFile,
}

/// The path of a region. Dropping this value removes the file.
struct RegionFile(PathBuf);

impl Drop for RegionFile {
    fn drop(&mut self) {
        let _said_by_the_verdict = remove_for_good(&self.0, Trust::AnyOwner);
    }
}

/// A program that the demo killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Killed {
    pub(super) pid: u32,
    /// Bytes that the program held.
    pub(super) held: u64,
    pub(super) at: Instant,
}

impl DemoSlice {
    /// Starts a slice with the quota and the share in `limits`. Starts one program for each of `works`.
    pub(super) fn start(
        name: &'static str,
        (limit, share): (u64, Permille),
        works: &[Work],
        DemoContext { stage, signals }: DemoContext<'_>,
    ) -> Result<Self, Failure> {
        let mut slice = Self {
            account: Account { name, limit, share: share.get().into(), held: 0, peak: 0, exceeded: false },
            programs: Programs::of(name),
            watched: None,
            charged: VecDeque::new(),
            region: RegionFile(slices::of_demo(name)),
        };
        let preload = preload_list(&stage.library)?;
        let settings = slice.settings();
        for work in works {
            slice.programs.start(*work, DemoContext { stage, signals }, |command| {
                command.env("LD_PRELOAD", &preload).envs(settings.clone());
                // The programs exceed their quota on purpose, and the figures show it. So the library prints only errors.
                command.env("GPUSLICE_LOG", "error");
            })?;
        }
        Ok(slice)
    }

    /// Returns the environment variables that make a program with the preloaded library a member of the slice.
    pub(super) fn settings(&self) -> [(&'static str, OsString); 3] {
        let share = u16::try_from(self.account.share).ok().and_then(Permille::new).unwrap_or(Permille::FULL);
        [
            ("GPU_MEM_LIMIT", self.account.limit.to_string().into()),
            ("GPU_CORE_PERCENT", share.setting().into()),
            ("GPUSLICE_REGION", self.region.0.clone().into()),
        ]
    }

    /// Returns the command that would start a program in the slice.
    pub(super) fn command(&self) -> String {
        let Account { limit, share, .. } = self.account;
        let (name, limit) = (self.typed(), Bytes::new(limit));
        format!("gpuslice run --name {name} --mem {limit} --cores {}", percent(share).trim_end_matches('%'))
    }

    /// Returns the slice's name, as a user types it in commands of `gpuslice`.
    pub(super) fn typed(&self) -> String {
        slices::demo_name(self.account.name)
    }

    /// Receives the programs' messages, and reads the slice's memory and GPU time.
    pub(super) fn look(&mut self) -> Result<(), Failure> {
        self.programs.look()?;
        if let Some((monitor, device)) = &self.watched {
            let account = &mut self.account;
            account.held = settled(monitor, *device, account.limit);
            account.peak = account.peak.max(account.held);
            account.exceeded |= account.held > account.limit;
            let (now, used) = (Instant::now(), monitor.time_used(*device).used.nanos());
            self.charged.push_back((now, used));
            while self.charged.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= SHOWN_SPAN) {
                self.charged.pop_front();
            }
        }
        Ok(())
    }

    /// Tells whether all programs are at work, and opens the region if they are.
    pub(super) fn try_watch(&mut self, stage: &Stage) -> Result<bool, Failure> {
        let name = self.account.name;
        if let Some(words) = self.programs.last_words()? {
            return Err(Failure::new(format!("a program of {name} ended at once: {words}")));
        }
        if !self.programs.have_reported() {
            return Ok(false);
        }
        let missing = || Failure::new(format!("{name}: its programs run without a quota"));
        let monitor = Monitor::open(&self.region.0, Trust::OwnerOnly)?.ok_or_else(missing)?;
        let device = monitor.device(&stage.gpu.uuid).ok_or_else(missing)?;
        let limit = monitor.memory_limit(device);
        if limit != Some(self.account.limit) {
            return Err(Failure::new(format!(
                "{name}: its quota is {limit:?} instead of {}; an operator's file sets another one",
                self.account.limit
            )));
        }
        self.watched = Some((monitor, device));
        Ok(true)
    }

    /// Kills the running program that holds most memory.
    pub(super) fn kill_one(&mut self) -> Result<Killed, Failure> {
        let watched = self.watched.as_ref();
        let holds = |pid| watched.map_or(0, |(monitor, device)| held_by(monitor, *device, pid));
        let most = self.programs.pids().map(|pid| (holds(pid), pid)).max();
        let (held, pid) = most.ok_or_else(|| Failure::new("no program to kill"))?;
        self.programs.kill(pid)?;
        Ok(Killed { pid, held, at: Instant::now() })
    }

    /// Tells whether the killed process holds none of the slice's memory any more.
    pub(super) fn has_back(&self, killed: &Killed) -> bool {
        self.watched.as_ref().is_some_and(|(monitor, device)| held_by(monitor, *device, killed.pid) == 0)
    }

    /// Sets the slice's quota.
    pub(super) fn set_limit(&mut self, limit: u64) -> Result<(), Failure> {
        if let Some((monitor, device)) = &self.watched {
            let quota = |limits| Limits { memory: Some(limit), ..limits };
            monitor.change_limits(|view| (view.device == *device).then(|| quota(view.limits)))?;
            self.account.limit = limit;
        }
        Ok(())
    }

    /// Returns the GPU time that the slice was charged, in nanoseconds, and the time at which it was read.
    pub(super) fn charged(&self) -> Option<(Instant, u64)> {
        self.charged.back().copied()
    }

    /// Returns the slice's recent charges, in thousandths of the GPU's time.
    pub(super) fn used_lately(&self) -> u64 {
        let first = self.charged.front().copied();
        first.zip(self.charged()).map_or(0, |(first, last)| permille(first, last))
    }

    /// Reaps dead members, and returns the bytes that the slice still holds.
    pub(super) fn left(&self) -> Result<u64, Failure> {
        let Some((monitor, device)) = &self.watched else { return Ok(0) };
        monitor.reap()?;
        Ok(monitor.held(*device))
    }
}

/// Returns the difference of two sums of nanoseconds, in thousandths of the time between them.
pub(super) fn permille((began, before): (Instant, u64), (ended, after): (Instant, u64)) -> u64 {
    let used = GpuTime::from_nanos(after.saturating_sub(before));
    time::permille(used, WallTime::of(ended.duration_since(began)))
}

/// Returns the bytes that a slice holds, without pending reservations that a process will withdraw.
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
