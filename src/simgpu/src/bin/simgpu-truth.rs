//! `simgpu-truth`: prints the truth about the simulated devices, and sets faults while programs run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

use std::path::PathBuf;
use std::process::ExitCode;

use simgpu::faults;
use simgpu::state::file::{Shared, default_path};
use simgpu::state::json::report;
use simgpu::state::settings::Settings;

const USAGE: &str = "\
Usage: simgpu-truth [--state PATH] [--reset | --reset-peaks | --faults SPEC | --path]

Without an option: prints the ground truth as one JSON object. Dead processes hold nothing in it;
what a device does not have back of theirs is told as leaving.
  --state PATH    the state file; otherwise SIMGPU_STATE, otherwise /dev/shm/simgpu-<uid>
  --reset         forgets everything, if no process lives; the file goes
  --reset-peaks   peaks start again from what is held now, dead processes are forgotten
  --faults SPEC   replaces the faults for all processes, e.g. 'cuMemAlloc_v2=2@3;cuInit=delay:500ms'; '' ends them
  --path          prints where the state file is
Example: SIMGPU_STATE=/dev/shm/test simgpu-truth | jq .devices[0].held";

enum Task {
    Report,
    Reset,
    ResetPeaks,
    Faults(String),
    Path,
}

fn wish() -> Result<(Task, PathBuf), String> {
    let (mut wish, mut path) = (Task::Report, default_path());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--state" => path = value()?.into(),
            "--faults" => wish = Task::Faults(value()?),
            "--reset" => wish = Task::Reset,
            "--reset-peaks" => wish = Task::ResetPeaks,
            "--path" => wish = Task::Path,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok((wish, path))
}

fn run() -> Result<(), String> {
    let (wish, path) = wish()?;
    if matches!(wish, Task::Path) {
        println!("{}", path.display());
        return Ok(());
    }
    let faulty = format!("{}: ", path.display());
    let opened = match wish {
        // The user may set faults before the first program starts. So the file is made if there is none.
        Task::Faults(_) => {
            let settings = Settings::read(|name| std::env::var(name).ok())?;
            Shared::open(&path, &settings)
        }
        _ => Shared::open_existing(&path),
    };
    let shared = match opened {
        Err(error) if matches!(wish, Task::Reset) && error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(());
        }
        other => other.map_err(|error| faulty.clone() + &error.to_string())?,
    };
    let mut state = shared.lock();
    match wish {
        Task::Report | Task::Path => println!("{}", report(&mut state)),
        Task::Reset => {
            state.reap_dead(None);
            if state.inhabited() {
                return Err(faulty + "processes live");
            }
            std::fs::remove_file(&path).map_err(|error| faulty + &error.to_string())?;
        }
        Task::ResetPeaks => state.reset_peaks(),
        Task::Faults(text) => shared.faults().set(&faults::parse(&text).map_err(|error| error.to_string())?),
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
