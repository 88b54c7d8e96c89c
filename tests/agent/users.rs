//! Checks that slices of two users, each with a region that only its own container has, hold their limits beside each other.

use crate::MIB;
use crate::cotenants::shares;
use crate::node::Node;
use crate::support::container::may_have_containers;
use crate::support::living::Living;
use crate::support::other_user::{NOBODY, OtherUser};
use crate::support::{compiler, executable};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Two users without rights.
const USERS: [u32; 2] = [NOBODY, NOBODY - 1];
/// The quota of each user in MiB, and the share of each in percent.
const LIMITS: [(u64, u64); 2] = [(256, 30), (512, 70)];

/// Starts a program that is always busy, and one that takes memory on order, which holds 16 MiB at its start.
const BOTH: &str = "\"$0/load\" 300 1000000 </dev/null >/dev/null & exec \"$0/witness\" 16777216";

/// Returns copies of the programs, the library and the driver that all users can run.
fn programs(what: &str) -> Option<OtherUser> {
    let programs = OtherUser::new(what)?;
    for name in ["load", "witness"] {
        executable::copy(compiler::plain(name), programs.path(name), 0o755);
    }
    Some(programs)
}

/// Lets all users use the simulated GPU, which the agent has made.
fn share_gpu(node: &Node) {
    let folder = node.bench_folder();
    for (path, mode) in [(folder.join("state"), 0o666), (folder, 0o755)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}

/// Returns the words that run the programs of a user.
fn words<'a>(user: &'a str, folder: &'a str) -> [&'a str; 9] {
    ["--reuid", user, "--regid", user, "--clear-groups", "sh", "-c", BOTH, folder]
}

fn ready(program: Living) -> Living {
    assert_eq!(program.hear().as_deref(), Some("ready"));
    program
}

/// Starts the programs of a user in a container of their own, whose limits are variables.
fn by_variables(node: &Node, programs: &OtherUser, place: usize) -> Living {
    let ((quota, share), user) = (LIMITS[place], USERS[place].to_string());
    let folder = programs.path("");
    let variables = [
        format!("LD_PRELOAD={}", programs.path("libgpuslice.so")),
        format!("LD_LIBRARY_PATH={folder}"),
        format!("GPU_MEM_LIMIT={quota}MiB"),
        format!("GPU_CORE_PERCENT={share}"),
    ];
    ready(node.contained(&[], &variables, Path::new("/usr/bin/setpriv"), &words(&user, &folder)))
}

/// Starts the programs of a user in a container that has a slice of the agent.
fn by_agent(node: &Node, programs: &OtherUser, place: usize) -> Living {
    let (user, folder) = (USERS[place].to_string(), programs.path(""));
    let variables = [format!("LD_LIBRARY_PATH={folder}")];
    let slice = format!("user-{place}");
    ready(node.in_slice_with(&slice, &variables, Path::new("/usr/bin/setpriv"), &words(&user, &folder)))
}

/// Checks that each user gets the whole quota, and no more than that.
fn hold_their_quotas(users: &mut [Living; 2]) {
    for (user, (quota, _)) in users.iter_mut().zip(LIMITS) {
        let kept = user.ask(&format!("keep {}", (quota - 32) * MIB));
        assert!(kept.starts_with("0 "), "{kept}");
    }
    for user in users {
        assert!(user.ask(&format!("take {}", 18 * MIB)).starts_with("2 "), "it passes its quota");
        assert!(user.ask(&format!("take {}", 16 * MIB)).starts_with("0 "), "it has less than its quota");
    }
}

fn until_they_have_their_shares(node: &mut Node) {
    node.until("both users get their shares", |node| {
        let told: Vec<f64> = shares(&node.bench).into_iter().filter(|share| *share > 1.0).collect();
        println!("shares: {told:?} of 30 and 70");
        let is_right =
            told.len() == 2 && (25.0..=32.0).contains(&told[0]) && (62.0..=72.0).contains(&told[1]);
        is_right.then_some(())
    });
}

#[test]
fn slices_of_two_users_hold_their_limits_without_the_agent() {
    let Some(programs) = programs("slices of two users") else { return };
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start("");
    node.end(libc::SIGKILL);
    share_gpu(&node);
    let mut users = [0, 1].map(|place| by_variables(&node, &programs, place));
    hold_their_quotas(&mut users);
    until_they_have_their_shares(&mut node);
}

/// Each user has a copy of the driver's files, so only the agent can relay between the slices.
#[test]
fn slices_of_two_users_hold_their_limits_and_are_seen_while_the_agent_runs() {
    let each = [0, 1].map(|_| programs("slices of two users and the agent"));
    let [Some(first), Some(second)] = each else { return };
    if !may_have_containers() {
        return;
    }
    let slices = LIMITS.iter().enumerate().map(|(place, (quota, share))| {
        format!("[[slices]]\nname = \"user-{place}\"\ngpu = 0\nmemory = \"{quota}MiB\"\ncores = {share}\n")
    });
    let mut node = Node::start(&slices.collect::<String>());
    share_gpu(&node);
    let mut users = [by_agent(&node, &first, 0), by_agent(&node, &second, 1)];
    hold_their_quotas(&mut users);
    for (place, (quota, share)) in LIMITS.into_iter().enumerate() {
        let told = node.slice(|slice| slice["name"] == format!("user-{place}")).unwrap();
        let device = &told["devices"][0];
        assert_eq!(device["memory_limit"], Value::from(quota * MIB), "{told}");
        assert_eq!(device["share_permille"], Value::from(share * 10), "{told}");
        assert_eq!(device["memory_used"], Value::from((quota - 16) * MIB), "{told}");
        assert_eq!(told["process_count"], Value::from(2), "{told}");
    }
    until_they_have_their_shares(&mut node);
}
