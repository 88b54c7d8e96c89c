//! How does the demo look, on a terminal and elsewhere?

use super::slice::Slice;
use crate::failure::{self, Failure};
use crate::figures;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

/// Time between two drawings on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Time between two lines elsewhere.
const LINE: Duration = Duration::from_secs(1);
/// Characters of a bar.
const BAR: usize = 12;
/// All of the GPU's time, in thousandths.
const WHOLE: u64 = 1000;
/// Escape sequence: from here to the end, nothing is shown.
const CLEAR: &str = "\x1b[J";
/// Escape sequences: long lines are cut off instead of wrapped, and back.
const NO_WRAP: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// Standard output.
pub(super) struct Screen {
    /// Whether figures are redrawn in their place.
    live: bool,
    /// Lines of the figures that stand there.
    drawn: usize,
    last: Option<Instant>,
}

impl Screen {
    /// Standard output as it is.
    pub(super) fn open() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        Self { live: io::stdout().is_terminal() && !dumb, drawn: 0, last: None }
    }

    /// Says something that stays.
    pub(super) fn note(&mut self, text: &str) -> Result<(), Failure> {
        let erased = self.erase();
        if self.live {
            self.last = None;
        }
        failure::print(&format!("{erased}{text}\n"))
    }

    /// Says the last word. The figures stay above it.
    pub(super) fn close(&mut self, text: &str) -> Result<(), Failure> {
        self.drawn = 0;
        failure::print(&format!("\n{text}\n"))
    }

    /// Shows the figures, when it is time.
    pub(super) fn figures(&mut self, time: Duration, slices: &[Slice]) -> Result<(), Failure> {
        let pause = if self.live { REDRAW } else { LINE };
        if self.last.is_some_and(|last| last.elapsed() < pause) {
            return Ok(());
        }
        self.last = Some(Instant::now());
        if !self.live {
            return failure::print(&slices.iter().map(|slice| line(time, slice)).collect::<String>());
        }
        let table = table(slices);
        let text = format!("{}{}{table}{}", self.erase(), NO_WRAP.0, NO_WRAP.1);
        self.drawn = table.lines().count();
        failure::print(&text)
    }

    /// What erases the figures that stand there.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r{CLEAR}"),
        }
    }
}

/// One line that stands for itself.
fn line(time: Duration, slice: &Slice) -> String {
    let counts = slice.counts();
    format!(
        "{:>3} s  {:<4}  limit {:>10}  holds {:>10} {}  share {:>4}  uses {:>6} {}  peak {:>10}  granted {:>6}  \
         refused {:>5}  processes {}\n",
        time.as_secs(),
        slice.account.name,
        figures::size(slice.account.limit),
        figures::size(slice.account.held),
        figures::bar(slice.account.held, slice.account.limit, BAR),
        figures::percent(slice.account.share),
        figures::percent(slice.used_lately()),
        figures::bar(slice.used_lately(), WHOLE, BAR),
        figures::size(slice.account.peak),
        counts.granted,
        counts.refused,
        slice.running(),
    )
}

fn table(slices: &[Slice]) -> String {
    let titles =
        ["slice", "limit", "", "held", "share", "", "used", "peak", "granted", "refused", "processes"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for slice in slices {
        let counts = slice.counts();
        rows.push(vec![
            slice.account.name.to_owned(),
            figures::size(slice.account.limit),
            figures::bar(slice.account.held, slice.account.limit, BAR),
            figures::size(slice.account.held),
            figures::percent(slice.account.share),
            figures::bar(slice.used_lately(), WHOLE, BAR),
            figures::percent(slice.used_lately()),
            figures::size(slice.account.peak),
            counts.granted.to_string(),
            counts.refused.to_string(),
            slice.running().to_string(),
        ]);
    }
    figures::table(&rows, &[1, 3, 4, 6, 7, 8, 9, 10])
}
