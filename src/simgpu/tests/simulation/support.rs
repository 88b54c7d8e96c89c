//! Builds C programs, and runs them on simulated GPUs. Each machine has its own state file.

#[path = "../../../../tests/support/freshness.rs"]
mod freshness;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Returns the folder of the simulated libraries. It is `GPUSLICE_SIMGPU`, or else the output of `ci/stage.sh`, which
/// must be as new as its sources.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target folder");
    FOLDER.get_or_init(|| freshness::simulated_driver(target, repository()))
}

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the package lies two folders deep")
}

/// Returns the folder with all programs, compiled at the first call. Returns `None` if there is no compiler.
fn programs() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

fn build() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simgpu-programs");
    std::fs::create_dir_all(&folder).expect("the target folder can be written to");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    for entry in std::fs::read_dir(sources).expect("the programs are there") {
        let source = entry.expect("it can be read").path();
        if source.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let program = folder.join(source.file_stem().expect("it has a name"));
        // The program gets its own name only when it is complete, because another run may use the old one at this moment.
        let made = program.with_extension(std::process::id().to_string());
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&made).arg(&source);
        compiler.arg(format!("-L{}", libraries().display())).args(["-lcuda", "-ldl", "-pthread"]);
        match compiler.status() {
            Ok(status) => {
                assert!(status.success(), "{} does not compile", source.display());
                std::fs::rename(&made, &program).expect("it can be renamed");
            }
            Err(error) => {
                println!(
                    "SKIP programs on the simulated GPU: no C compiler ({error}); to mend it: apt-get install gcc libc6-dev"
                );
                return None;
            }
        }
    }
    Some(folder)
}

/// A simulated machine that has its own state file.
pub(crate) struct Machine {
    state: PathBuf,
    settings: Vec<(String, String)>,
}

impl Machine {
    /// Makes a machine on which memory is easy to add up: an allocation takes exactly its bytes, and a context takes 300
    /// MiB. `settings` come in addition.
    pub(crate) fn with_easy_sums(settings: &[(&str, &str)]) -> Option<Self> {
        let usual = [("LINEAR_GRANULE", "1"), ("CONTEXT_BYTES", "300MiB")];
        Self::new(&usual.into_iter().chain(settings.iter().copied()).collect::<Vec<_>>())
    }

    /// Makes a machine with these settings (names without `SIMGPU_`), and simgpu's defaults for all others. Returns
    /// `None` if programs cannot be built.
    pub(crate) fn new(settings: &[(&str, &str)]) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        programs()?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("state-{}-{number}", std::process::id());
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let settings = settings.iter().map(|(name, value)| (format!("SIMGPU_{name}"), (*value).to_owned()));
        Some(Self { state, settings: settings.collect() })
    }

    /// Returns a command that runs a program on this machine. The caller can add arguments and variables.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(programs().expect("they were built").join(program));
        command.env("LD_LIBRARY_PATH", libraries()).env("SIMGPU_STATE", &self.state);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.env_remove("LD_PRELOAD").env_remove("CUDA_VISIBLE_DEVICES");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Runs a program to its end, which must be without an error.
    pub(crate) fn passes(&self, program: &str) {
        let output = self.command(program).stderr(Stdio::piped()).output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {} {said}", output.status);
    }

    /// Runs the program that prints the truth about the devices, with `arguments`, and returns its output.
    pub(crate) fn truth(&self, arguments: &[&str]) -> String {
        let mut reader = Command::new(env!("CARGO_BIN_EXE_simgpu-truth"));
        let Output { stdout, stderr, .. } =
            reader.arg("--state").arg(&self.state).args(arguments).output().expect("it can be started");
        assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8_lossy(&stdout).into_owned()
    }

    /// Returns true if the machine's state file exists.
    pub(crate) fn is_there(&self) -> bool {
        self.state.exists()
    }

    /// Returns a number of that output: the first one with the name `name` that follows the text `from`.
    pub(crate) fn number(&self, from: &str, name: &str) -> u64 {
        let truth = self.truth(&[]);
        let rest = truth.split_once(from).and_then(|(_, rest)| rest.split_once(&format!("\"{name}\":")));
        let digits: String =
            rest.map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect()).unwrap_or_default();
        digits.parse().unwrap_or_else(|_| panic!("no {name} after {from} in {truth}"))
    }

    /// Returns the bytes of the first device that all processes hold together.
    pub(crate) fn held(&self) -> u64 {
        self.number("\"devices\"", "held")
    }

    /// Returns the same number, after the device has back all memory of dead processes.
    pub(crate) fn held_at_rest(&self) -> u64 {
        let until = Instant::now() + Duration::from_secs(10);
        while self.number("\"devices\"", "leaving") > 0 {
            assert!(Instant::now() < until, "the device does not get it back: {}", self.truth(&[]));
        }
        self.held()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.state);
    }
}
