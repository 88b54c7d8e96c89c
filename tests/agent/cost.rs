//! Measures the cost of the agent; `ci/agent_cost.sh` prints it.

use crate::node::Node;
use gpuslice_region::{DeviceRequest, Limits, Member, Trust, Uuid};
use std::fs;
use std::time::{Duration, Instant};

const SLICES: u8 = 64;
/// Most bytes of memory that the agent may have.
const MOST_BYTES: u64 = 32 << 20;
/// Most time that the agent may use, in thousandths of a processor.
const MOST_PERMILLE: u128 = 10;

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

#[test]
#[ignore = "takes a minute, and means something on a machine that does nothing else: ci/agent_cost.sh"]
fn sixty_four_slices_at_one_look_a_second_cost_less_than_a_hundredth_of_a_processor() {
    let slices: String = (0..SLICES)
        .map(|number| format!("[[slices]]\nname = \"s{number}\"\ngpu = 0\nmemory = \"1GiB\"\ncores = 1\n"))
        .collect();
    let node = Node::start(&slices);
    let limits = Limits { memory: Some(1 << 30), cores_permille: 10, ..Limits::NONE };
    let members: Vec<Member> = (0..SLICES)
        .map(|number| {
            let wanted = [DeviceRequest { uuid: Uuid([number; 16]), total: 1 << 30, limits }];
            let (member, _) = Member::join(&node.region(&format!("s{number}")), Trust::AnyOwner, &wanted)
                .expect("it can be joined");
            let device = member.devices()[0].device;
            member.reserve(device, 1 << 20).expect("it fits");
            member
        })
        .collect();
    let threads = fs::read_dir(format!("/proc/{}/task", node.pid())).expect("it has threads");
    let children = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let nvml: Vec<u32> = children
        .collect::<String>()
        .split_ascii_whitespace()
        .map(|pid| pid.parse().expect("a number"))
        .collect();
    assert_eq!(nvml.len(), 1, "it asks NVML in a child");
    node.scrape();
    let all = || ticks(node.pid()) + nvml.iter().map(|pid| ticks(*pid)).sum::<u64>();
    let (start, before) = (Instant::now(), all());
    for second in 1..=30 {
        node.scrape();
        std::thread::sleep((start + Duration::from_secs(second)).saturating_duration_since(Instant::now()));
    }
    let (passed, used) = (start.elapsed(), all() - before);
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
    drop(members);
    assert!(permille < MOST_PERMILLE, "{permille} thousandths of a processor");
    assert!(rss < MOST_BYTES, "{rss} bytes");
}
