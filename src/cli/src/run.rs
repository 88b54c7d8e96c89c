//! How does a program start in a slice?
//!
//! `run` stays beside the program: what it is sent it passes on, it ends as the program ends, and it removes the
//! region that the program's library made when nobody uses it any more.

use crate::arguments::Run;
use crate::failure::{self, Failure};
use crate::system::{self, Arrived, Signals};
use crate::{Ending, installed, slices};
use gpuslice_region::{Removal, Trust, remove_if_unused};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf, absolute};
use std::process::{Child, Command, ExitStatus};

/// Exit code of a failure of our own, as `env` and `timeout` have it.
const OWN_FAILURE: u8 = 125;
/// Exit code for a program that is there and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code for a program that is not there.
const NOT_FOUND: u8 = 127;

/// `gpuslice run`.
pub(crate) fn run(wish: &Run) -> Result<Ending, Failure> {
    start(wish).map_err(|failure| match failure {
        Failure::Message { code: NOT_EXECUTABLE | NOT_FOUND, .. } => failure,
        other => other.coded(OWN_FAILURE),
    })
}

fn start(wish: &Run) -> Result<Ending, Failure> {
    let region = region_of(wish)?;
    let mut command = prepare(wish, &region)?;
    system::remember_children();
    let signals = Signals::keep(passed_on().chain([system::SIGCHLD, system::SIGTSTP]));
    let mut child = signals.spawn(&mut command).map_err(|error| not_started(&command, &error))?;
    let status =
        accompany(&mut child, &signals).map_err(|error| Failure::new(format!("cannot wait: {error}")))?;
    tidy(&region);
    Ok(ending(status))
}

/// The region of the slice that is asked for.
fn region_of(wish: &Run) -> Result<PathBuf, Failure> {
    match (&wish.region, &wish.name) {
        (Some(path), _) => {
            let path =
                absolute(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            match path.parent() {
                Some(folder) if folder.is_dir() => Ok(path),
                _ => {
                    Err(Failure::new(format!("{}: its folder does not exist; make it first", path.display())))
                }
            }
        }
        (None, Some(name)) => Ok(slices::named(name)),
        (None, None) => slices::fresh(),
    }
}

/// The program, with what makes it a process of the slice.
fn prepare(wish: &Run, region: &Path) -> Result<Command, Failure> {
    let [program, arguments @ ..] = wish.command.as_slice() else {
        return Err(Failure::new("no program is named; write it behind --"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LD_PRELOAD", preload(&installed::library()?)?)
        .env("GPUSLICE_REGION", region);
    if let Some(memory) = &wish.mem {
        command.env("GPU_MEM_LIMIT", &memory.text);
    }
    if let Some(cores) = &wish.cores {
        command.env("GPU_CORE_PERCENT", &cores.text);
    }
    if let Some(burst) = &wish.burst {
        command.env("GPU_CORE_BURST", &burst.text);
    }
    Ok(command)
}

/// What is to be preloaded: our library first, then what was to be preloaded before.
pub(crate) fn preload(library: &Path) -> Result<OsString, Failure> {
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Failure::new(format!(
            "{}: the loader takes no path with a space or colon in LD_PRELOAD; put the library elsewhere",
            library.display()
        )));
    }
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        list.push(OsStr::new(":"));
        list.push(before);
    }
    Ok(list)
}

fn not_started(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::with_code(
            format!("{program}: not found; name a program of PATH, or its path"),
            NOT_FOUND,
        ),
        _ => Failure::with_code(format!("{program}: cannot be executed: {error}"), NOT_EXECUTABLE),
    }
}

/// Signals that are meant for the program.
fn passed_on() -> impl Iterator<Item = i32> {
    let usual = [
        system::SIGHUP,
        system::SIGINT,
        system::SIGQUIT,
        system::SIGTERM,
        system::SIGUSR1,
        system::SIGUSR2,
        system::SIGALRM,
        system::SIGVTALRM,
        system::SIGPROF,
        system::SIGIO,
        system::SIGPWR,
        system::SIGURG,
        system::SIGWINCH,
        system::SIGCONT,
    ];
    usual.into_iter().chain(system::real_time_signals())
}

/// Passes signals on until the program ends.
fn accompany(child: &mut Child, signals: &Signals) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let Arrived { number, by_kernel } = signals.next();
        if number == system::SIGCHLD {
            continue;
        }
        // What the kernel sends, from a terminal, it has sent to the program as well.
        if !by_kernel {
            system::send(child, number);
        }
        if number == system::SIGTSTP {
            system::stop();
        }
    }
}

/// Removes the region, or says why it stays.
fn tidy(region: &Path) {
    match remove_if_unused(region, Trust::AnyOwner) {
        Ok(Removal::Gone) => {}
        Ok(Removal::InUse(living)) => {
            failure::note(&format!("{} stays: {living} processes still run in the slice", region.display()));
        }
        Err(error) => failure::note(&error.to_string()),
    }
}

fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Code(OWN_FAILURE),
    }
}
