//! Runs programs on the simulated GPU and reads its ground truth, millisecond by millisecond.

use crate::figures::WARM_UP;
use crate::support::bench::Bench;
use crate::support::host::{Host, Watch};
use crate::support::living::Living;
use crate::support::{artefacts, compiler};
use crate::workloads::{Program, Variant};
use gpuslice_region::{Limits, Monitor, Sharing, Trust};
use simgpu::state::file::Shared;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Time between two reads of the ground truth.
const LOOK: Duration = Duration::from_millis(20);
/// Seconds by which the run time of a program exceeds the watch. The program is killed when the watch ends.
const MORE: u64 = 5;

/// Number of times that a run is repeated because the machine had no time for it.
const AGAIN: u32 = 2;

/// A run: programs, limits and events.
pub(crate) struct RunSpec<'a> {
    pub(crate) programs: Vec<Program>,
    /// Limits of the slices in percent. `None`: the programs run without the library.
    pub(crate) limits: Option<Vec<u64>>,
    pub(crate) burst: &'a str,
    /// More settings of each slice.
    pub(crate) settings: Settings<'a>,
    pub(crate) seconds: u64,
    pub(crate) variant: &'a Variant,
    /// Events, each with its millisecond.
    pub(crate) events: Vec<(u64, Event)>,
    /// True if the first program reports the latencies of its requests.
    pub(crate) has_requests: bool,
}

/// Names and values of variables, by slice.
pub(crate) type Settings<'a> = &'a [&'a [(&'a str, &'a str)]];

/// An event during a run.
#[derive(Debug, Clone, Copy)]
#[allow(dead_code, reason = "each test uses a part")]
pub(crate) enum Event {
    /// The first slice gets this limit, in percent.
    Limit(u64),
    /// A slice gets this policy, weight and priority.
    Sharing(usize, Sharing),
    /// A program is stopped.
    Suspend(usize),
    /// A program that is stopped goes on.
    Resume(usize),
    /// A program is killed, and another one like it starts in its place.
    Kill(usize),
}

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) tracks: Vec<Track>,
    /// GPU time that the library charged the first slice for, and that the slice used, from the second second on.
    spent: Spent,
    pub(crate) latencies: Vec<u64>,
    pub(crate) host: Host,
    /// Standard error of the programs.
    pub(crate) stderr: String,
}

/// GPU time of a slice up to an instant, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    charged: u64,
    used: u64,
}

/// Measurements of one program over the run.
#[derive(Debug, Default)]
pub(crate) struct Track {
    pub(crate) slice: usize,
    /// Busy nanoseconds of each millisecond.
    pub(crate) busy: Vec<u32>,
    /// Durations of the kernels that ended from the second second on, summed up, in nanoseconds.
    pub(crate) work: u64,
    /// Instants at which the program began to work again, in milliseconds, if it works and pauses in turns.
    pub(crate) began: Vec<u64>,
}

impl Course {
    /// Returns the busy nanoseconds of a slice in each millisecond.
    pub(crate) fn busy(&self, slice: usize) -> Vec<u32> {
        let mut sum = Vec::new();
        for track in self.tracks.iter().filter(|track| track.slice == slice) {
            sum.resize(track.busy.len(), 0);
            sum.iter_mut().zip(&track.busy).for_each(|(sum, busy)| *sum += busy);
        }
        sum
    }

    /// Returns the time that was charged to the first slice beyond the time it used, in hundredths of a percent of the latter.
    pub(crate) fn overcharge(&self) -> i64 {
        let Spent { charged, used } = self.spent;
        (charged as i64 - used as i64) * 10_000 / used.max(1) as i64
    }

    /// Returns the durations of a slice's kernels from the second second on, summed up.
    pub(crate) fn work(&self, slice: usize) -> u64 {
        self.tracks.iter().filter(|track| track.slice == slice).map(|track| track.work).sum()
    }
}

/// Runs the programs.
///
/// # Errors
/// Returns the standard error of a program that did not begin.
pub(crate) fn run(spec: &RunSpec<'_>) -> Result<Course, String> {
    Runner::new(spec).and_then(|runner| runner.run())
}

/// Runs the programs, and repeats the run at most [`AGAIN`] times while the machine is late. The figures play no part.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn run_in_time(spec: &RunSpec<'_>) -> Result<Course, String> {
    let mut course = run(spec)?;
    for _ in 0..AGAIN {
        if course.host.is_late() {
            course = run(spec)?;
        }
    }
    Ok(course)
}

struct Runner<'a> {
    spec: &'a RunSpec<'a>,
    bench: Bench,
    load: PathBuf,
    programs: Vec<Living>,
    truth: Shared,
    /// Index of the program of each process by process number, dead processes included.
    by_pid: HashMap<u32, usize>,
}

fn bench(variant: &Variant) -> Bench {
    let bench = Bench::simulated();
    let bench = variant.variables.iter().fold(bench, |bench, (name, value)| bench.with(name, value));
    if variant.has_nvml {
        return bench;
    }
    // The driver is a folder with libcuda alone, beside the region, so there is no NVML.
    let driver = artefacts::simulated_driver().join("libcuda.so.1");
    std::os::unix::fs::symlink(driver, bench.region().with_file_name("libcuda.so.1")).unwrap();
    bench
}

impl<'a> Runner<'a> {
    fn new(spec: &'a RunSpec<'a>) -> Result<Self, String> {
        let (bench, load) = (bench(spec.variant), compiler::plain("load"));
        let starts =
            spec.programs.iter().enumerate().map(|(me, program)| start(spec, &bench, &load, program, me));
        let programs = starts.collect::<Result<Vec<_>, _>>()?;
        let by_pid = programs.iter().enumerate().map(|(me, program)| (program.pid(), me)).collect();
        let truth = Shared::open_existing(&bench.region().with_file_name("state"))
            .map_err(|wrong| wrong.to_string())?;
        Ok(Self { spec, bench, load, programs, truth, by_pid })
    }

    /// Runs the programs from their common start to the end of the time. Between two looks it applies the events that are due.
    /// The charged time and the work are differences from the end of the warm-up, because the first second is not judged.
    fn run(mut self) -> Result<Course, String> {
        let pids: Vec<u32> = self.programs.iter().map(Living::pid).collect();
        let watch = Watch::start(&pids);
        let began = self.now();
        self.programs.iter_mut().for_each(|program| program.order(""));
        let mut course = Course { tracks: self.tracks(), ..Course::default() };
        let (mut seen, end) = (began, began + self.spec.seconds * 1000);
        let mut events = self.spec.events.clone();
        let mut warm = None;
        while seen < end {
            thread::sleep(LOOK);
            while let Some((_, event)) = events.first().filter(|(at, _)| began + at <= self.now()).copied() {
                events.remove(0);
                self.apply(event)?;
            }
            seen = self.look(&mut course.tracks, began, seen);
            if warm.is_none() && seen >= began + WARM_UP as u64 {
                warm = Some((self.work(), self.spent()));
            }
        }
        let (warm, before) = warm.unwrap_or_default();
        let (work, after) = (self.work(), self.spent());
        course.spent = Spent {
            charged: after.charged.saturating_sub(before.charged),
            used: after.used.saturating_sub(before.used),
        };
        for (me, track) in course.tracks.iter_mut().enumerate() {
            let of = |work: &HashMap<usize, u64>| work.get(&me).copied().unwrap_or_default();
            track.work = of(&work).saturating_sub(of(&warm));
        }
        course.host = watch.end();
        self.end(&mut course, began);
        Ok(course)
    }

    fn tracks(&self) -> Vec<Track> {
        let length = self.spec.seconds as usize * 1000;
        let track =
            |program: &Program| Track { slice: program.slice, busy: vec![0; length], ..Track::default() };
        self.spec.programs.iter().map(track).collect()
    }

    /// Returns the current millisecond of the simulated GPU.
    fn now(&self) -> u64 {
        self.truth.lock().course(0, u64::MAX >> 1, |_| {})
    }

    /// Adds the busy time since `seen` to the tracks. Returns the millisecond up to which the tracks are complete.
    fn look(&self, tracks: &mut [Track], began: u64, seen: u64) -> u64 {
        self.truth.lock().course(0, seen, |span| {
            let track = self.by_pid.get(&span.pid).and_then(|me| tracks.get_mut(*me));
            let busy = track.and_then(|track| track.busy.get_mut((span.ms - began) as usize));
            if let Some(busy) = busy {
                *busy += span.busy_ns;
            }
        })
    }

    /// Returns the durations of the kernels of each program, summed up.
    fn work(&self) -> HashMap<usize, u64> {
        let mut work = HashMap::new();
        for totals in self.truth.lock().process_totals(0) {
            if let Some(me) = self.by_pid.get(&totals.pid) {
                *work.entry(*me).or_default() += totals.kernel_ns;
            }
        }
        work
    }

    /// Returns the time that the library has charged the first slice for, and the time that the slice has used.
    fn spent(&self) -> Spent {
        let is_of_it = |pid| self.by_pid.get(pid).is_some_and(|me| self.spec.programs[*me].slice == 0);
        let totals = self.truth.lock().process_totals(0);
        let used = totals.iter().filter(|totals| is_of_it(&totals.pid)).map(|totals| totals.busy_ns).sum();
        Spent { charged: self.charged(), used }
    }

    fn charged(&self) -> u64 {
        let region = region(self.spec, &self.bench, 0);
        let monitor = Monitor::open(&region, Trust::AnyOwner).ok().flatten();
        let of = |monitor: Monitor| {
            monitor.devices().iter().map(|device| monitor.time_used(device.device).used.nanos()).sum()
        };
        monitor.map_or(0, of)
    }

    fn apply(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Limit(percent) => {
                self.limit(0, |limits| Limits { cores_permille: percent as u32 * 10, ..limits })
            }
            Event::Sharing(slice, sharing) => self.limit(slice, |limits| Limits { sharing, ..limits }),
            Event::Suspend(me) => {
                // The lock keeps the program out of the simulated driver. If the program stopped in the driver, all others
                // would wait.
                let _outside = self.truth.lock();
                self.programs[me].suspend();
                Ok(())
            }
            Event::Resume(me) => {
                self.programs[me].signal(libc::SIGCONT);
                Ok(())
            }
            Event::Kill(me) => self.replace(me),
        }
    }

    fn limit(&self, slice: usize, change: impl Fn(Limits) -> Limits) -> Result<(), String> {
        let path = region(self.spec, &self.bench, slice);
        let opened = Monitor::open(&path, Trust::AnyOwner).map_err(|wrong| wrong.to_string())?;
        let monitor = opened.ok_or("there is no region")?;
        for device in monitor.devices() {
            monitor.set_limits(device.device, change(monitor.limits(device.device)));
        }
        Ok(())
    }

    fn replace(&mut self, me: usize) -> Result<(), String> {
        self.programs[me].kill();
        let mut next = start(self.spec, &self.bench, &self.load, &self.spec.programs[me], me)?;
        self.by_pid.insert(next.pid(), me);
        next.order("");
        self.programs[me] = next;
        Ok(())
    }

    fn end(self, course: &mut Course, began: u64) {
        for (me, mut program) in self.programs.into_iter().enumerate() {
            if me == 0 && self.spec.has_requests {
                while let Some(line) = program.hear() {
                    course.latencies.extend(line.parse::<u64>());
                }
            }
            program.kill();
            while let Some(line) = program.hear() {
                let instant = line.strip_prefix("began ").and_then(|text| text.parse::<u64>().ok());
                let instant = instant.and_then(|ns| (ns / 1_000_000).checked_sub(began));
                course.tracks[me].began.extend(instant);
            }
            course.stderr += &program.end().1;
        }
    }
}

/// Returns the path of a slice's region.
fn region(spec: &RunSpec<'_>, bench: &Bench, slice: usize) -> PathBuf {
    let path = bench.region_of(slice);
    if spec.variant.is_apart { path.join("region") } else { path }
}

/// Starts a program and waits until it is ready to begin.
fn start(
    spec: &RunSpec<'_>,
    bench: &Bench,
    load: &Path,
    program: &Program,
    me: usize,
) -> Result<Living, String> {
    let seconds = if spec.has_requests { spec.seconds } else { spec.seconds + MORE };
    let arguments = program.arguments(seconds, me);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut host = bench.program(load, &words);
    if let Some(limits) = &spec.limits {
        host = host.loaded().set("GPU_CORE_PERCENT", &limits[program.slice].to_string());
        host = host.set("GPU_CORE_BURST", spec.burst);
        host = host.set_all(spec.settings.get(program.slice).copied().unwrap_or_default());
        let region = region(spec, bench, program.slice);
        std::fs::create_dir_all(region.parent().unwrap()).unwrap();
        host = host.set("GPUSLICE_REGION", &region.display().to_string());
    }
    if !spec.variant.has_nvml {
        host = host.set("LD_LIBRARY_PATH", &bench.region().parent().unwrap().display().to_string());
    }
    let living = host.start();
    match living.hear() {
        Some(_) => Ok(living),
        None => Err(living.end().1),
    }
}
