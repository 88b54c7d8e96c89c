//! Measures the cost of the agent. `ci/agent_cost.sh` prints its part of a processor.

use crate::gpu_of;
use crate::node::Node;
use crate::support::bench::Bench;
use crate::support::skip;
use gpuslice_region::{DeviceRequest, Limits, Member, Trust};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const SLICES: u8 = 64;
/// Most bytes of memory that the agent may have.
const MOST_BYTES: u64 = 32 << 20;
/// Most time that the agent may use, in thousandths of a processor.
const MOST_PERMILLE: u128 = 10;
/// Most instructions of the agent in a second: a hundredth of those of a processor that executes one each nanosecond.
const MOST_INSTRUCTIONS: u128 = 10_000_000;

/// Returns the clock ticks that a process and its ended children used of processors.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<&str> =
        stat.rsplit_once(')').expect("it has a name").1.split_ascii_whitespace().collect();
    fields[11..15].iter().map(|field| field.parse::<u64>().expect("it is a number")).sum()
}

fn resident(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("it has the field");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") * 1024
}

/// A node whose slices all have a process.
struct Loaded {
    node: Node,
    _members: Vec<Member>,
}

impl Loaded {
    /// Makes this process a member of each slice of a node.
    fn new(node: Node) -> Self {
        let limits = Limits { memory: Some(1 << 30), cores_permille: 10, ..Limits::NONE };
        // The agent compares slices with the memory of GPUs that the node has.
        let wanted = [DeviceRequest { uuid: gpu_of(&node), total: 1 << 30, limits }];
        let join = |number: u8| {
            let (member, _) = Member::join(&node.region(&format!("s{number}")), Trust::AnyOwner, &wanted)
                .expect("it can be joined");
            let device = member.devices()[0].device;
            member.reserve(device, 1 << 20).expect("it fits");
            member
        };
        let _members = (0..SLICES).map(join).collect();
        let loaded = Self { node, _members };
        loaded.scrape_all();
        loaded
    }

    /// Reads the metrics, and asserts that they contain all slices.
    fn scrape_all(&self) {
        let metrics = self.node.scrape();
        let used = metrics.0.keys().filter(|(name, _)| name == "gpuslice_slice_memory_used_bytes");
        let slices = used.map(|(_, labels)| &labels["slot"]).collect::<BTreeSet<_>>().len();
        assert_eq!(slices, usize::from(SLICES));
    }

    /// Reads the metrics once a second, for some seconds. Returns the time that has passed.
    fn scrape_for(&self, seconds: u64) -> Duration {
        let start = Instant::now();
        for second in 1..=seconds {
            self.scrape_all();
            let end = start + Duration::from_secs(second);
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
        }
        start.elapsed()
    }
}

/// Returns the configuration with all slices.
fn slices() -> String {
    (0..SLICES)
        .map(|number| format!("[[slices]]\nname = \"s{number}\"\ngpu = 0\nmemory = \"1GiB\"\ncores = 1\n"))
        .collect()
}

#[test]
fn sixty_four_slices_leave_the_agent_below_32_mebibytes() {
    let loaded = Loaded::new(Node::start(&slices()));
    loaded.scrape_for(3);
    let rss = resident(loaded.node.pid(), "VmRSS");
    println!("agent with {SLICES} slices: {} KiB resident", rss >> 10);
    assert!(rss < MOST_BYTES, "{rss} bytes");
}

/// Makes valgrind begin or stop to count the instructions of a process.
fn count(pid: u32, how: &str) {
    let told = Command::new("callgrind_control").args(["-i", how, &pid.to_string()]).output();
    let told = told.expect("it is installed with valgrind");
    assert!(told.status.success(), "{told:?}");
}

#[test]
fn sixty_four_slices_at_one_look_a_second_cost_the_agent_few_instructions() {
    if Command::new("callgrind_control").arg("--version").output().is_err() {
        return skip("the agent's instructions: there is no valgrind; to mend it: apt-get install valgrind");
    }
    let bench = Bench::simulated_without_contexts();
    let counted = bench.folder().join("counted");
    let file = format!("--callgrind-out-file={}", counted.display());
    let valgrind = ["/usr/bin/valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", &file];
    let mut loaded = Loaded::new(Node::start_under(&valgrind, bench, &slices()));
    let pid = loaded.node.pid();
    count(pid, "on");
    let passed = loaded.scrape_for(5);
    count(pid, "off");
    loaded.node.end(libc::SIGTERM);
    let text = fs::read_to_string(&counted).expect("valgrind has counted");
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ")).expect("the file has a sum");
    let each: u128 = totals.trim().parse::<u128>().expect("a number") * 1000 / passed.as_millis();
    println!("agent with {SLICES} slices, scraped once a second: {each} instructions a second");
    assert!(each < MOST_INSTRUCTIONS, "{each} instructions a second");
}

#[test]
#[ignore = "takes a minute, and means something on a machine that does nothing else: ci/agent_cost.sh"]
fn sixty_four_slices_at_one_look_a_second_cost_less_than_a_hundredth_of_a_processor() {
    let loaded = Loaded::new(Node::start(&slices()));
    let node = &loaded.node;
    let threads = fs::read_dir(format!("/proc/{}/task", node.pid())).expect("it has threads");
    let children = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let nvml: Vec<u32> = children
        .collect::<String>()
        .split_ascii_whitespace()
        .map(|pid| pid.parse().expect("a number"))
        .collect();
    assert_eq!(nvml.len(), 1, "it asks NVML in a child");
    let all = || ticks(node.pid()) + nvml.iter().map(|pid| ticks(*pid)).sum::<u64>();
    let before = all();
    let passed = loaded.scrape_for(30);
    let used = all() - before;
    let permille = u128::from(used) * 10 * 1000 / passed.as_millis();
    let (rss, own) = (resident(node.pid(), "VmRSS"), resident(node.pid(), "RssAnon"));
    println!(
        "agent with {SLICES} slices, scraped once a second for {} s: {}.{} % of a processor (NVML's child included), {} KiB resident, {} KiB of them its own",
        passed.as_secs(),
        permille / 10,
        permille % 10,
        rss >> 10,
        own >> 10
    );
    assert!(permille < MOST_PERMILLE, "{permille} thousandths of a processor");
    assert!(rss < MOST_BYTES, "{rss} bytes");
}
