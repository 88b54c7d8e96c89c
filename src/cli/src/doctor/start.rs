//! Would the library be in the program that `run` is about to start?

use super::command::{self, Kind, Program};
use super::finding::{Finding, Level};
use super::library::{self, Library};
use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What is to be said before a command is started: why the library will not be in some of what it starts.
///
/// Programs that are linked statically are said and not refused. They may be those that start others, as shells and
/// the first processes of containers are, and the library is in what they start.
///
/// # Errors
/// The library is none, or none for this machine and command; or the command gets rights that its caller has not, and so
/// does what it starts: the loader preloads nothing into any of it.
pub(crate) fn hindrances(library: &Path, command: &[OsString]) -> Result<Vec<String>, Failure> {
    let library = Library::look(Ok(library.to_owned()));
    if let Some(wrong) = library::examine(&library).iter().find(|finding| finding.level == Level::Error) {
        return Err(Failure::new(sentence(wrong)));
    }
    // `execve` says itself what is wrong with a program that is not there.
    let program = command.first().and_then(|name| Program::find(name));
    let Some(program) = program.filter(|program| program.executable) else { return Ok(Vec::new()) };
    let mut notes = Vec::new();
    for finding in command::examine(command, Some(&library), &without_script) {
        match finding.level {
            // What it starts is a guess from its arguments.
            Level::Error if finding.check == "command.rights" && program.secure => {
                return Err(Failure::new(sentence(&finding)));
            }
            Level::Error => notes.push(sentence(&finding)),
            _ => {}
        }
    }
    Ok(notes)
}

/// A program, of whose script nothing is known: what a script does to `LD_PRELOAD` in some line of it need not concern what
/// uses the GPU. The doctor tells, who is asked for everything.
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
