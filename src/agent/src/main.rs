//! The `gpuslice-agent` command makes the slices of a node, and shows the use of all of its slices.
//!
//! The slices work without the agent, with their limits. Tenants can write regions, names, commands and questions. So the agent
//! expects any text and any number in them.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

mod arguments;
mod cluster;
mod config;
mod control;
mod cotenants;
mod extender;
mod gpus;
mod history;
mod memory_answers;
mod metrics;
mod owned;
mod page;
mod process_lists;
mod request;
mod serve;
mod snapshot;
mod watch;
mod web;

use arguments::{Arguments, ConfigPlace, Extender, Task};
use clap::Parser as _;
use config::Config;
use std::process::ExitCode;

/// Exit code if the configuration has mistakes.
const MISTAKES: u8 = 3;

fn main() -> ExitCode {
    let Arguments { wish, place, .. } = Arguments::parse();
    match wish {
        None => run(&place),
        Some(Task::Run(place)) => run(&place),
        Some(Task::Check(place)) => check(&place),
        Some(Task::Extender(wish)) => extend(&wish),
        Some(Task::NvmlWorker) => ExitCode::from(u8::from(gpuslice_slices::nvml::work().is_err())),
        Some(Task::Completions { shell }) => {
            ExitCode::from(u8::from(arguments::write_completions(shell, &mut std::io::stdout()).is_err()))
        }
        Some(Task::Man) => ExitCode::from(u8::from(arguments::write_manual(&mut std::io::stdout()).is_err())),
    }
}

/// Reads the configuration, and prints its mistakes on standard error.
fn read(place: &ConfigPlace) -> Result<Config, ExitCode> {
    Config::read(place).map_err(|mistakes| {
        mistakes.iter().for_each(|mistake| eprintln!("gpuslice-agent: {mistake}"));
        ExitCode::from(MISTAKES)
    })
}

fn check(place: &ConfigPlace) -> ExitCode {
    match read(place) {
        Ok(config) => {
            println!("{}: right, {} slices", place.config().display(), config.slices.len());
            ExitCode::SUCCESS
        }
        Err(code) => code,
    }
}

fn extend(wish: &Extender) -> ExitCode {
    match extender::serve(wish) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("gpuslice-agent: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(place: &ConfigPlace) -> ExitCode {
    let config = match read(place) {
        Ok(config) => config,
        Err(code) => return code,
    };
    match serve::serve(place, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("gpuslice-agent: {problem}");
            ExitCode::FAILURE
        }
    }
}
