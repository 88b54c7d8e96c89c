//! `gpuslice run`: starts a program in a slice.
//!
//! `run` stays beside the program: it passes signals on to it, and stops and ends as the program does. The program's library
//! makes the region. `run` removes it once no process uses it. Both are in the same process group and job, so that a terminal
//! and a shell treat them as one.

use crate::arguments::Run;
use crate::commands::doctor;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::preload::preload_list;
use crate::slices;
use crate::system::{self, Arrived, ChildEvent, Signals};
use gpuslice_policy::config::Config;
use gpuslice_policy::units::Setting as _;
use gpuslice_region::names::of_operator;
use gpuslice_region::operator::Operator;
use gpuslice_region::{RegionError, Removal, Trust, remove_for_good, remove_if_unused};
use gpuslice_slices::installed;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf, absolute};
use std::process::{Child, Command, ExitStatus};

/// Exit code if `run` itself fails. `env` and `timeout` use the same code.
const OWN_FAILURE: u8 = 125;
/// Exit code if the program exists and cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code if the program does not exist.
const NOT_FOUND: u8 = 127;

/// Runs a program in a slice: `gpuslice run`.
pub(crate) fn run(wish: &Run) -> Result<Ending, Failure> {
    start(wish).map_err(|failure| match failure {
        Failure::Message { code: NOT_EXECUTABLE | NOT_FOUND, .. } => failure,
        other => other.coded(OWN_FAILURE),
    })
}

/// Starts the program in the slice, waits for its end, and then removes the region if `run` has made it and nothing uses it.
///
/// The doctor looks first, because a program that runs without the library would have no limit. The signals are blocked before
/// the program starts, so that none is lost between the start and the first wait.
fn start(wish: &Run) -> Result<Ending, Failure> {
    let library = installed::library()?;
    let seen = doctor::look_before_start(&library, &wish.command)?;
    if let Some(why) = seen.unlimited {
        if !wish.allow_unlimited {
            return Err(Failure::new(format!(
                "not started, since it would be NOT LIMITED: {why}; --allow-unlimited starts it all the same"
            )));
        }
        failure::note(&format!("NOT LIMITED: {why}"));
    }
    seen.notes.iter().for_each(|note| failure::note(note));
    wish.mem.iter().for_each(failure::remark);
    let operators = of_operator();
    let region = region_of(wish, operators.as_deref())?;
    if let Some(outer) = outer_region().filter(|outer| *outer != region) {
        let (inner, outer) = (region.display(), outer.display());
        failure::note(&format!("{inner} is a slice beside {outer}, not in it: the limits of the two add up"));
    }
    let mut command = prepare(wish, &library, &region)?;
    slices::sweep();
    // `run` does not remove a region that was already at the path of --region, nor the region of the operator.
    let is_ours = operators.is_none() && (wish.region.is_none() || region.symlink_metadata().is_err());
    let signals = Signals::keep(system::signals().chain([system::SIGCHLD]));
    let child = signals.spawn(&mut command).map_err(|error| not_started(&command, &error))?;
    let status = Supervision { child: &child, signals: &signals, is_stopped: false }.keep();
    if is_ours {
        // No other command can start this slice again, because it has no name.
        let is_used_once = wish.name.is_none() && wish.region.is_none();
        tidy(&region, if is_used_once { remove_for_good } else { remove_if_unused });
    }
    Ok(ending(status))
}

/// Returns the region of the slice for which the user asks. If `operators` has a region, the library uses that one in any case.
fn region_of(wish: &Run, operators: Option<&Path>) -> Result<PathBuf, Failure> {
    let asked = match (&wish.region, &wish.name) {
        (Some(path), _) => in_a_folder(path)?,
        (None, Some(name)) => slices::named(name)?,
        (None, None) => match operators {
            Some(operators) => return Ok(operators.to_owned()),
            None => slices::fresh()?,
        },
    };
    match operators {
        Some(operators) if operators != asked => Err(Failure::new(format!(
            "an operator's file puts every program here into the slice of {}; leave --name and --region out",
            operators.display()
        ))),
        _ => Ok(asked),
    }
}

/// Returns the region of the slice in which this command itself was started.
fn outer_region() -> Option<PathBuf> {
    std::env::var_os("GPUSLICE_REGION").map(PathBuf::from).filter(|outer| outer.exists())
}

/// Makes the path of a region absolute. Fails if its folder does not exist, or if the library would not
/// read the path as it is written.
fn in_a_folder(path: &Path) -> Result<PathBuf, Failure> {
    let path = absolute(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    if path.to_str().is_none_or(|text| text.trim_ascii() != text) {
        return Err(Failure::new(format!(
            "{}: a path that is not UTF-8, or ends in a space, is none to the library; choose another one",
            path.display()
        )));
    }
    match path.parent() {
        Some(folder) if folder.is_dir() => Ok(path),
        _ => Err(Failure::new(format!("{}: its folder does not exist; make it first", path.display()))),
    }
}

/// Returns the program's command, with the variables that make the program a member of the slice.
fn prepare(wish: &Run, library: &Path, region: &Path) -> Result<Command, Failure> {
    let [program, arguments @ ..] = wish.command.as_slice() else {
        return Err(Failure::new("no program is named; write it behind --"));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", preload_list(library)?).env("GPUSLICE_REGION", region);
    if let Some(memory) = &wish.mem {
        command.env("GPU_MEM_LIMIT", &memory.text);
    }
    if let Some(cores) = &wish.cores {
        command.env("GPU_CORE_PERCENT", &cores.text);
    }
    if let Some(burst) = &wish.burst {
        command.env("GPU_CORE_BURST", &burst.text);
    }
    if let Some(policy) = &wish.policy {
        command.env("GPU_CORE_POLICY", policy.setting());
    }
    if let Some(weight) = &wish.weight {
        command.env("GPU_CORE_WEIGHT", weight.get().to_string());
    }
    if let Some(priority) = &wish.priority {
        command.env("GPU_PRIORITY", priority.setting());
    }
    if !limits_share(&command) {
        // The program joins the slice even without a limit, because a user can set a limit later.
        command.env("GPU_CORE_PERCENT", "100");
    }
    Ok(command)
}

/// Tells whether the environment of a program limits its share of GPU time, under any name of the setting. An unreadable value
/// counts too, because the library reports it.
fn limits_share(command: &Command) -> bool {
    let variable = |name: &str| {
        let own = command.get_envs().find(|(own, _)| *own == name);
        let value = own.map_or_else(|| std::env::var_os(name), |(_, value)| value.map(OsStr::to_owned));
        value.map(OsStringExt::into_vec)
    };
    let config = Config::from_sources(&variable, &Operator::default().files());
    config.map_or(true, |config| config.has_share())
}

fn not_started(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    let is_line = program.split_ascii_whitespace().nth(1).is_some();
    match error.kind() {
        io::ErrorKind::NotFound if is_line => Failure::with_code(
            format!(
                "{program:?}: not found; if this is a command with its arguments, write them without quotes: -- {program}"
            ),
            NOT_FOUND,
        ),
        _ if Path::new(command.get_program()).is_dir() => {
            Failure::with_code(format!("{program}: is a directory; name a program"), NOT_EXECUTABLE)
        }
        io::ErrorKind::NotFound => Failure::with_code(
            format!("{program}: not found; name a program of PATH, or its path"),
            NOT_FOUND,
        ),
        _ => Failure::with_code(format!("{program}: cannot be executed: {error}"), NOT_EXECUTABLE),
    }
}

/// State of the wait for the program's end.
struct Supervision<'a> {
    child: &'a Child,
    signals: &'a Signals,
    is_stopped: bool,
}

impl Supervision<'_> {
    /// Passes signals on to the program until it ends.
    ///
    /// The command sleeps until a signal arrives, and SIGCHLD is one. So it first handles all changes of its children, and then
    /// waits. If the program was stopped, the command stops itself. If the program has ended, the wait is over.
    fn keep(mut self) -> ExitStatus {
        loop {
            while let Some((child, change)) = system::changed() {
                if child != self.child.id() {
                    continue;
                }
                match change {
                    ChildEvent::Ended(status) => return status,
                    ChildEvent::Continued => self.is_stopped = false,
                    ChildEvent::Stopped => self.stop(),
                }
            }
            let arrived = self.signals.next();
            if self.is_meant_for_it(arrived) {
                system::send(self.child, arrived.number);
            }
        }
    }

    /// Stops this process after the program was stopped. A shell watches only this process.
    fn stop(&mut self) {
        self.is_stopped = true;
        system::stop();
    }

    /// Returns true if this process must pass the signal on to the program.
    fn is_meant_for_it(&self, arrived: Arrived) -> bool {
        match arrived.number {
            system::SIGCHLD => false,
            // The sender of SIGCONT sends it to the whole job. A program that is already running does not need it.
            system::SIGCONT => self.is_stopped,
            // If a terminal is gone, the kernel sends SIGHUP only to the leader of the session.
            system::SIGHUP if arrived.by_kernel && system::leads_session() => true,
            // The kernel has sent the terminal's signal to the whole job. Only a program that has left the job did not get it.
            number if arrived.by_kernel && system::is_of_terminals(number) => {
                !system::is_of_our_group(self.child)
            }
            // The program or this process has sent this signal to the whole group, so it has already reached the program.
            _ => arrived.sender != Some(self.child.id()) && arrived.sender != Some(std::process::id()),
        }
    }
}

/// Removes the region, or prints the reason why it stays.
fn tidy(region: &Path, remove: fn(&Path, Trust) -> Result<Removal, RegionError>) {
    match remove(region, Trust::AnyOwner) {
        // The debt shrinks with time. A later `list`, `status` or `run` removes the region.
        Ok(Removal::Gone | Removal::Owing(_)) => {}
        Ok(Removal::InUse(living)) => {
            let who =
                if living == 1 { "1 process still runs" } else { &format!("{living} processes still run") };
            failure::note(&format!("{} stays: {who} in the slice", region.display()));
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
