//! The `gpuslice` command: it starts programs in slices, shows slices, and changes them.
//!
//! It knows regions and processes, and nothing of the hooks in a program.

#![deny(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

mod arguments;
mod cdi;
mod crowd;
mod demo;
mod doctor;
mod failure;
mod list;
mod manual;
mod progress;
mod remove;
mod run;
mod set;
mod slices;
mod status;
mod system;
mod top;

use arguments::{Arguments, Wish};
use clap::Parser as _;
use clap::error::{ContextKind, ErrorKind};
use failure::Failure;
use gpuslice_slices::{figures, installed, nvml, overcommit, process, report, time};
use std::process::ExitCode;

/// End of a command that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Exits with this code.
    Code(u8),
    /// Ends by this signal, which ended its program or reached the command itself, like that of Ctrl-C.
    Signal(i32),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return answer(error),
    };
    end(carry_out(arguments.wish))
}

fn end(ended: Result<Ending, Failure>) -> ExitCode {
    match ended {
        Ok(Ending::Code(code)) => ExitCode::from(code),
        Ok(Ending::Signal(signal)) => ExitCode::from(system::die_by(signal)),
        Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(Failure::Message { text, code }) => {
            failure::note(&text);
            ExitCode::from(code)
        }
    }
}

fn carry_out(wish: Wish) -> Result<Ending, Failure> {
    match wish {
        Wish::Run(wish) => run::run(&wish),
        Wish::List(wish) => list::list(&wish),
        Wish::Status(wish) => status::status(&wish),
        Wish::Top(wish) => top::top(&wish),
        Wish::Set(wish) => set::set(&wish),
        Wish::Remove(wish) => remove::remove(&wish),
        Wish::Cdi(wish) => cdi::cdi(&wish),
        Wish::Doctor(wish) => doctor::doctor(&wish),
        Wish::Demo(wish) => demo::play(&wish),
        Wish::Completions { shell } => manual::complete(shell),
        Wish::Man { folder } => manual::write(folder.as_deref()),
        Wish::DoctorProbe { probe } => doctor::answer(probe).map(|()| Ending::Code(0)),
        Wish::CompleteSlices => slices::print_names(),
        Wish::NvmlWorker => Ok(Ending::Code(u8::from(nvml::work().is_err()))),
        Wish::DemoProbe => demo::probe(),
        Wish::DemoWorker(wish) => demo::work(&wish),
    }
}

/// Prints help, the version, or the fault of the arguments.
fn answer(mut error: clap::Error) -> ExitCode {
    // clap proposes `-- -q` for an unknown `-q`, but no slice and hardly a program has such a name.
    error.remove(ContextKind::Suggested);
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        failure::complain(&text);
        return ExitCode::from(2);
    }
    if error.use_stderr() {
        failure::complain(&format!("gpuslice: {}", text.strip_prefix("error: ").unwrap_or(&text)));
        return ExitCode::from(2);
    }
    end(failure::print(&text).map(|()| Ending::Code(0)))
}
