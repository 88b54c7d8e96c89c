//! Command line arguments of `gpuslice`.

mod help;
mod values;

use clap::{ArgGroup, Args, Parser, Subcommand};
use gpuslice_policy::config::{CorePolicy, Priority, Weight};
use gpuslice_slices::slot;
use help::{
    CDI_HELP, COMPLETIONS_HELP, DEMO_HELP, DOCTOR_HELP, EXAMPLES, LIST_HELP, MAN_HELP, REMOVE_HELP, RUN_HELP,
    SET_HELP, STATUS_HELP, TOP_HELP,
};
use std::ffi::OsString;
use std::path::PathBuf;
pub(crate) use values::{Burst, Cores, Interval, Memory, Over, SliceName};
use values::{policies, priorities, quota_to_set, watching, whole};

/// Lets several programs share one NVIDIA GPU, each inside its own slice: a memory quota and a share of
/// its time.
#[derive(Debug, Parser)]
#[command(name = "gpuslice", version, after_help = EXAMPLES, arg_required_else_help = true)]
#[command(disable_version_flag = true)]
pub(crate) struct Arguments {
    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    pub(crate) wish: Task,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Start a program in a slice
    Run(Run),
    /// List the slices of this machine
    List(List),
    /// Show what slices hold, device by device and process by process
    Status(Status),
    /// Watch slices and change their limits, live in a terminal
    Top(Top),
    /// Change what a slice may use, while it runs
    Set(Set),
    /// Remove slices in which no process lives
    #[command(visible_alias = "rm")]
    Remove(Remove),
    /// Make a slice that containers are given as a device
    Cdi(Cdi),
    /// Say what is wrong with this machine's set-up, and how to mend it
    Doctor(Doctor),
    /// Show two slices sharing a GPU, real or simulated
    Demo(Demo),
    /// Print a shell's completion script
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder, or print that of gpuslice
    #[command(after_help = MAN_HELP)]
    Man {
        /// The folder, which must be there
        #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        folder: Option<PathBuf>,
    },
    /// Ask the driver, NVML or the loader one question (for `doctor`)
    #[command(hide = true)]
    DoctorProbe {
        /// Which
        probe: Probe,
    },
    /// Print the names of slices, one a line (for the completion of shells)
    #[command(hide = true)]
    CompleteSlices,
    /// Ask NVML what standard input says (for `status`)
    #[command(hide = true)]
    NvmlWorker,
    /// Describe the first device (for `demo`)
    #[command(hide = true)]
    DemoProbe,
    /// Compute, or allocate and free, until standard input ends (for `demo`)
    #[command(hide = true)]
    DemoWorker(DemoWorker),
}

/// `demo-worker`.
#[derive(Debug, Args)]
pub(crate) struct DemoWorker {
    /// Allocate and free, by choices that differ from those of another seed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Take all memory, and compute
    #[arg(long, conflicts_with = "seed")]
    pub(crate) greedy: bool,
    /// Take this number of bytes at once, and compute
    #[arg(long, conflicts_with_all = ["seed", "greedy"])]
    pub(crate) need: Option<u64>,
}

/// `run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP, group = ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct Run {
    /// Device memory the slice may hold: 4GiB, 50%, or a list per device like 0=4GiB,1=50%
    #[arg(long, allow_negative_numbers = true, value_name = "SIZE", group = "limits")]
    pub(crate) mem: Option<Memory>,
    /// Share of GPU time in percent: 1 to 100 like 30 or 12.5, or a list per device like 0=30,1=50
    #[arg(long, allow_negative_numbers = true, value_name = "PERCENT", group = "limits")]
    pub(crate) cores: Option<Cores>,
    /// Unused share that may be saved up: strict (20ms of GPU time), latency (200ms), or a duration
    #[arg(long, allow_negative_numbers = true, value_name = "BURST")]
    pub(crate) burst: Option<Burst>,
    /// Policy by which slices divide the GPU's time
    #[arg(long, group = "limits", value_parser = policies(), ignore_case = true)]
    pub(crate) policy: Option<CorePolicy>,
    /// Weight of the slice among others of its policy, equal or best-effort: 1 to 1000 [default: 100]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) weight: Option<Weight>,
    /// Priority of the slice among the slices on one GPU
    #[arg(long, group = "limits", value_parser = priorities(), ignore_case = true)]
    pub(crate) priority: Option<Priority>,
    /// Name of the slice; programs started with one name are one slice [default: the process number]
    #[arg(long, conflicts_with = "region")]
    pub(crate) name: Option<SliceName>,
    /// Region file of the slice, instead of one in /dev/shm or /tmp; a relative path is made absolute
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub(crate) region: Option<PathBuf>,
    /// Start the program even if no library can be loaded into it, so that it is not limited
    #[arg(long)]
    pub(crate) allow_unlimited: bool,
    /// The program and its arguments
    // `allow_hyphen_values` is not set, because clap would take a mistyped option for the program.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    #[arg(value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// `remove`.
#[derive(Debug, Args)]
#[command(after_help = REMOVE_HELP)]
pub(crate) struct Remove {
    /// Names of slices, or paths of their regions
    #[arg(value_name = "SLICE", required_unless_present = "all_unused", conflicts_with = "all_unused")]
    pub(crate) slices: Vec<OsString>,
    /// Remove all slices without a process that `gpuslice list --all` shows
    #[arg(long)]
    pub(crate) all_unused: bool,
    /// Remove a slice also while it owes GPU time
    #[arg(long)]
    pub(crate) force: bool,
}

/// `list`.
#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(crate) struct List {
    /// Names of slices, or paths of their regions [default: all slices]
    #[arg(value_name = "SLICE")]
    pub(crate) slices: Vec<OsString>,
    /// Show slices without a process as well
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct Status {
    /// Name of a slice, or path of its region [default: all that `gpuslice list` shows]
    pub(crate) slice: Option<OsString>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure each process's use of GPU time for this long: 0.1 to 60, or 0 for no measurement
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS", default_value = "0")]
    pub(crate) over: Over,
    /// Repeat the report until Ctrl-C: every 2 s, or at this interval, 0.1 to 60
    #[arg(short, long, allow_negative_numbers = true, value_name = "SECONDS", value_parser = watching)]
    #[arg(num_args = 0..=1, default_missing_value = "2")]
    pub(crate) watch: Option<Interval>,
}

/// `top`.
#[derive(Debug, Args)]
#[command(after_help = TOP_HELP)]
pub(crate) struct Top {
    /// Name of a slice, or path of its region [default: all slices that `list` looks for]
    pub(crate) slice: Option<OsString>,
    /// Time between two looks: 0.1 to 60
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS", default_value = "1")]
    pub(crate) interval: Interval,
}

/// `set`.
#[derive(Debug, Args)]
#[command(after_help = SET_HELP, group = ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct Set {
    /// Name of the slice, or path of its region
    pub(crate) slice: OsString,
    /// Device memory the slice may hold: 4GiB, 50%, or a list per device like 0=4GiB,1=50%; 100% for all of it
    #[arg(long, allow_negative_numbers = true, value_name = "SIZE", group = "limits", value_parser = quota_to_set)]
    pub(crate) mem: Option<Memory>,
    /// Share of GPU time in percent: 1 to 100 like 30 or 12.5, or a list per device like 0=30,1=50
    #[arg(long, allow_negative_numbers = true, value_name = "PERCENT", group = "limits")]
    pub(crate) cores: Option<Cores>,
    /// Unused share that may be saved up, on all devices: strict (20ms of GPU time), latency (200ms), or a duration
    #[arg(long, allow_negative_numbers = true, value_name = "BURST", group = "limits")]
    pub(crate) burst: Option<Burst>,
    /// Policy by which slices divide the GPU's time
    #[arg(long, group = "limits", value_parser = policies(), ignore_case = true)]
    pub(crate) policy: Option<CorePolicy>,
    /// Weight of the slice among others of its policy: 1 to 1000
    #[arg(long, allow_negative_numbers = true, value_name = "N", group = "limits")]
    pub(crate) weight: Option<Weight>,
    /// Priority of the slice among the slices on one GPU
    #[arg(long, group = "limits", value_parser = priorities(), ignore_case = true)]
    pub(crate) priority: Option<Priority>,
}

/// `cdi`.
#[derive(Debug, Args)]
#[command(after_help = CDI_HELP, group = ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct Cdi {
    /// Name of the slice: what follows gpuslice.dev/slice= where a container asks for it
    pub(crate) name: slot::Name,
    /// Device memory the slice may hold: 4GiB, 50%, or a list per device like GPU-8932f937=4GiB
    #[arg(long, allow_negative_numbers = true, value_name = "SIZE", group = "limits")]
    pub(crate) mem: Option<Memory>,
    /// Share of GPU time in percent: 1 to 100 like 30 or 12.5, or a list per device like GPU-8932f937=30
    #[arg(long, allow_negative_numbers = true, value_name = "PERCENT", group = "limits")]
    pub(crate) cores: Option<Cores>,
    /// Unused share that may be saved up: strict (20ms of GPU time), latency (200ms), or a duration
    #[arg(long, allow_negative_numbers = true, value_name = "BURST")]
    pub(crate) burst: Option<Burst>,
    /// Policy by which slices divide the GPU's time
    #[arg(long, value_parser = policies(), ignore_case = true)]
    pub(crate) policy: Option<CorePolicy>,
    /// Weight of the slice among others of its policy: 1 to 1000
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) weight: Option<Weight>,
    /// Priority of the slice among the slices on one GPU
    #[arg(long, value_parser = priorities(), ignore_case = true)]
    pub(crate) priority: Option<Priority>,
    /// Print the specification, and make nothing
    #[arg(long)]
    pub(crate) print: bool,
    /// Folder of the specification [default: /var/run/cdi]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Put this folder before every path of the host (for tests)
    #[arg(long, hide = true, default_value = "/")]
    pub(crate) root: PathBuf,
}

/// `doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Time in which the driver must answer each question
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS")]
    #[arg(default_value_t = 10, value_parser = whole(1..=600))]
    pub(crate) timeout: u64,
    /// A program and its arguments that are to be looked at as well
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// A question that the doctor has asked in a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Probe {
    /// The start of the driver
    Cuda,
    /// The devices that NVML reports
    Nvml,
    /// The preloaded libraries
    Preloaded,
    /// The start of the CUDA runtime and of cuBLAS
    Runtime,
}

impl Probe {
    /// Returns the argument that means this question.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Nvml => "nvml",
            Self::Preloaded => "preloaded",
            Self::Runtime => "runtime",
        }
    }
}

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub(crate) struct Demo {
    /// Time for which the slices run: 2 to 3600
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    #[arg(default_value_t = 8, value_parser = whole(2..=3600))]
    pub(crate) seconds: u64,
    /// Use the simulated GPU even where there is a real one
    #[arg(long)]
    pub(crate) simulated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn arguments_behind_the_program_belong_to_the_program() {
        let typed = ["gpuslice", "run", "--mem", "4GiB", "python", "--mem", "-x", "--", "y"];
        let Task::Run(run) = Arguments::try_parse_from(typed).unwrap().wish else { panic!("not run") };
        assert_eq!(run.command, ["python", "--mem", "-x", "--", "y"]);
        assert_eq!(run.mem.unwrap().text, "4GiB");
    }

    #[test]
    fn a_burst_is_no_limit_by_itself() {
        let parse =
            |typed: &[&str]| Arguments::try_parse_from([&["gpuslice", "run"], typed, &["x"]].concat());
        assert!(parse(&["--cores", "30", "--burst", "latency"]).is_ok());
        assert!(parse(&["--mem", "1g", "--burst", "latency"]).is_ok());
        assert!(parse(&["--burst", "latency"]).is_err());
        assert!(Arguments::try_parse_from(["gpuslice", "set", "x", "--burst", "50ms"]).is_ok());
    }

    #[test]
    fn an_option_that_there_is_not_is_no_program() {
        for command in [&["run", "--mem", "1g"][..], &["doctor"]] {
            for wrong in [&["--nmae", "x", "true"][..], &["-x", "true"]] {
                let typed = [&["gpuslice"], command, wrong].concat();
                let error = Arguments::try_parse_from(typed).unwrap_err();
                assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument, "{error}");
            }
            let typed = [&["gpuslice"], command, &["--", "--nmae", "x"]].concat();
            assert!(Arguments::try_parse_from(typed).is_ok(), "{command:?}");
        }
    }

    #[test]
    fn a_policy_or_a_priority_is_asked_for_like_a_limit_and_a_weight_is_not() {
        let parse = |typed: &[&str]| {
            let all = [&["gpuslice", "run"], typed, &["x"]].concat();
            Arguments::try_parse_from(all).map(|arguments| match arguments.wish {
                Task::Run(run) => (run.policy, run.weight.map(Weight::get), run.priority),
                _ => panic!("not run"),
            })
        };
        let both = parse(&["--policy", "best-effort", "--weight", "1000"]).unwrap();
        assert_eq!(both, (Some(CorePolicy::BestEffort), Some(1000), None));
        assert_eq!(parse(&["--priority", "LOW"]).unwrap(), (None, None, Some(Priority::Low)));
        assert_eq!(parse(&["--policy", "equal"]).unwrap(), (Some(CorePolicy::Equal), None, None));
        for bad in [&["--weight", "5"][..], &["--policy", "fair"], &["--policy", "equal", "--weight", "0"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(Arguments::try_parse_from(["gpuslice", "set", "x", "--weight", "5"]).is_ok());
    }
}
