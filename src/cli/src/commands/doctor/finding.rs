//! The findings of the doctor. A finding has a state, a severity and a remedy.

use gpuslice_slices::figures;
use serde::Serialize;
use std::fmt::Write as _;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The state is as it should be.
    Ok,
    /// A fact worth knowing. The user need not do anything.
    Note,
    /// Slices work, but gpuslice cannot do everything for which the user has asked.
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

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Stable name of the check, for programs that read the report: `group.check`.
    pub(super) check: &'static str,
    /// Severity of the finding.
    pub(super) level: Level,
    /// The state, in one line.
    pub(super) what: String,
    /// The remedy, in one line; null if there is nothing to mend.
    pub(super) mend: Option<String>,
}

impl Finding {
    fn new(check: &'static str, level: Level, what: &str, mend: Option<&str>) -> Self {
        Self { check, level, what: one_line(what), mend: mend.map(one_line) }
    }

    /// Returns a finding that is as it should be.
    pub(super) fn ok(check: &'static str, what: impl AsRef<str>) -> Self {
        Self::new(check, Level::Ok, what.as_ref(), None)
    }

    /// Returns a finding that is worth knowing. If `mend` is empty, there is no remedy.
    pub(super) fn note(check: &'static str, what: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self::new(check, Level::Note, what.as_ref(), Some(mend.as_ref()).filter(|mend| !mend.is_empty()))
    }

    /// Returns a finding that gpuslice cannot do everything for which the user has asked.
    pub(super) fn warning(check: &'static str, what: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self::new(check, Level::Warning, what.as_ref(), Some(mend.as_ref()))
    }

    /// Returns a finding that slices do not work, or that limits are not enforced.
    pub(super) fn error(check: &'static str, what: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self::new(check, Level::Error, what.as_ref(), Some(mend.as_ref()))
    }

    /// Returns the group of the finding's check.
    fn group(&self) -> &'static str {
        self.check.split_once('.').map_or(self.check, |(group, _)| group)
    }
}

/// Makes one printable line of a text, because files and variables may contain anything.
fn one_line(text: &str) -> String {
    figures::printable(text.trim())
}

/// The object that `doctor --json` prints; `docs/reference/cli.md` describes it.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    /// Version of this form. A new field or check keeps the version. A removed one, or one with another meaning, increases it.
    version: u32,
    /// Number of errors.
    errors: usize,
    /// Number of warnings.
    warnings: usize,
    /// Number of notes.
    notes: usize,
    /// All findings, in the order in which they are shown.
    findings: Vec<Finding>,
}

/// Version of the printed form.
const DOCTOR_VERSION: u32 = 1;

impl DoctorReport {
    /// Makes a report of these findings. The caller lists them group by group.
    pub(super) fn of(findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self {
            version: DOCTOR_VERSION,
            errors: count(Level::Error),
            warnings: count(Level::Warning),
            notes: count(Level::Note),
            findings,
        }
    }

    /// Returns the exit code: 0 if all is well, 1 if there is an error, and 3 if there are only warnings.
    pub(super) fn exit_code(&self) -> u8 {
        match (self.errors, self.warnings) {
            (0, 0) => 0,
            (0, _) => 3,
            _ => 1,
        }
    }

    /// Returns the report as text for people.
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
        assert_eq!(DoctorReport::of(vec![ok.clone(), note.clone()]).exit_code(), 0);
        assert_eq!(DoctorReport::of(vec![ok.clone(), warning.clone(), note]).exit_code(), 3);
        assert_eq!(DoctorReport::of(vec![warning, error, ok]).exit_code(), 1);
    }

    #[test]
    fn a_finding_is_one_line_and_its_mending_another_whatever_a_file_holds() {
        let report = DoctorReport::of(vec![
            Finding::ok("a.a", "fine"),
            Finding::error("a.b", "line\nbreak \u{1b}[2J", "mend\u{202e}it"),
            Finding::note("b.a", "so", ""),
        ]);
        let lines =
            "a\n  ok       fine\n  error    line?break ?[2J\n           -> mend?it\nb\n  note     so\n";
        assert_eq!(report.text(), format!("{lines}1 error, 0 warnings, 1 note\n"));
    }
}
