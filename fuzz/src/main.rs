//! Tries the parts of gpuslice that read foreign input with random input.
//!
//! `gpuslice-fuzz TARGET SECONDS SEED FOLDER` tries cases until the time is over. `gpuslice-fuzz TARGET case NUMBER FOLDER` tries
//! one case again. The number of a case decides all of it. The program writes the number to `FOLDER/TARGET.case` before it tries
//! the case, so the number is known even if the process dies. A case that fails is kept in `FOLDER/TARGET.NUMBER.failed`. A case
//! that takes too long ends the process.

#![allow(clippy::disallowed_types, reason = "a word of this process")]

mod arbiter_leases;
mod config;
mod control;
mod random;
mod region;

use std::{
    env, fmt, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{ExitCode, abort},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use random::Random;

/// Time that a case may take. A reservation may wait 0.2 s, joining a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of cases that were begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// The target of a run.
struct Target {
    name: String,
    folder: PathBuf,
}

impl Target {
    /// Tries the case of this number. Returns true if it went well.
    fn attempt(&self, number: u64) -> bool {
        let _ = fs::write(self.folder.join(format!("{}.case", self.name)), number.to_string());
        BEGUN.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::new(number);
        match self.name.as_str() {
            "region" => {
                let case = region::Case::new(&mut random);
                self.judge(number, &case, || case.run(&self.folder))
            }
            "arbiter_leases" => {
                let case = arbiter_leases::Case::new(&mut random);
                self.judge(number, &case, || case.run(&self.folder))
            }
            "control" => {
                let case = control::Case::new(&mut random);
                self.judge(number, &case, || case.run())
            }
            _ => {
                let case = config::Case::new(&mut random);
                self.judge(number, &case, || case.run())
            }
        }
    }

    fn judge(&self, number: u64, case: &dyn fmt::Debug, run: impl FnOnce()) -> bool {
        let well = catch_unwind(AssertUnwindSafe(run)).is_ok();
        if !well {
            println!("FAIL {} case {number}: {case:?}", self.name);
            let kept = self.folder.join(format!("{}.{number}.failed", self.name));
            let _ = fs::write(kept, format!("{case:#?}\n"));
        }
        well
    }

    /// Tries cases until the time is over or a case fails.
    fn attempt_for(&self, time: Duration, seed: u64) -> bool {
        let mut numbers = Random::new(seed);
        let start = Instant::now();
        while start.elapsed() < time {
            if !self.attempt(numbers.next()) {
                return false;
            }
        }
        println!("ok {}: {} cases, seed {seed}", self.name, BEGUN.load(Ordering::Relaxed));
        true
    }
}

/// Ends the process when a case takes too long.
fn watch() {
    loop {
        let before = BEGUN.load(Ordering::Relaxed);
        thread::sleep(PATIENCE);
        if before != 0 && before == BEGUN.load(Ordering::Relaxed) {
            println!("FAIL a case takes more than {} s", PATIENCE.as_secs());
            abort();
        }
    }
}

fn run(words: &[String]) -> Option<bool> {
    let [name, how, number, folder] = words else { return None };
    if !["region", "arbiter_leases", "config", "control"].contains(&name.as_str()) {
        return None;
    }
    let number = number.parse().ok()?;
    let target = Target { name: name.clone(), folder: Path::new(folder).to_owned() };
    thread::spawn(watch);
    if how == "case" {
        return Some(target.attempt(number));
    }
    Some(target.attempt_for(Duration::from_secs(how.parse().ok()?), number))
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match run(&words) {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            println!(
                "gpuslice-fuzz region|arbiter_leases|config|control SECONDS SEED FOLDER, or: region|arbiter_leases|config|control case NUMBER FOLDER"
            );
            ExitCode::from(2)
        }
    }
}
