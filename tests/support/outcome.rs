//! Outcome of a host: its output and its end. Compares two outcomes.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

/// Output and end of a host.
#[derive(Debug)]
pub(crate) struct Outcome {
    name: String,
    /// Standard output. The path of the bench's folder is replaced by `BENCH`.
    pub(crate) out: String,
    /// Standard error. The path of the bench's folder is replaced by `BENCH`.
    pub(crate) err: String,
    /// The end: `exit 0` or `signal 11`.
    pub(crate) ended: String,
}

impl Outcome {
    pub(crate) fn new(name: String, output: &Output, folder: &Path) -> Self {
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&folder.display().to_string(), "BENCH");
        let ended = match (output.status.code(), output.status.signal()) {
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        Self { name, out: text(&output.stdout), err: text(&output.stderr), ended }
    }

    /// Fails unless the host ended with 0 and printed nothing on standard error. Lines that say that the quota is reached are
    /// allowed, because a test of denials would have to expect them each time.
    #[track_caller]
    pub(crate) fn quiet(self) -> Self {
        assert!(self.ended == "exit 0" && but_refusals(&self.err).is_empty(), "{self}");
        self
    }

    /// Fails unless the host printed exactly the lines `expected`.
    #[track_caller]
    pub(crate) fn says(&self, expected: &[&str]) {
        let lines: Vec<_> = self.out.lines().collect();
        assert!(lines == expected, "{self}\nexpected:\n{}\n", expected.join("\n"));
    }

    /// Fails unless the host printed each line of `expected`.
    #[track_caller]
    pub(crate) fn contains(&self, expected: &[&str]) {
        for line in expected {
            assert!(self.out.lines().any(|printed| printed == *line), "{self}\nis missing: {line}");
        }
    }

    /// Fails unless `other` ran alike: same end, same lines, same standard error.
    #[track_caller]
    pub(crate) fn same_as(&self, other: &Self) {
        let different = first_difference(&self.out, &other.out);
        assert!(
            different.is_none(),
            "{}\nruns unlike {}:\n{}",
            self.name,
            other.name,
            different.unwrap_or_default()
        );
        assert!(self.err == other.err && self.ended == other.ended, "{self}\nruns unlike\n{other}");
    }
}

/// Returns the lines, without those that say that the quota is reached.
pub(crate) fn but_refusals(said: &str) -> String {
    said.split_inclusive('\n').filter(|line| !is_refusal(line)).collect()
}

/// Returns true if a line says that the quota is reached.
pub(crate) fn is_refusal(line: &str) -> bool {
    line.contains(" is refused: the slice holds ")
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}\n--- output\n{}--- errors\n{}---", self.name, self.ended, self.out, self.err)
    }
}

/// Returns the first lines that differ, with the lines around them.
fn first_difference(left: &str, right: &str) -> Option<String> {
    let (left, right): (Vec<_>, Vec<_>) = (left.lines().collect(), right.lines().collect());
    let longest = left.len().max(right.len());
    let at = (0..longest).find(|line| left.get(*line) != right.get(*line))?;
    let part = |lines: &[&str]| {
        lines.get(at.saturating_sub(3)..(at + 3).min(lines.len())).unwrap_or_default().join("\n  ")
    };
    Some(format!("line {}:\n  {}\nand\n  {}", at + 1, part(&left), part(&right)))
}
