//! The first part of the demo: the two tenants share the GPU without gpuslice.

use super::context::{DemoContext, DemoEnd, LONGEST_START_OR_END};
use super::programs::{Programs, RED_PROGRAMS, Work};
use crate::output::failure::Failure;
use gpuslice_slices::figures::{percent, size};
use std::time::{Duration, Instant};

/// Time over which the demo measures the GPU time of the tenants.
const WATCHED: Duration = Duration::from_millis(1500);

/// The outcome for the tenants in the part without gpuslice.
#[derive(Debug, Default)]
pub(super) struct WithoutLimits {
    /// Bytes that red took, and bytes of the whole GPU. `None` on a real GPU, because the demo does not fill it.
    filled: Option<(u64, u64)>,
    /// The last line of blue's program.
    died: String,
    /// Red's part of all work, in thousandths.
    red: u64,
}

impl WithoutLimits {
    /// Returns the lines that the screen shows.
    pub(super) fn lines(&self, need: u64) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some((held, total)) = self.filled {
            lines.push(format!("red's 3 programs took {} of {}", size(held), size(total)));
            lines.push(format!("blue's program asked for {} and died: {}", size(need), self.died));
        }
        let (red, blue) = (percent(self.red), percent(1000_u64.saturating_sub(self.red)));
        lines.push(format!("of the GPU's time red's 3 programs had {red}, blue's one had {blue}"));
        lines
    }

    /// Tells whether red kept blue from working.
    pub(super) fn is_unfair(&self) -> bool {
        self.filled.is_none() || !self.died.is_empty()
    }
}

/// Runs the tenants without limits, and returns the outcome.
///
/// Red's programs begin. On a simulated GPU they take all memory, and the demo shows the failure of blue's program. On a real GPU
/// they only compute, because other programs may need the memory. In both cases, blue then computes beside red, and the demo
/// measures how red and blue share the GPU's time.
pub(super) fn play(context: DemoContext<'_>, need: u64) -> Result<WithoutLimits, DemoEnd> {
    let mut before = WithoutLimits::default();
    let mut red = Programs::of("red-before");
    let work = if context.stage.simulation.is_some() { Work::Greedy } else { Work::Computes };
    for _ in 0..RED_PROGRAMS {
        red.start(work, context, |_| {})?;
    }
    until_they_work(context, &mut red)?;
    if let Some(truth) = context.truth()? {
        before.filled = Some((truth.held, context.stage.gpu.total));
        let mut blue = Programs::of("blue-before");
        blue.start(Work::Needs(need), context, |_| {})?;
        before.died = last_words(context, &mut blue)?;
    }
    let mut blue = Programs::of("blue-before");
    blue.start(Work::Computes, context, |_| {})?;
    until_they_work(context, &mut blue)?;
    let began = (Instant::now(), done(context, &mut red, &mut blue)?);
    while began.0.elapsed() < WATCHED {
        context.wait()?;
    }
    let (before_red, before_blue) = began.1;
    let (after_red, after_blue) = done(context, &mut red, &mut blue)?;
    let (by_red, by_blue) = (after_red.saturating_sub(before_red), after_blue.saturating_sub(before_blue));
    before.red = by_red.saturating_mul(1000).checked_div(by_red.saturating_add(by_blue)).unwrap_or(0);
    for programs in [&mut red, &mut blue] {
        programs.finish();
        until_they_end(context, programs)?;
    }
    Ok(before)
}

/// Returns the GPU time of red and blue so far, by the count of the simulated GPU. On a real GPU, returns their numbers of ended
/// batches instead. All batches have equal kernels.
fn done(context: DemoContext<'_>, red: &mut Programs, blue: &mut Programs) -> Result<(u64, u64), DemoEnd> {
    red.look()?;
    blue.look()?;
    Ok(match context.truth()? {
        Some(truth) => (truth.busy(red.tenant), truth.busy(blue.tenant)),
        None => (red.batches(), blue.batches()),
    })
}

fn until_they_work(context: DemoContext<'_>, programs: &mut Programs) -> Result<(), DemoEnd> {
    let began = Instant::now();
    while !programs.have_reported() {
        context.patiently(began)?;
        programs.look()?;
        if let Some(words) = programs.last_words()? {
            return Err(Failure::new(format!("a program of the demo ended at once: {words}")).into());
        }
    }
    Ok(())
}

/// Waits until the programs end, and returns their last lines. Returns an empty text as soon as all programs have
/// reported, because then they work.
fn last_words(context: DemoContext<'_>, programs: &mut Programs) -> Result<String, DemoEnd> {
    let began = Instant::now();
    while programs.running() > 0 {
        if programs.have_reported() {
            return Ok(String::new());
        }
        context.patiently(began)?;
        programs.look()?;
    }
    Ok(programs.last_words()?.unwrap_or_default())
}

fn until_they_end(context: DemoContext<'_>, programs: &mut Programs) -> Result<(), DemoEnd> {
    let began = Instant::now();
    while programs.running() > 0 && began.elapsed() < LONGEST_START_OR_END {
        context.wait()?;
        programs.look()?;
    }
    Ok(())
}
