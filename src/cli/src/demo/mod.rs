//! How do two slices share one GPU, for everybody to see?
//!
//! Two slices with three programs each. Two take and give back memory through the driver API, one computes without a
//! pause; they know nothing of limits. Halfway one of them is killed, later a quota is raised; at the end it is said
//! whether everything was as promised.

mod driver;
mod screen;
mod slice;
mod stage;
mod verdict;
mod wire;
mod worker;

use crate::Ending;
use crate::arguments::Demo;
use crate::failure::{self, Failure};
use crate::figures::size;
use crate::system::{self, Signals};
use gpuslice_policy::units::{Bytes, Permille};
use gpuslice_region::Uuid;
use screen::Screen;
use slice::{Killed, Slice, permille};
use stage::{Stage, Truth};
use std::time::{Duration, Instant};
use verdict::{Used, Verdict, millis};
pub(crate) use worker::work;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How long programs may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The quotas: a half and a quarter of what is free, or this.
const RED: Bytes = Bytes::new(4 << 30);
/// See [`RED`].
const BLUE: Bytes = Bytes::new(2 << 30);
/// The shares of the GPU's time, in thousandths: all of it together.
const SHARES: [u16; 2] = [300, 700];
/// How long the slices have until their shares are looked at, at most: before, a neighbour is not known yet.
const SETTLING: Duration = Duration::from_secs(2);

/// `gpuslice demo-probe`.
pub(crate) fn probe() -> Result<Ending, Failure> {
    let driver = driver::Driver::open().map_err(Failure::new)?;
    let (free, total) = driver.memory().map_err(Failure::new)?;
    let uuid = Uuid(driver.uuid().map_err(Failure::new)?);
    let name = driver.name().map_err(Failure::new)?;
    failure::print(&wire::Gpu { uuid, free, total, name }.line())?;
    Ok(Ending::Code(0))
}

/// `gpuslice demo`.
pub(crate) fn play(wish: &Demo) -> Result<Ending, Failure> {
    let signals = Signals::keep([system::SIGINT, system::SIGTERM, system::SIGHUP, system::SIGQUIT]);
    let stage = Stage::find(wish.simulated)?;
    let mut screen = Screen::open();
    let played = announce(&stage, &mut screen)
        .and_then(|()| Play::begin(&stage, &signals, &mut screen))
        .and_then(|mut play| play.perform(Duration::from_secs(wish.seconds)));
    match played {
        Ok(verdict) => {
            let word = if verdict.is_good() { "demo passed" } else { "demo FAILED" };
            screen.close(&format!("{verdict}{word}"))?;
            Ok(Ending::Code(u8::from(!verdict.is_good())))
        }
        Err(Halt::Failed(Failure::ReaderGone)) => Ok(Ending::Code(1)),
        Err(Halt::Failed(failure)) => Err(failure),
        Err(Halt::Signal(signal)) => Ok(Ending::Signal(signal)),
    }
}

fn announce(stage: &Stage, screen: &mut Screen) -> Result<(), Halt> {
    let gpu = &stage.gpu;
    let which = stage.simulation.as_ref().map_or_else(
        || "the GPU of this machine".to_owned(),
        |simulation| format!("a simulated GPU ({})", simulation.reason),
    );
    let (name, total, free) = (&gpu.name, size(gpu.total), size(gpu.free));
    Ok(screen.note(&format!("two slices share {which}: {name}, {total}, {free} free\n"))?)
}

/// A sum of nanoseconds, and when it was read.
type Moment = (Instant, u64);
/// What each slice was charged, and what the simulated GPU counted, where there is one.
type UsedByNow = [(Option<Moment>, Option<Moment>); 2];

/// Why the demo did not come to its end.
enum Halt {
    Failed(Failure),
    Signal(i32),
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A demo under way. Dropping it ends all programs and leaves nothing behind.
struct Play<'a> {
    slices: [Slice; 2],
    stage: &'a Stage,
    signals: &'a Signals,
    screen: &'a mut Screen,
    began: Instant,
    killed: Option<Killed>,
    back: Option<Duration>,
    /// Looks so far.
    looks: u32,
}

impl<'a> Play<'a> {
    fn begin(stage: &'a Stage, signals: &'a Signals, screen: &'a mut Screen) -> Result<Self, Halt> {
        let free = Bytes::new(stage.gpu.free);
        let part = |percent, most: Bytes| free.percent(percent).round_down(Bytes::MIB).min(most).get();
        let [red, blue] = SHARES.map(|share| Permille::new(share).unwrap_or(Permille::FULL));
        let slices = [
            Slice::start("red", (part(50, RED), red), stage, signals)?,
            Slice::start("blue", (part(25, BLUE), blue), stage, signals)?,
        ];
        let began = Instant::now();
        let mut play = Self { slices, stage, signals, screen, began, killed: None, back: None, looks: 0 };
        while !play.is_ready()? {
            play.wait()?;
            if play.began.elapsed() > PATIENCE {
                return Err(Failure::new(
                    "the programs of the demo do not start; look whether the GPU works",
                )
                .into());
            }
        }
        play.began = Instant::now();
        Ok(play)
    }

    fn is_ready(&mut self) -> Result<bool, Halt> {
        let mut ready = true;
        for slice in &mut self.slices {
            slice.look()?;
            ready &= slice.is_ready(self.stage)?;
        }
        Ok(ready)
    }

    fn perform(&mut self, length: Duration) -> Result<Verdict, Halt> {
        let mut verdict = Verdict::default();
        self.until(SETTLING.min(length / 4))?;
        let settled = self.used()?;
        let (looks, since) = (self.looks, Instant::now());
        self.until(length / 2)?;
        self.kill()?;
        self.until(length * 3 / 4)?;
        let (blue, before) = self.raise(&mut verdict)?;
        self.until(length)?;
        let ended = self.used()?;
        let starved = LOOK * self.looks.saturating_sub(looks) * 2 < since.elapsed();
        self.finish()?;
        self.judge_shares(&mut verdict, (&settled, &ended), starved);
        self.judge(&mut verdict)?;
        let [_, slice] = &self.slices;
        verdict.add(
            slice.account.peak > blue,
            format!("{before} was used at once: {} at most", size(slice.account.peak)),
        );
        self.judge_end(&mut verdict)?;
        Ok(verdict)
    }

    /// Lets time pass until so much of it is over.
    fn until(&mut self, time: Duration) -> Result<(), Halt> {
        while self.began.elapsed() < time {
            self.wait()?;
            self.look()?;
            self.screen.figures(self.began.elapsed(), &self.slices)?;
        }
        Ok(())
    }

    /// Waits a moment, or until somebody wants the end.
    fn wait(&self) -> Result<(), Halt> {
        match self.signals.within(LOOK) {
            Some(arrived) => Err(Halt::Signal(arrived.number)),
            None => Ok(()),
        }
    }

    fn look(&mut self) -> Result<(), Halt> {
        self.looks = self.looks.saturating_add(1);
        for slice in &mut self.slices {
            slice.look()?;
            for words in slice.news() {
                self.screen.note(&format!("{}: {words}", slice.account.name))?;
            }
        }
        let [red, _] = &self.slices;
        if let Some(killed) = self.killed.filter(|_| self.back.is_none())
            && red.has_back(&killed)
        {
            let back = killed.at.elapsed();
            self.back = Some(back);
            let time = millis(back);
            self.screen.note(&format!("   its {} are red's again after {time}", size(killed.held)))?;
        }
        Ok(())
    }

    /// What the slices have used of the GPU's time by now.
    fn used(&mut self) -> Result<UsedByNow, Halt> {
        self.look()?;
        let truth = self.truth()?;
        let at = Instant::now();
        let by = |slice: &Slice| {
            (slice.charged(), truth.as_ref().map(|truth| (at, truth.busy(slice.account.name))))
        };
        Ok(self.slices.each_ref().map(by))
    }

    fn judge_shares(&self, verdict: &mut Verdict, (before, after): (&UsedByNow, &UsedByNow), starved: bool) {
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

    fn kill(&mut self) -> Result<(), Halt> {
        let [red, _] = &mut self.slices;
        let killed = red.kill_one()?;
        self.killed = Some(killed);
        let text = format!("-> SIGKILL to process {} of red, which holds {}", killed.pid, size(killed.held));
        Ok(self.screen.note(&text)?)
    }

    /// Gives blue half as much again. Returns what it had, and what to say of it.
    fn raise(&mut self, verdict: &mut Verdict) -> Result<(u64, String), Halt> {
        let truth = self.truth()?;
        let [_, blue] = &mut self.slices;
        verdict.add_quota(&blue.account, truth.as_ref());
        let (before, after) = (blue.account.limit, blue.account.limit.saturating_add(blue.account.limit / 2));
        blue.set_limit(after)?;
        let text = format!("blue's new quota of {}", size(after));
        self.screen.note(&format!("-> {text} instead of {}, while it runs", size(before)))?;
        Ok((before, text))
    }

    /// Lets all programs end, and ends those that do not.
    fn finish(&mut self) -> Result<(), Halt> {
        self.slices.iter_mut().for_each(Slice::finish);
        let began = Instant::now();
        while self.slices.iter().any(|slice| slice.running() > 0) && began.elapsed() < PATIENCE {
            self.wait()?;
            self.look()?;
        }
        // What they said last may still be on its way.
        self.wait()?;
        self.look()
    }

    fn judge(&self, verdict: &mut Verdict) -> Result<(), Halt> {
        let truth = self.truth()?;
        for slice in &self.slices {
            verdict.add_quota(&slice.account, truth.as_ref());
        }
        self.slices.iter().for_each(|slice| verdict.add_refusals(slice.account.name, slice.counts()));
        verdict.add_return(self.killed.map_or(0, |killed| killed.held), self.back);
        Ok(())
    }

    /// Whether nothing is left.
    fn judge_end(&self, verdict: &mut Verdict) -> Result<(), Halt> {
        let well = self.slices.iter().all(Slice::ended_well);
        let mut left = 0_u64;
        for slice in &self.slices {
            left = left.saturating_add(slice.left()?);
        }
        let used = self.truth()?.map_or(0, |truth| truth.held);
        verdict.add(
            well && left == 0 && used == 0,
            format!("all programs ended well; {} charged and {} in use are left", size(left), size(used)),
        );
        Ok(())
    }

    fn truth(&self) -> Result<Option<Truth>, Halt> {
        Ok(self.stage.simulation.as_ref().map(stage::Simulation::truth).transpose()?)
    }
}
