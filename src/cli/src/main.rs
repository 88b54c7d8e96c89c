//! The `gpuslice` command: it starts programs in slices, shows slices, and changes them.
//!
//! This program uses regions and processes. It does not use the hooks of the library.
//!
//! Folders and files, lowest first. A module imports from its own folder and from earlier ones in this list;
//! `tests/repository/dependencies` checks that.
//!
//! 1. `arguments`: the arguments of all commands.
//! 2. `output`: messages, progress, and the end of a command.
//! 3. `system`, `preload`: signals, terminals, child processes, and the libraries that they are started with.
//! 4. `slices`: the slices of this machine, by name or by path.
//! 5. `commands`: one file or folder for each command.

#![deny(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

mod arguments;
mod commands;
mod output;
mod preload;
mod slices;
mod system;

use arguments::{Arguments, Task};
use clap::Parser as _;
use clap::error::{ContextKind, ErrorKind};
use commands::{cdi, demo, doctor, list, manual, remove, run, set, status, top};
use gpuslice_slices::nvml;
use output::ending::Ending;
use output::failure::{self, Failure};
use std::process::ExitCode;

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

fn carry_out(wish: Task) -> Result<Ending, Failure> {
    match wish {
        Task::Run(wish) => run::run(&wish),
        Task::List(wish) => list::list(&wish),
        Task::Status(wish) => status::status(&wish),
        Task::Top(wish) => top::top(&wish),
        Task::Set(wish) => set::set(&wish),
        Task::Remove(wish) => remove::remove(&wish),
        Task::Cdi(wish) => cdi::cdi(&wish),
        Task::Doctor(wish) => doctor::doctor(&wish),
        Task::Demo(wish) => demo::play(&wish),
        Task::Completions { shell } => manual::complete(shell),
        Task::Man { folder } => manual::write(folder.as_deref()),
        Task::DoctorProbe { probe } => doctor::answer(probe).map(|()| Ending::Code(0)),
        Task::CompleteSlices => slices::print_names(),
        Task::NvmlWorker => Ok(Ending::Code(u8::from(nvml::work().is_err()))),
        Task::DemoProbe => demo::probe(),
        Task::DemoWorker(wish) => demo::work(&wish),
    }
}

/// Prints help, the version, or the fault of the arguments.
fn answer(mut error: clap::Error) -> ExitCode {
    // clap proposes `-- -q` for an unknown `-q`. No slice has such a name, and hardly any program.
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
