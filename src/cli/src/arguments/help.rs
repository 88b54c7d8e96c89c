//! Texts after the help of each command.

pub(super) const EXAMPLES: &str = "\
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

pub(super) const RUN_HELP: &str = "\
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

pub(super) const LIST_HELP: &str = "\
Shown are this user's regions (root: those of all users): in /dev/shm and, where /tmp is in memory and /dev/shm is
emptied at a log-out, in /tmp; the one that an operator's file or GPUSLICE_REGION names; and that of the container in
/run/gpuslice/region. A region elsewhere is meant by its path. Regions of other containers are shown with the
container: root sees those of all, other users those of their own. Regions that `run` has left behind of slices that
have ended are removed. A slice without a process is shown last, and only with --all, by its name, or in the JSON.

Examples:
  gpuslice list
  gpuslice list --all
  gpuslice list --json | jq -r '.slices[].name'";

pub(super) const STATUS_HELP: &str = "\
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

pub(super) const TOP_HELP: &str = "\
Keys: up, down (or k, j) select a slice; Enter shows its processes; / shows the slices with some letters in
their names, Esc all; s sorts by name, memory or time, r turns the order round; m changes its memory limit, c its share
of GPU time, with values as `gpuslice set` takes them; x removes a slice in which no process lives; Esc leaves a page or
a prompt; ?, h or F1 shows this; q or Ctrl-C ends it. Bars are of the whole GPU, with the limit marked. It needs a terminal; `gpuslice status` does not.

Examples:
  gpuslice top
  gpuslice top team
  gpuslice top --interval 0.2
  NO_COLOR=1 gpuslice top";

pub(super) const SET_HELP: &str = "\
A quota below the use of the slice takes nothing away: new allocations are refused until the programs have freed
enough. Another share of GPU time holds at once; debt and saved-up time stay. In a list, devices are numbered as
`gpuslice status` shows them, or named by their UUIDs; policy, weight, priority and burst are those of all devices.
Limits that the command does not name stay. If one change is impossible, the command changes nothing. A user who may
write the region may change the slice: root on the host also changes slices of containers. For a slice of
`gpuslice cdi`, root also changes the operator's file, for this and later starts. A running gpuslice-agent changes the
quota and the share of its own slices: the command asks it.

Examples:
  gpuslice set team --mem 6GiB
  gpuslice set team --cores 50
  gpuslice set team --cores 12.5 --burst 50ms
  gpuslice set team --policy equal --weight 300 --priority high
  gpuslice set train/team --mem 6GiB                      (the slice team of the container train)
  gpuslice set /dev/shm/gpuslice-1000-run-12345 --mem 25%
  gpuslice set team --mem 0=4GiB,1=2GiB";

pub(super) const REMOVE_HELP: &str = "\
A slice in which a process lives is not removed: end its processes first. Such a region keeps limits and counters,
which the next first process would replace anyway. While a slice owes GPU time, its region keeps the debt: only --force
removes it then. The regions of slices of `gpuslice cdi` and gpuslice-agent stay, because a container may have one between
two programs.

Examples:
  gpuslice remove train
  gpuslice remove /dev/shm/gpuslice-1000-4026531832
  gpuslice remove --all-unused";

pub(super) const CDI_HELP: &str = "\
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

pub(super) const COMPLETIONS_HELP: &str = "\
Examples:
  gpuslice completions bash > /etc/bash_completion.d/gpuslice
  gpuslice completions zsh > \"${fpath[1]}/_gpuslice\"
  gpuslice completions fish > ~/.config/fish/completions/gpuslice.fish";

pub(super) const MAN_HELP: &str = "\
Examples:
  gpuslice man /usr/local/share/man/man1
  gpuslice man | man -l -";

pub(super) const DEMO_HELP: &str = "\
Two tenants share a GPU: red takes all that it gets, blue needs a little. First without gpuslice, where red leaves blue no
memory; then each in a slice. A real GPU is not filled: there the first part shows the time only.

Exit code 0 only if no slice ever held more than its quota, what passes it was refused, the memory of a killed
process came back within a second, each slice got its share of the GPU's time, a tenant was shown its quota as the size of
the GPU, and everything ended clean.

Examples:
  gpuslice demo
  gpuslice demo --seconds 30
  gpuslice demo --simulated";

pub(super) const DOCTOR_HELP: &str = "\
Says what is found of the driver, its devices, this machine or container, the preload library, a child that is
started with it, the region's folder, the settings and, if one is named, a command: ok, note, warning or error, and
how to mend it. The command is looked at, not run. Nothing is left behind, and no GPU is used.

Exit code: 0 nothing is wrong (there may be notes), 1 at least one error, 3 warnings only, 2 the arguments are wrong.

Examples:
  gpuslice doctor
  gpuslice doctor -- ./entrypoint.sh --epochs 3
  gpuslice doctor --json | jq -r '.findings[] | select(.level == \"error\") | .what'";
