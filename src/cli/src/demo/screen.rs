//! Standard output of the demo: lines that stay, and figures that are redrawn on a terminal. At most 80 columns.

use super::slice::Slice;
use crate::failure::{self, Failure};
use crate::figures;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

/// Columns of the narrowest usual terminal.
pub(super) const COLUMNS: usize = 80;
/// Time between two drawings on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Time between two lines elsewhere.
const LINE: Duration = Duration::from_secs(1);
/// Characters of a bar.
const BAR: usize = 8;
/// All of the GPU's time, in thousandths.
const WHOLE: u64 = 1000;
/// Escape sequence: from here to the end, nothing is shown.
const CLEAR: &str = "\x1b[J";
/// Escape sequences: long lines are cut off instead of wrapped, and back.
const NO_WRAP: (&str, &str) = ("\x1b[?7l", "\x1b[?7h");

/// Standard output.
pub(super) struct Screen {
    /// True if figures are redrawn in their place.
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
        failure::print(&format!("{erased}{}\n", fold(text)))
    }

    /// Says the last word. The figures stay above it.
    pub(super) fn close(&mut self, text: &str) -> Result<(), Failure> {
        self.drawn = 0;
        failure::print(&format!("\n{}\n", fold(text)))
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

/// Lines of at most [`COLUMNS`], broken at spaces. A line goes on two columns to the right of where it began; a word that is
/// longer stays whole.
fn fold(text: &str) -> String {
    text.split('\n').map(fold_line).collect::<Vec<_>>().join("\n")
}

fn fold_line(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return line.to_owned();
    }
    let indent = line.chars().take_while(|letter| *letter == ' ').count();
    let mut folded = " ".repeat(indent);
    let mut column = indent;
    let mut is_first = true;
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if !is_first && column + 1 + length > COLUMNS {
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

/// One line that stands for itself.
fn line(time: Duration, slice: &Slice) -> String {
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

fn table(slices: &[Slice]) -> String {
    let titles = ["slice", "memory", "", "", "GPU time", "", "", "programs"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for slice in slices {
        rows.push(vec![
            slice.account.name.to_owned(),
            figures::bar(slice.account.held, slice.account.limit, BAR),
            figures::size(slice.account.held),
            format!("of {}", figures::size(slice.account.limit)),
            figures::bar(slice.used_lately(), WHOLE, BAR),
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
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS || !line.contains(' ')), "{folded}");
        assert!(lines.get(2).is_some_and(|line| line.starts_with("    word")), "{folded}");
        assert_eq!(folded.split_whitespace().count(), 42);
    }
}
