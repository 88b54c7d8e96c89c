//! Examines a command before `run` starts it. Refuses a command whose program would run without the library.

use super::command::{self, Kind, Program};
use super::finding::{Finding, Level};
use super::library::{self, Library};
use crate::output::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Facts about a command that `run` is about to start.
#[derive(Debug, Default)]
pub(crate) struct StartFacts {
    /// The reason why a program of the command would run without the library, with the remedy. `None` if
    /// the doctor knows no such reason.
    pub(crate) unlimited: Option<String>,
    /// Other faults that may keep the library out of the program.
    pub(crate) notes: Vec<String>,
}

/// Examines a command before it starts, and reports if the library would not be in its program.
///
/// # Errors
/// The file is no library, or does not work on this machine.
pub(crate) fn look_before_start(library: &Path, command: &[OsString]) -> Result<StartFacts, Failure> {
    let library = Library::look(Ok(library.to_owned()));
    if let Some(wrong) = library::examine(&library).iter().find(|finding| finding.level == Level::Error) {
        return Err(Failure::new(sentence(wrong)));
    }
    let mut seen = StartFacts::default();
    // `execve` itself reports a program that does not exist.
    let program = command.first().and_then(|name| Program::find(name));
    if program.is_none_or(|program| !program.executable) {
        return Ok(seen);
    }
    let brings_library = command::brings_library(command, &without_script);
    for command::CommandFinding { finding, unlimited } in
        command::look(command, Some(&library), &without_script)
    {
        if finding.level != Level::Error {
            continue;
        }
        if unlimited && !brings_library && seen.unlimited.is_none() {
            seen.unlimited = Some(sentence(&finding));
        } else {
            seen.notes.push(sentence(&finding));
        }
    }
    Ok(seen)
}

/// Finds a program, and drops the text of a script. A line that changes `LD_PRELOAD` may not concern the program that uses the
/// GPU. Only `doctor` reports such lines, because its user asks for every finding.
fn without_script(name: &OsStr) -> Option<Program> {
    let mut program = Program::find(name)?;
    if let Kind::Script { text, .. } = &mut program.kind {
        text.clear();
    }
    Some(program)
}

fn sentence(finding: &Finding) -> String {
    match &finding.mend {
        Some(mend) => format!("{}; {mend}", finding.what),
        None => finding.what.clone(),
    }
}
