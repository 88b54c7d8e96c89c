//! What did the doctor find, how bad is it, and what mends it?

use crate::figures;
use serde::Serialize;
use std::fmt::Write as _;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing has to be done.
    Note,
    /// Slices work, but not all that was asked for holds.
    Warning,
    /// Slices do not work, or limits are not enforced.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was looked at: a stable name for programs, `group.check`.
    pub(super) check: &'static str,
    /// How bad it is.
    pub(super) level: Level,
    /// What is, in one line.
    pub(super) what: String,
    /// How it is mended, in one line; null where there is nothing to mend.
    pub(super) mend: Option<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, what: &str, mend: Option<&str>) -> Self {
        Self { check, level, what: one_line(what), mend: mend.map(one_line) }
    }

    /// As it should be.
    pub(super) fn ok(check: &'static str, what: impl AsRef<str>) -> Self {
        Self::new(check, Level::Ok, what.as_ref(), None)
    }

    /// Worth knowing.
    pub(super) fn note(check: &'static str, what: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self::new(check, Level::Note, what.as_ref(), Some(mend.as_ref()).filter(|mend| !mend.is_empty()))
    }

    /// Something does not hold.
    pub(super) fn warning(check: &'static str, what: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self::new(check, Level::Warning, what.as_ref(), Some(mend.as_ref()))
    }

    /// Nothing holds.
    pub(super) fn error(check: &'static str, what: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self::new(check, Level::Error, what.as_ref(), Some(mend.as_ref()))
    }

    /// The group it belongs to.
    fn group(&self) -> &'static str {
        self.check.split_once('.').map_or(self.check, |(group, _)| group)
    }
}

/// Files and variables may hold anything.
fn one_line(text: &str) -> String {
    figures::printable(text.trim())
}

/// What `doctor --json` prints; `docs/reference/cli.md` describes it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Of this form. A field or check that is added leaves it; one that goes or means something else counts it up.
    version: u32,
    /// Findings of that level.
    errors: usize,
    /// Findings of that level.
    warnings: usize,
    /// Findings of that level.
    notes: usize,
    /// In the order in which they are shown.
    findings: Vec<Finding>,
}

/// The form that is printed.
const VERSION: u32 = 1;

impl Report {
    /// Findings in their groups, in the order in which the groups came.
    pub(super) fn of(findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self {
            version: VERSION,
            errors: count(Level::Error),
            warnings: count(Level::Warning),
            notes: count(Level::Note),
            findings,
        }
    }

    /// 0 nothing is wrong, 1 at least one error, 3 warnings only.
    pub(super) fn exit_code(&self) -> u8 {
        match (self.errors, self.warnings) {
            (0, 0) => 0,
            (0, _) => 3,
            _ => 1,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let (mut text, mut group) = (String::new(), "");
        for finding in &self.findings {
            if finding.group() != group {
                group = finding.group();
                let _cannot_fail = writeln!(text, "{group}");
            }
            let _cannot_fail = writeln!(text, "  {:<8} {}", finding.level.name(), finding.what);
            if let Some(mend) = &finding.mend {
                let _cannot_fail = writeln!(text, "           -> {mend}");
            }
        }
        let plural = |number: usize, name: &str| {
            if number == 1 { format!("1 {name}") } else { format!("{number} {name}s") }
        };
        let (errors, warnings) = (plural(self.errors, "error"), plural(self.warnings, "warning"));
        let _cannot_fail = writeln!(text, "{errors}, {warnings}, {}", plural(self.notes, "note"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_tells_the_worst_finding() {
        let (ok, note) = (Finding::ok("a.a", "fine"), Finding::note("a.b", "so", ""));
        let (warning, error) = (Finding::warning("b.a", "hm", "do"), Finding::error("b.b", "no", "do"));
        assert_eq!(Report::of(vec![ok.clone(), note.clone()]).exit_code(), 0);
        assert_eq!(Report::of(vec![ok.clone(), warning.clone(), note]).exit_code(), 3);
        assert_eq!(Report::of(vec![warning, error, ok]).exit_code(), 1);
    }

    #[test]
    fn a_finding_is_one_line_and_its_mending_another_whatever_a_file_holds() {
        let report = Report::of(vec![
            Finding::ok("a.a", "fine"),
            Finding::error("a.b", "line\nbreak \u{1b}[2J", "mend\u{202e}it"),
            Finding::note("b.a", "so", ""),
        ]);
        let lines =
            "a\n  ok       fine\n  error    line?break ?[2J\n           -> mend?it\nb\n  note     so\n";
        assert_eq!(report.text(), format!("{lines}1 error, 0 warnings, 1 note\n"));
    }
}
