//! Counts the calls of NVML by process: one process of the node calls it, about once a second, in one session.

use crate::cotenants::sources;
use crate::node::Node;
use crate::support::bench::Bench;
use crate::support::compiler;
use crate::support::container::may_have_containers;
use crate::support::living::Living;
use crate::support::neighbours::{BUSY, begin};
use gpuslice_policy::compute::attribution::source::Source;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Looks at NVML for which calls are counted.
const LOOKS: usize = 6;
/// Time within which so many looks take place, on a machine that has other things to do.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest time from the first look to the last one. Each look counts for less than a second, because the test may read the file
/// of the first one late.
const LEAST: Duration = Duration::from_millis(900 * (LOOKS as u64 - 1));

/// The files into which the simulated NVML writes the calls of processes.
struct Calls(Vec<PathBuf>);

impl Calls {
    /// Returns the lines of all files, each of them a process and a function.
    fn lines(&self) -> Vec<Vec<String>> {
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        self.0.iter().map(|path| read(path).lines().map(str::to_owned).collect()).collect()
    }

    /// Waits for [`LOOKS`] further calls of a function. Returns all further calls of each file, and the time from the first look
    /// to the last one.
    #[track_caller]
    fn further(&self, function: &str) -> (Vec<Vec<String>>, Duration) {
        let before: Vec<usize> = self.lines().iter().map(Vec::len).collect();
        let mut began = None;
        let end = Instant::now() + TIMEOUT;
        loop {
            let further: Vec<Vec<String>> = self
                .lines()
                .into_iter()
                .zip(&before)
                .map(|(mut lines, before)| lines.split_off(*before))
                .collect();
            let looks = further.iter().flatten().filter(|line| line.ends_with(function)).count();
            if looks > 0 {
                began.get_or_insert_with(Instant::now);
            }
            if looks >= LOOKS {
                return (further, began.expect("it has begun").elapsed());
            }
            assert!(Instant::now() < end, "{looks} calls of {function} within {TIMEOUT:?}: {further:?}");
            sleep(Duration::from_millis(5));
        }
    }
}

/// Fails unless exactly one process called NVML, once a second and without a new session. Its calls are in the file `asker`.
#[track_caller]
fn one_asked((further, passed): &(Vec<Vec<String>>, Duration), asker: usize) {
    assert!(*passed >= LEAST, "{LOOKS} looks within {passed:?}: {further:?}");
    for (file, lines) in further.iter().enumerate() {
        assert_eq!(file == asker, !lines.is_empty(), "{further:?}");
    }
    let lines = &further[asker];
    let processes: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(processes.len(), 1, "{lines:?}");
    let is_session = |line: &&String| line.contains("nvmlInit") || line.contains("nvmlShutdown");
    assert_eq!(lines.iter().find(is_session), None, "{lines:?}");
    println!("{} calls at {LOOKS} looks", lines.len());
}

#[test]
fn only_one_process_of_the_agent_asks_nvml_once_a_second_about_several_slices() {
    if !may_have_containers() {
        return;
    }
    let bench = Bench::simulated_without_contexts();
    let files =
        Calls(["agent", "a", "b", "c"].map(|name| bench.folder().join(format!("calls-{name}"))).to_vec());
    let bench = bench.with("SIMGPU_NVML_CALLS", &files.0[0].display().to_string());
    let slice = |name| format!("[[slices]]\nname = \"{name}\"\ngpu = 0\nmemory = \"128MiB\"\ncores = 20\n");
    let mut node = Node::start_on(bench, &["a", "b", "c"].map(slice).concat());
    let load = compiler::plain("load");
    let _programs = ["a", "b", "c"].map(|name| {
        let calls = format!("SIMGPU_NVML_CALLS=/run/bench/calls-{name}");
        begin(node.in_slice_with(name, &[calls], &load, &BUSY))
    });
    node.until("the agent relays", |node| (sources(node) == [Source::Replayed; 3]).then_some(()));
    let look = "nvmlDeviceGetUtilizationRates";
    // A slice may have begun a call of NVML before the agent relayed, so the first looks do not count.
    files.further(look);
    one_asked(&files.further(look), 0);
    // Without the agent, the slices ask. So the calls of their processes are written down, too.
    node.end(libc::SIGKILL);
    node.until("a slice asks", |_| files.lines().iter().skip(1).any(|lines| !lines.is_empty()).then_some(()));
}

#[test]
fn one_process_of_the_slices_of_a_folder_asks_nvml_once_a_second() {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let names = ["a", "b", "c"];
    let files = Calls(names.map(|name| bench.folder().join(format!("calls-{name}"))).to_vec());
    let _programs: Vec<Living> = names
        .iter()
        .zip(&files.0)
        .map(|(name, calls)| {
            let host = bench.host("load", &BUSY).loaded().in_slice(name).set("GPU_CORE_PERCENT", "20");
            begin(host.set("SIMGPU_NVML_CALLS", &calls.display().to_string()).start())
        })
        .collect();
    let asks = "UtilizationInfo";
    // The slices find each other during these looks. Until then, each slice calls NVML itself.
    for _ in 0..2 {
        files.further(asks);
    }
    let further = files.further(asks);
    let asker = further.0.iter().position(|lines| !lines.is_empty()).expect("one asks");
    one_asked(&further, asker);
}
