//! `gpuslice demo`: two tenants share a GPU, first without gpuslice and then in slices.
//!
//! Tenant red has three programs that take all memory they get, and compute. Tenant blue has one program that needs a little
//! memory, and computes. No program knows of limits. While they run in slices, the demo starts unmodified programs in blue's
//! slice that ask for the size of the GPU: they see the quota. Then the demo kills one of red's programs, and raises red's quota.
//! At the end it says for each promise whether it was kept.

mod before;
mod context;
mod driver;
mod programs;
mod screen;
mod slice;
mod stage;
mod tenant;
mod verdict;
mod wire;
mod worker;

use crate::arguments::Demo;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::system::{self, Signals};
use before::WithoutLimits;
use context::{DemoContext, DemoEnd, LONGEST_START_OR_END, LOOK};
use gpuslice_policy::units::{Bytes, Permille};
use gpuslice_region::Uuid;
use gpuslice_slices::figures::size;
use programs::{RED_PROGRAMS, Work};
use screen::Screen;
use slice::{DemoSlice, Killed, permille};
use stage::Stage;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tenant::ShownMemory;
use verdict::{Used, Verdict, millis};
pub(crate) use worker::work;

/// Prefix of the names of simulated devices.
const SIMULATED: &str = "Simulated ";
/// Largest quota of red. Without this bound, red would get half of the free memory.
const RED: Bytes = Bytes::new(4 << 30);
/// Largest quota of blue. Without this bound, blue would get a quarter of the free memory.
const BLUE: Bytes = Bytes::new(2 << 30);
/// Shares of red and of blue, in thousandths. Together they are all of the GPU's time.
const DEMO_SHARES_PERMILLE: [u16; 2] = [300, 700];
/// Longest time before the demo begins to measure the shares. At first, the slices may not see each other yet.
const SETTLING: Duration = Duration::from_secs(2);

/// Describes the first device: `gpuslice demo-probe`.
pub(crate) fn probe() -> Result<Ending, Failure> {
    let driver = driver::Driver::open().map_err(Failure::new)?;
    let (free, total) = driver.memory().map_err(Failure::new)?;
    let uuid = Uuid(driver.uuid().map_err(Failure::new)?);
    let name = driver.name().map_err(Failure::new)?;
    let is_simulated = name.starts_with(SIMULATED);
    failure::print(&wire::DemoGpu { uuid, free, total, is_simulated, name }.line())?;
    Ok(Ending::Code(0))
}

/// Shows two slices that share a GPU: `gpuslice demo`.
pub(crate) fn play(wish: &Demo) -> Result<Ending, Failure> {
    let signals = Signals::keep([system::SIGINT, system::SIGTERM, system::SIGHUP, system::SIGQUIT]);
    let stage = Stage::find(wish.simulated)?;
    let mut screen = Screen::open();
    let mut play = RunningDemo::new(DemoContext { stage: &stage, signals: &signals }, &mut screen);
    match play.whole(Duration::from_secs(wish.seconds)) {
        Ok((before, verdict)) => {
            let word = if verdict.is_good() { "demo passed" } else { "demo FAILED" };
            let need = play.need;
            let before: String = before.lines(need).iter().map(|line| format!("  {line}\n")).collect();
            let next = next(&stage);
            play.screen.close(&format!("WITHOUT gpuslice\n{before}WITH gpuslice\n{verdict}{next}{word}"))?;
            Ok(Ending::Code(u8::from(!verdict.is_good())))
        }
        Err(DemoEnd::Failed(Failure::ReaderGone)) => Ok(Ending::Code(1)),
        Err(DemoEnd::Failed(failure)) => Err(failure),
        Err(DemoEnd::Signal(signal)) => Ok(Ending::Signal(signal)),
    }
}

/// Returns commands to try next, ready to copy.
fn next(stage: &Stage) -> String {
    let mut lines = vec!["NEXT".to_owned()];
    let shell = |path: &Path| {
        let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
        let inner =
            here.and_then(|here| path.strip_prefix(here).ok().map(|inner| inner.display().to_string()));
        inner.map_or_else(|| path.display().to_string(), |inner| format!("$PWD/{inner}"))
    };
    let typed = std::env::args_os().next().unwrap_or_default();
    if Path::new(&typed).components().count() > 1
        && let Some(folder) = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()))
    {
        lines.push(format!("  PATH={}:$PATH", shell(&folder)));
    }
    let mut program = "train.py".to_owned();
    if let Some(simulation) = &stage.simulation {
        lines.push(format!("  export LD_LIBRARY_PATH={}  # the simulated GPU", shell(&simulation.driver)));
        program = example(&simulation.driver).map_or(program, |path| shell(&path));
    }
    let run = "  gpuslice run --mem 4GiB --cores 30 -- python3";
    let gap = if run.len() + program.len() < screen::TERMINAL_COLUMNS { " " } else { " \\\n    " };
    lines.push(format!("{run}{gap}{program}"));
    lines.extend(
        [
            "  gpuslice top      # in another terminal; gpuslice set changes limits meanwhile",
            "  gpuslice doctor   # what is missing on this machine; docs/ has the rest",
            "",
        ]
        .map(str::to_owned),
    );
    lines.join("\n")
}

/// Returns an example program of the source checkout that contains the simulated driver. Frameworks do not run on the
/// simulated GPU, but this program does.
fn example(driver: &Path) -> Option<PathBuf> {
    let path = driver.ancestors().nth(2)?.join("examples/python/quota.py");
    path.is_file().then_some(path)
}

/// A sum of nanoseconds, and the time at which it was read.
type Moment = (Instant, u64);
/// The slice's GPU time so far, as gpuslice charged it, and as the simulated GPU counted it. The second is none on a real GPU.
type UsedByNow = (Option<Moment>, Option<Moment>);

/// A running demo. Dropping it ends all programs, and removes all files of the demo.
struct RunningDemo<'a> {
    /// Empty before the second part.
    slices: Vec<DemoSlice>,
    /// Bytes that blue's program needs.
    need: u64,
    context: DemoContext<'a>,
    screen: &'a mut Screen,
    began: Instant,
    killed: Option<Killed>,
    back: Option<Duration>,
    /// Number of looks so far.
    looks: u32,
}

impl<'a> RunningDemo<'a> {
    fn new(context: DemoContext<'a>, screen: &'a mut Screen) -> Self {
        let need = part(context.stage, 25, BLUE) / 2;
        let began = Instant::now();
        Self { slices: Vec::new(), need, context, screen, began, killed: None, back: None, looks: 0 }
    }

    /// Plays the whole demo.
    fn whole(&mut self, length: Duration) -> Result<(WithoutLimits, Verdict), DemoEnd> {
        self.announce()?;
        let before = before::play(self.context, self.need)?;
        for line in before.lines(self.need) {
            self.screen.note(&format!("  {line}"))?;
        }
        self.begin()?;
        let mut verdict = Verdict::default();
        let views = self.look_as_tenant()?;
        self.perform(length, &mut verdict)?;
        self.judge_views(&mut verdict, &views);
        self.judge_end(&mut verdict)?;
        if !before.is_unfair() {
            verdict.add(false, "without gpuslice blue's program got its memory: this shows nothing");
        }
        Ok((before, verdict))
    }

    fn announce(&mut self) -> Result<(), DemoEnd> {
        let gpu = &self.context.stage.gpu;
        let which = self.context.stage.simulation.as_ref().map_or_else(
            || "the GPU of this machine".to_owned(),
            |simulation| format!("a simulated GPU ({})", simulation.reason),
        );
        let (name, total, free) = (&gpu.name, size(gpu.total), size(gpu.free));
        self.screen.note(&format!("two tenants share {which}: {name}, {total}, {free} free"))?;
        self.screen
            .note("\nWITHOUT gpuslice: red's 3 programs take all they get, blue's one needs a little")?;
        if self.context.stage.simulation.is_none() {
            let why = "memory is not shown: other programs could need what the demo would fill";
            self.screen.note(&format!("  {why}; gpuslice demo --simulated shows it"))?;
        }
        Ok(())
    }

    /// Starts the slices, and shows commands with the same effect.
    fn begin(&mut self) -> Result<(), DemoEnd> {
        let [red, blue] = DEMO_SHARES_PERMILLE.map(|share| Permille::new(share).unwrap_or(Permille::FULL));
        let context = self.context;
        let limits = (part(context.stage, 50, RED), red);
        self.slices.push(DemoSlice::start("red", limits, &[Work::Greedy; RED_PROGRAMS], context)?);
        let limits = (part(context.stage, 25, BLUE), blue);
        self.slices.push(DemoSlice::start("blue", limits, &[Work::Needs(self.need)], context)?);
        self.screen.note("\nWITH gpuslice, the same programs; what the demo does, these commands do:")?;
        for slice in &self.slices {
            self.screen.note(&format!("  $ {} -- PROGRAM", slice.command()))?;
        }
        let began = Instant::now();
        while !self.try_watch()? {
            self.context.patiently(began)?;
        }
        self.began = Instant::now();
        Ok(())
    }

    fn try_watch(&mut self) -> Result<bool, DemoEnd> {
        let mut ready = true;
        for slice in &mut self.slices {
            slice.look()?;
            ready &= slice.try_watch(self.context.stage)?;
        }
        Ok(ready)
    }

    /// Asks unmodified programs in blue's slice for the size of the GPU.
    fn look_as_tenant(&mut self) -> Result<Vec<ShownMemory>, DemoEnd> {
        let Some(blue) = self.slices.last() else { return Ok(Vec::new()) };
        let views = tenant::views(self.context.stage, blue)?;
        let command = blue.command();
        for ShownMemory { what, bare, inside } in &views {
            self.screen.note(&match *what {
                "nvidia-smi" => format!("  $ {command} -- nvidia-smi {}", tenant::QUERY.join(" ")),
                _ => format!("  $ {command} -- python3 -c '"),
            })?;
            if *what != "nvidia-smi" {
                self.screen.note(&format!("{}'", tenant::SCRIPT))?;
            }
            self.screen.note(&format!("  {inside}; without gpuslice: {bare}"))?;
        }
        if views.is_empty() {
            self.screen.note("  no tenant's view: neither python3 nor nvidia-smi is here")?;
        }
        self.began = Instant::now();
        Ok(views)
    }

    fn perform(&mut self, length: Duration, verdict: &mut Verdict) -> Result<(), DemoEnd> {
        self.until(SETTLING.min(length / 4))?;
        let settled = self.used()?;
        let (looks, since) = (self.looks, Instant::now());
        self.until(length / 2)?;
        self.kill()?;
        self.until(length * 3 / 4)?;
        let raised = self.raise(verdict)?;
        self.until(length)?;
        let ended = self.used()?;
        let starved = LOOK * self.looks.saturating_sub(looks) * 2 < since.elapsed();
        self.finish()?;
        self.judge_shares(verdict, (&settled, &ended), starved);
        self.judge(verdict, raised)
    }

    /// Shows the slices until `time` has passed since the demo of the slices began.
    fn until(&mut self, time: Duration) -> Result<(), DemoEnd> {
        while self.began.elapsed() < time {
            self.context.wait()?;
            self.look()?;
            self.screen.figures(self.began.elapsed(), &self.slices)?;
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), DemoEnd> {
        self.looks = self.looks.saturating_add(1);
        for slice in &mut self.slices {
            slice.look()?;
            for words in slice.programs.news() {
                self.screen.note(&format!("  {}: {words}", slice.account.name))?;
            }
        }
        if let Some(red) = self.slices.first()
            && let Some(killed) = self.killed.filter(|_| self.back.is_none())
            && red.has_back(&killed)
        {
            let back = killed.at.elapsed();
            self.back = Some(back);
            let time = millis(back);
            self.screen.note(&format!("  its {} are red's again after {time}", size(killed.held)))?;
        }
        Ok(())
    }

    /// Returns the GPU time that each slice has used so far.
    fn used(&mut self) -> Result<Vec<UsedByNow>, DemoEnd> {
        self.look()?;
        let truth = self.context.truth()?;
        let at = Instant::now();
        let by = |slice: &DemoSlice| {
            (slice.charged(), truth.as_ref().map(|truth| (at, truth.busy(slice.account.name))))
        };
        Ok(self.slices.iter().map(by).collect())
    }

    fn judge_shares(
        &self,
        verdict: &mut Verdict,
        (before, after): (&[UsedByNow], &[UsedByNow]),
        starved: bool,
    ) {
        let between =
            |before: Option<Moment>, after| before.zip(after).map(|(before, after)| permille(before, after));
        for (slice, (before, after)) in self.slices.iter().zip(before.iter().zip(after)) {
            verdict.add_share(Used {
                name: slice.account.name,
                share: slice.account.share,
                charged: between(before.0, after.0).unwrap_or(0),
                counted: between(before.1, after.1),
                starved,
            });
        }
    }

    fn kill(&mut self) -> Result<(), DemoEnd> {
        let Some(red) = self.slices.first_mut() else { return Ok(()) };
        let killed = red.kill_one()?;
        self.killed = Some(killed);
        let text =
            format!("  $ kill -KILL {}  # a program of red's, which holds {}", killed.pid, size(killed.held));
        Ok(self.screen.note(&text)?)
    }

    /// Raises red's quota by a quarter. Returns the old quota and the new one.
    fn raise(&mut self, verdict: &mut Verdict) -> Result<(u64, u64), DemoEnd> {
        let truth = self.context.truth()?;
        let Some(red) = self.slices.first_mut() else { return Ok((0, 0)) };
        verdict.add_quota(&red.account, truth.as_ref());
        let before = red.account.limit;
        let after = Bytes::new(before.saturating_add(before / 4)).round_down(Bytes::MIB).get();
        red.set_limit(after)?;
        let text = format!("  $ gpuslice set {} --mem {}", red.typed(), Bytes::new(after));
        self.screen.note(&text)?;
        Ok((before, after))
    }

    /// Closes the inputs of all programs, and waits until they have ended, at most for [`LONGEST_START_OR_END`].
    fn finish(&mut self) -> Result<(), DemoEnd> {
        self.slices.iter_mut().for_each(|slice| slice.programs.finish());
        let began = Instant::now();
        while self.slices.iter().any(|slice| slice.programs.running() > 0)
            && began.elapsed() < LONGEST_START_OR_END
        {
            self.context.wait()?;
            self.look()?;
        }
        // The programs' last lines may not have arrived yet.
        self.context.wait()?;
        self.look()
    }

    fn judge(&self, verdict: &mut Verdict, (before, after): (u64, u64)) -> Result<(), DemoEnd> {
        let truth = self.context.truth()?;
        let [red, blue] = self.slices.as_slice() else { return Ok(()) };
        verdict.add_quota(&blue.account, truth.as_ref());
        verdict.add_refusals(red.account.name, red.programs.counts());
        verdict.add_return(self.killed.map_or(0, |killed| killed.held), self.back);
        let peak = truth.map_or(red.account.peak, |truth| truth.peak(red.account.name));
        verdict.add(
            !red.account.exceeded && peak > before && peak <= after,
            format!("red's new quota of {} was used at once: {} at most", size(after), size(peak)),
        );
        Ok(())
    }

    fn judge_views(&self, verdict: &mut Verdict, views: &[ShownMemory]) {
        let Some(blue) = self.slices.last() else { return };
        for view in views {
            let text = format!("{} tells blue of {}, and others of {}", view.what, view.inside, view.bare);
            verdict.add(view.is_of(blue.account.limit), text);
        }
    }

    /// Judges whether all programs ended well and no memory is left.
    fn judge_end(&self, verdict: &mut Verdict) -> Result<(), DemoEnd> {
        let well = self.slices.iter().all(|slice| slice.programs.ended_well());
        let mut left = 0_u64;
        for slice in &self.slices {
            left = left.saturating_add(slice.left()?);
        }
        let used = self.context.truth()?.map_or(0, |truth| truth.held);
        verdict.add(
            well && left == 0 && used == 0,
            format!("all programs ended well; {} charged and {} in use are left", size(left), size(used)),
        );
        Ok(())
    }
}

/// Returns `percent` of the GPU's free memory in whole MiB, but at most `most`.
fn part(stage: &Stage, percent: u32, most: Bytes) -> u64 {
    Bytes::new(stage.gpu.free).percent(percent).round_down(Bytes::MIB).min(most).get()
}
