//! Command line arguments of `gpuslice`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use gpuslice_policy::config::{self, CorePolicy, Fault, PerDevice, Priority, Quota, ValueError, Weight};
use gpuslice_policy::units::Permille;
use gpuslice_slices::slot;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gpuslice demo                                  two slices share a GPU, real or simulated
  gpuslice run --mem 4GiB -- python train.py     a program inside a quota of 4 GiB
  gpuslice run --cores 30 -- python train.py     a program that gets 30 % of the GPU's time
  gpuslice list                                  the slices of this machine
  gpuslice top                                   the same, live, with bars, history and keys
  gpuslice set 12345 --mem 6GiB --cores 50       new limits for a slice, while it runs
  gpuslice doctor -- python train.py             faults of this machine, and of starting that command

A slice is meant by its name, as `gpuslice list` shows it, by the path of its region, with a / in it, or by the number
of one of its processes. CONTAINER/NAME means the slice of a container that has a /dev/shm of its own.

Exit codes: 0 done, 1 failed, 2 the arguments are wrong. `run` ends as its program ends.";

const RUN_HELP: &str = "\
A program that cannot be limited (linked statically, of another architecture, setuid, behind env -i or env -u LD_PRELOAD)
is not started, unless --allow-unlimited is given: 125.

The program's exit code and signals are passed on; a program that a signal ends is told on as that signal, which
shells show as 128 and its number. gpuslice's own codes: 125 it failed itself, 126 the program cannot be executed,
127 it is not found, 2 the arguments are wrong.

The region is removed with the slice's last process. Where that outlives the command, the next `gpuslice list`,
`status` or `run` removes it. One that --region names is removed only if this command found none there.

Examples:
  gpuslice run --mem 4GiB --cores 30 -- python train.py --epochs 3
  gpuslice run --mem 50% -- ./simulate
  gpuslice run --mem 0=4GiB,1=8GiB --cores 0=30,1=50 -- ./two-gpus
  gpuslice run --cores 25 --burst latency -- ./serve
  gpuslice run --policy equal --weight 200 -- python train.py
  gpuslice run --policy best-effort --priority low --mem 8GiB -- ./crawl
  gpuslice run --mem 8GiB --name team -- ./a &  gpuslice run --mem 8GiB --name team -- ./b   (one slice)";

const LIST_HELP: &str = "\
Shown are this user's regions (root: those of all users): in /dev/shm and, where /tmp is in memory and /dev/shm is
emptied at a log-out, in /tmp; the one that an operator's file or GPUSLICE_REGION names; and that of the container in
/run/gpuslice/region. A region elsewhere is meant by its path. Regions of other containers are shown with the
container: root sees those of all, other users those of their own. Regions that `run` has left behind of slices that
have ended are removed. A slice without a process is shown last, and only with --all, by its name, or in the JSON.

Examples:
  gpuslice list
  gpuslice list --all
  gpuslice list --json | jq -r '.slices[].name'";

const STATUS_HELP: &str = "\
denied (quota): allocations beyond the limit. denied (device full): allocations within the limit for which the GPU
had no memory.
unaccounted: memory that NVML attributes to the slice and that gpuslice did not charge. throttled: time for which
launches waited for the share. queued: GPU time of launches that have not ended. debt: GPU time used beyond the
share; launches wait until the share has paid for it.

With --watch a terminal is drawn anew each time; into a file or pipe one report follows the other.
Sizes in the JSON are bytes, spans are nanoseconds, shares are thousandths; docs/reference/status-json.md has all of its fields.

Examples:
  gpuslice status
  gpuslice status team
  gpuslice status team --over 10
  gpuslice status team --watch
  gpuslice status --watch 10 > log
  gpuslice status --json | jq '.slices[].devices[] | [.held, .time.lately[1].used_permille]'";

const TOP_HELP: &str = "\
Keys: up, down (or k, j) select a slice; Enter shows its processes; / shows the slices with some letters in
their names, Esc all; s sorts by name, memory or time, r turns the order round; m changes its memory limit, c its share
of GPU time, with values as `gpuslice set` takes them; x removes a slice in which no process lives; Esc leaves a page or
a prompt; ?, h or F1 shows this; q or Ctrl-C ends it. Bars are of the whole GPU, with the limit marked. It needs a terminal; `gpuslice status` does not.

Examples:
  gpuslice top
  gpuslice top team
  gpuslice top --interval 0.2
  NO_COLOR=1 gpuslice top";

const SET_HELP: &str = "\
A quota below the use of the slice takes nothing away: new allocations are refused until the programs have freed
enough. Another share of GPU time holds at once; debt and saved-up time stay. In a list, devices are numbered as
`gpuslice status` shows them, or named by their UUIDs; policy, weight, priority and burst are those of all devices.
Limits that the command does not name stay. If one change is impossible, the command changes nothing. A user who may
write the region may change the slice: root on the host also changes slices of containers. For a slice of
`gpuslice cdi`, root also changes the operator's file, for this and later starts.

Examples:
  gpuslice set team --mem 6GiB
  gpuslice set team --cores 50
  gpuslice set team --cores 12.5 --burst 50ms
  gpuslice set team --policy equal --weight 300 --priority high
  gpuslice set train/team --mem 6GiB                      (the slice team of the container train)
  gpuslice set /dev/shm/gpuslice-1000-run-12345 --mem 25%
  gpuslice set team --mem 0=4GiB,1=2GiB";

const REMOVE_HELP: &str = "\
A slice in which a process lives is not removed: end its processes first. Such a region keeps limits and counters,
which the next first process would replace anyway. While a slice owes GPU time, its region keeps the debt: only --force
removes it then.

Examples:
  gpuslice remove train
  gpuslice remove /dev/shm/gpuslice-1000-4026531832
  gpuslice remove --all-unused";

const CDI_HELP: &str = "\
Makes the files that a container needs to be the slice NAME, and a specification of the Container Device Interface, which Podman
(4.1 and newer), Docker (25 and newer), containerd and CRI-O read. The container gets the library, /etc/ld.so.preload,
the limits and the region, all mounted; the limits are read-only, and nothing in its environment lifts them. NVIDIA's
driver comes as it does without gpuslice.

A list names GPUs by their UUIDs or by their numbers on the bus, as nvidia-smi shows them in the container. Limits of a
slice that was made are changed by making it again, for its next start. Limits that are not mentioned stay; --mem 100%
and --cores 100 lift one. The files lie in /var/lib/gpuslice, /run/gpuslice/slots and /var/run/cdi; the last two are
empty after a restart of the machine: make the slice again then, or leave it to gpuslice-agent.

Examples:
  gpuslice cdi a --mem 4GiB --cores 30
  gpuslice cdi b --mem 8GiB --cores 70
  gpuslice cdi a --mem 100%
  podman run --rm --device nvidia.com/gpu=0 --device gpuslice.dev/slice=a IMAGE python train.py
  gpuslice cdi a --mem GPU-8932f937=4GiB --print";

const COMPLETIONS_HELP: &str = "\
Examples:
  gpuslice completions bash > /etc/bash_completion.d/gpuslice
  gpuslice completions zsh > \"${fpath[1]}/_gpuslice\"
  gpuslice completions fish > ~/.config/fish/completions/gpuslice.fish";

const MAN_HELP: &str = "\
Examples:
  gpuslice man /usr/local/share/man/man1
  gpuslice man | man -l -";

const DEMO_HELP: &str = "\
Two tenants share a GPU: red takes all that it gets, blue needs a little. First without gpuslice, where red leaves blue no
memory; then each in a slice. A real GPU is not filled: there the first part shows the time only.

Exit code 0 only if no slice ever held more than its quota, what passes it was refused, the memory of a killed
process came back within a second, each slice got its share of the GPU's time, a tenant was shown its quota as the size of
the GPU, and everything ended clean.

Examples:
  gpuslice demo
  gpuslice demo --seconds 30
  gpuslice demo --simulated";

const DOCTOR_HELP: &str = "\
Says what is found of the driver, its devices, this machine or container, the preload library, a child that is
started with it, the region's folder, the settings and, if one is named, a command: ok, note, warning or error, and
how to mend it. The command is looked at, not run. Nothing is left behind, and no GPU is used.

Exit code: 0 nothing is wrong (there may be notes), 1 at least one error, 3 warnings only, 2 the arguments are wrong.

Examples:
  gpuslice doctor
  gpuslice doctor -- ./entrypoint.sh --epochs 3
  gpuslice doctor --json | jq -r '.findings[] | select(.level == \"error\") | .what'";

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
    // Not `allow_hyphen_values`: it would take a mistyped option for the program.
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

/// Returns a parser of whole numbers in `range`.
fn whole(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Returns a value that the shell can offer, with its meaning.
fn explained((value, meaning): (&'static str, &'static str)) -> PossibleValue {
    PossibleValue::new(value).help(meaning)
}

/// Returns a parser of policies that lists them, so that shells can offer them.
fn policies() -> impl TypedValueParser<Value = CorePolicy> {
    let policies = [
        ("fixed", "the share is a cap"),
        ("equal", "slices that are busy divide the time by weight"),
        ("best-effort", "the slice uses what others leave"),
    ];
    PossibleValuesParser::new(policies.map(explained)).try_map(|text| text.parse::<CorePolicy>())
}

/// Returns a parser of priorities that lists them, so that shells can offer them.
fn priorities() -> impl TypedValueParser<Value = Priority> {
    let priorities = [
        ("high", "before all others, which also queue less while it has work"),
        ("normal", "before low ones"),
        ("low", "after all others but best-effort ones"),
    ];
    PossibleValuesParser::new(priorities.map(explained)).try_map(|text| text.parse::<Priority>())
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

/// A quota as `GPU_MEM_LIMIT` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The text as the user typed it.
    pub(crate) text: String,
    /// The quota of each device.
    pub(crate) quotas: PerDevice<Quota>,
}

impl FromStr for Memory {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let quotas = text.parse()?;
        config::refuse_few_bytes(text)?;
        Ok(Self { text: text.to_owned(), quotas })
    }
}

/// Parses a quota for a slice that runs. `set` without `--mem` keeps the old quota, so its message for a quota of nothing differs
/// from that of `run`. The message of `set` names 100%; that of `run` says to omit the option.
fn quota_to_set(text: &str) -> Result<Memory, String> {
    text.parse().map_err(|error: ValueError| match (&error.part, &error.fault) {
        (part, Fault::ZeroSize) => {
            let part = part.as_ref().map_or_else(String::new, |part| format!("{part:?} "));
            format!(
                "{part}is a quota of nothing; write a size like 4GiB, or 100% for all that the device has"
            )
        }
        _ => error.to_string(),
    })
}

/// A share of GPU time as `GPU_CORE_PERCENT` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// The text as the user typed it.
    pub(crate) text: String,
    /// The share of each device.
    pub(crate) shares: PerDevice<Permille>,
}

impl FromStr for Cores {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self { text: text.to_owned(), shares: text.parse()? })
    }
}

/// A burst as `GPU_CORE_BURST` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Burst {
    /// The text as the user typed it.
    pub(crate) text: String,
    /// The parsed burst.
    pub(crate) burst: config::Burst,
}

impl FromStr for Burst {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        Ok(Self { text: text.to_owned(), burst: text.parse()? })
    }
}

/// Time between two looks of `status --watch` or of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        seconds(text)
            .filter(is_a_look)
            .map(Self)
            .ok_or_else(|| "a number of seconds from 0.1 to 60, like 0.5 or 2".to_owned())
    }
}

/// Parses the interval of `--watch`. The message for a bad value names the order, since people may put the slice behind
/// `--watch`.
fn watching(text: &str) -> Result<Interval, String> {
    text.parse().map_err(|error| format!("{error}; name the slice before --watch"))
}

/// Time for which `status` measures GPU time. Zero means that it does not measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over(pub(crate) Duration);

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        seconds(text)
            .filter(|span| span.is_zero() || is_a_look(span))
            .map(Self)
            .ok_or_else(|| "a number of seconds from 0.1 to 60, like 0.5 or 2, or 0 for no look".to_owned())
    }
}

fn seconds(text: &str) -> Option<Duration> {
    text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// Tells whether `span` is long enough to measure something, and short enough to wait for.
fn is_a_look(span: &Duration) -> bool {
    (Duration::from_millis(100)..=Duration::from_secs(60)).contains(span)
}

/// Longest name of a slice, in characters.
const NAME_LENGTH: usize = 64;

/// A name that can stand in a file's name and on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceName(pub(crate) String);

impl FromStr for SliceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let starts_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            return Err("a name of digits and - alone could be that of a slice without a name, which is called by its \
                        process number; add a letter"
                .to_owned());
        }
        if starts_well && text.len() <= NAME_LENGTH && text.bytes().all(usual) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "a name begins with a letter or digit and has up to {NAME_LENGTH} letters, digits and any of - _ ."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use gpuslice_policy::time::GpuTime;

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
    fn shares_and_bursts_are_read_as_in_the_environment() {
        for good in ["1", "30", "12.5", "100", "0=30,1=100"] {
            assert_eq!(good.parse::<Cores>().map(|cores| cores.text).as_deref(), Ok(good));
        }
        for bad in ["0", "0.9", "100.1", "101", "30%", "all", "", "0=0", "0=30,0=40"] {
            assert!(bad.parse::<Cores>().is_err(), "{bad}");
        }
        for (good, millis) in [("strict", 20), ("latency", 200), ("50ms", 50)] {
            assert_eq!(
                good.parse::<Burst>().map(|burst| burst.burst.span()),
                Ok(GpuTime::from_millis(millis))
            );
        }
        assert!("20".parse::<Burst>().is_err());
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
    fn an_interval_is_a_tenth_of_a_second_to_a_minute() {
        for (good, millis) in [("0.1", 100), ("1", 1000), ("2.5", 2500), ("60", 60_000)] {
            assert_eq!(good.parse(), Ok(Interval(Duration::from_millis(millis))));
        }
        for bad in ["0", "0.09", "60.1", "-1", "NaN", "inf", "1e99", "", "1s"] {
            assert!(bad.parse::<Interval>().is_err(), "{bad}");
            assert!(bad == "0" || bad.parse::<Over>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_look_is_a_tenth_of_a_second_to_a_minute_or_none() {
        for (good, millis) in [("0", 0), ("0.0", 0), ("0.1", 100), ("0.5", 500), ("60", 60_000)] {
            assert_eq!(good.parse(), Ok(Over(Duration::from_millis(millis))));
        }
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

    #[test]
    fn a_name_cannot_leave_its_folder_or_look_like_an_option() {
        for good in ["a", "team-1", "2026.01_x", "7857a"] {
            assert!(good.parse::<SliceName>().is_ok(), "{good}");
        }
        for bad in ["", "a/b", "..", "-x", "7857", "7857-4026532000", "-", "a b", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<SliceName>().is_err(), "{bad}");
        }
    }
}
