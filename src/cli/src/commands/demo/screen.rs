//! Standard output of the demo, in at most 80 columns. Some lines stay, and the figures are redrawn on a terminal.

use super::slice::DemoSlice;
use crate::output::failure::{self, Failure};
use gpuslice_policy::units::Permille;
use gpuslice_slices::figures;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

/// Columns of the narrowest terminal in usual use.
pub(super) const TERMINAL_COLUMNS: usize = 80;
/// Time between two drawings of the figures on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Time between two lines of figures if the output is no terminal.
const LINE: Duration = Duration::from_secs(1);
/// Characters of a bar.
const BAR: usize = 8;
/// Escape sequence that erases from the cursor to the end of the screen.
const CLEAR_BELOW: &str = "\x1b[J";
/// Escape sequences. After the first, the terminal cuts long lines off. After the second, it wraps them again.
const NO_WRAP: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// Standard output.
pub(super) struct Screen {
    /// True if the figures are redrawn in place.
    live: bool,
    /// Number of lines that the figures take on the terminal at present.
    drawn: usize,
    last: Option<Instant>,
}

impl Screen {
    /// Prepares standard output. Finds out whether it is a terminal that can redraw lines.
    pub(super) fn open() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        Self { live: io::stdout().is_terminal() && !dumb, drawn: 0, last: None }
    }

    /// Prints a text that stays.
    pub(super) fn note(&mut self, text: &str) -> Result<(), Failure> {
        let erased = self.erase();
        if self.live {
            self.last = None;
        }
        failure::print(&format!("{erased}{}\n", fold(text)))
    }

    /// Prints the last text. The figures stay above it.
    pub(super) fn close(&mut self, text: &str) -> Result<(), Failure> {
        self.drawn = 0;
        failure::print(&format!("\n{}\n", fold(text)))
    }

    /// Shows the figures if enough time has passed since the last ones.
    pub(super) fn figures(&mut self, time: Duration, slices: &[DemoSlice]) -> Result<(), Failure> {
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

    /// Returns the escape sequence that erases the figures on the terminal.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r{CLEAR_BELOW}"),
        }
    }
}

/// Breaks text at spaces into lines of at most [`TERMINAL_COLUMNS`]. A continuation line begins two columns to the right of the
/// first line. A longer word stays whole.
fn fold(text: &str) -> String {
    text.split('\n').map(fold_line).collect::<Vec<_>>().join("\n")
}

fn fold_line(line: &str) -> String {
    if line.chars().count() <= TERMINAL_COLUMNS {
        return line.to_owned();
    }
    let indent = line.chars().take_while(|letter| *letter == ' ').count();
    let mut folded = " ".repeat(indent);
    let mut column = indent;
    let mut is_first = true;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if !is_first && column + 1 + length > TERMINAL_COLUMNS {
            folded.push('\n');
            folded.push_str(&" ".repeat(indent + 2));
            column = indent + 2;
        } else if !is_first {
            folded.push(' ');
            column += 1;
        }
        folded.push_str(word);
        column += length;
        is_first = false;
    }
    folded
}

/// Returns one line with all figures of a slice. The reader needs no other line to understand it.
fn line(time: Duration, slice: &DemoSlice) -> String {
    format!(
        "{:>4} s  {:<4}  {:>10} of {:<10}  {:>6} of {:<5} of the time  programs {}\n",
        time.as_secs(),
        slice.account.name,
        figures::size(slice.account.held),
        figures::size(slice.account.limit),
        figures::percent(slice.used_lately()),
        figures::percent(slice.account.share),
        slice.programs.running(),
    )
}

fn table(slices: &[DemoSlice]) -> String {
    let titles = ["slice", "memory", "", "", "GPU time", "", "", "programs"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for slice in slices {
        rows.push(vec![
            slice.account.name.to_owned(),
            figures::bar(slice.account.held, slice.account.limit, BAR),
            figures::size(slice.account.held),
            format!("of {}", figures::size(slice.account.limit)),
            figures::bar(slice.used_lately(), Permille::FULL.get().into(), BAR),
            figures::percent(slice.used_lately()),
            format!("of {}", figures::percent(slice.account.share)),
            slice.programs.running().to_string(),
        ]);
    }
    figures::table(&rows, &[2, 5, 7])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_the_narrowest_usual_terminal_unless_a_word_is() {
        let text = format!("short\n  {}\n{}", "word ".repeat(40), "x".repeat(90));
        let folded = fold(&text);
        let lines: Vec<&str> = folded.lines().collect();
        assert_eq!(lines.first(), Some(&"short"));
        assert!(
            lines.iter().all(|line| line.chars().count() <= TERMINAL_COLUMNS || !line.contains(' ')),
            "{folded}"
        );
        assert!(lines.get(2).is_some_and(|line| line.starts_with("    word")), "{folded}");
        assert_eq!(folded.split_whitespace().count(), 42);
    }
}
