//! Slices of several users, and users who may only read a region.

use crate::support::command::{GIB, OwnSlice, RegionFile, Running, ask, end, gpuslice, json};
use crate::support::living::send;
use crate::support::other_user::{OtherUser, is_root};
use crate::support::skip;
use gpuslice_policy::arbiter::MOST_SLICES;
use gpuslice_policy::config::CorePolicy;
use gpuslice_region::{DeviceRequest, Limits, Member, Reader, Sharing, Trust, Uuid};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;
use std::time::{Duration, Instant};

/// A user who may read regions and write none. For root that is another user; otherwise it is this user, with a read-only region.
enum Reading {
    Other(OtherUser),
    Own,
}

impl Reading {
    fn new(what: &str) -> Option<Self> {
        if is_root() { OtherUser::new(what).map(Self::Other) } else { Some(Self::Own) }
    }

    fn gpuslice(&self, arguments: &[&str]) -> Command {
        match self {
            Self::Other(user) => user.gpuslice(arguments),
            Self::Own => gpuslice(arguments),
        }
    }
}

/// Kills a program of the slice while it holds memory, which stays charged. Returns the charged bytes.
fn dead_in(slice: &OwnSlice) -> u64 {
    let mut running = Running::start(&["run", "--mem", "64MiB", "--region", &slice.name]);
    let own = std::process::id();
    let other = || {
        let report = json(&["status", &slice.name, "--json"]);
        let device = |number| report.pointer(&format!("/slices/0/devices/{number}"));
        let processes = device(2)?.pointer("/processes")?.as_array()?;
        let process = processes.iter().find(|process| process["pid"].as_u64() != Some(own.into()))?;
        Some((u32::try_from(process["pid"].as_u64()?).ok()?, process["held"].as_u64()?))
    };
    let (pid, _) = other().expect("it runs");
    // `run` is killed first, because it would clear the charge of its program. A wait would close the program's input.
    let _open = running.child.stdin.take();
    running.child.kill().expect("it runs");
    running.child.wait().expect("it is our child");
    let end = Instant::now() + Duration::from_secs(60);
    let held = loop {
        send(pid, libc::SIGSTOP);
        match other().expect("it lives").1 {
            0 => send(pid, libc::SIGCONT),
            held => break held,
        }
        assert!(Instant::now() < end, "it never holds anything");
    };
    let reader = Reader::open(&slice.region.0, Trust::OwnerOnly).unwrap().expect("it is there");
    send(pid, libc::SIGKILL);
    while !reader.any_dead().expect("it can be asked") {
        assert!(Instant::now() < end, "it does not die");
        std::thread::yield_now();
    }
    held
}

#[test]
fn a_user_that_may_only_read_a_region_sees_the_dead_apart_from_the_living() {
    let Some(reading) = Reading::new("a region that may only be read") else { return };
    // A `list` of another test reaps the dead processes of each region that it finds.
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let slice = OwnSlice::join_in(folder.path());
    let path = slice.name.clone();
    let mode =
        |mode| fs::set_permissions(&slice.region.0, fs::Permissions::from_mode(mode)).expect("it is ours");
    let held = dead_in(&slice);
    mode(if is_root() { 0o644 } else { 0o444 });
    let report = |command: &mut Command| -> Value {
        serde_json::from_str(&end(command).code(0).out).expect("this is JSON")
    };
    for _ in 0..2 {
        let status = report(&mut reading.gpuslice(&["status", &path, "--json"]));
        let figures = ["held", "held_by_dead"].map(|name| status["slices"][0]["devices"][2][name].as_u64());
        assert_eq!(
            (figures, status["slices"][0]["processes"].as_u64()),
            ([Some(0), Some(held)], Some(1)),
            "{status}"
        );
    }
    end(&mut reading.gpuslice(&["status", &path]))
        .code(0)
        .says(" held by exited processes, freed when the slice needs room");
    let list = report(reading.gpuslice(&["list", "--json"]).env("GPUSLICE_REGION", &path));
    let listed =
        list["slices"].as_array().into_iter().flatten().find(|found| found["region"] == path.as_str());
    // `list` shows regions of other users to root only.
    assert!(is_root() || listed.is_some_and(|own| own["processes"] == 1), "{list}");
    end(&mut reading.gpuslice(&["set", &path, "--mem", "1GiB"])).code(1).complains(&path);
    assert_eq!(slice.limit(0x11), Some(8 * GIB));
    // A reader with the right to write clears the charge of the dead process.
    mode(0o600);
    let status = json(&["status", &path, "--json"]);
    assert_eq!(status["slices"][0]["devices"][2]["held_by_dead"].as_u64(), Some(0), "{status}");
}

#[test]
fn more_slices_than_gpus_are_divided_among_are_said_to_be() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let live_in = |number: usize| {
        let path = folder.path().join(format!("region-{number}"));
        let wanted = [DeviceRequest { uuid: Uuid([0x11; 16]), total: 16 * GIB, limits: Limits::NONE }];
        Member::join(&path, Trust::OwnerOnly, &wanted).expect("it can be made").0
    };
    let mut members: Vec<Member> = (0..MOST_SLICES).map(live_in).collect();
    // No process lives in this slice.
    live_in(MOST_SLICES).leave();
    let region = members[0].path().display().to_string();
    let says_nothing = || assert_eq!(ask(&["status", &region]).code(0).err, "");
    let divide = |member: &Member, policy| {
        let device = member.device(&Uuid([0x11; 16])).expect("the slice has the device");
        member.set_limits(device, Limits { sharing: Sharing { policy, ..Sharing::FIXED }, ..Limits::NONE });
    };
    divide(&members[1], CorePolicy::Equal);
    says_nothing();
    members.extend([live_in(MOST_SLICES + 1), live_in(MOST_SLICES + 2)]);
    let words =
        format!("have their regions in {}: GPUs are divided among 48 of them", folder.path().display());
    ask(&["status", &region]).code(0).complains("gpuslice: 50 slices of user ").complains(&words);
    end(gpuslice(&["list"]).env("GPUSLICE_REGION", &region)).code(0).complains(&words);
    // There is no message if no slice divides the GPU.
    divide(&members[1], CorePolicy::Fixed);
    says_nothing();
    divide(&members[1], CorePolicy::Equal);
    // The slices of another user are not counted.
    let give_away = |member: &Member| chown(member.path(), Some(4242), None).is_ok();
    if !members.iter().rev().take(2).all(give_away) {
        return skip(
            "more slices than GPUs are divided among, of two users: needs root; to mend it: run the tests as root",
        );
    }
    says_nothing();
    let others = members.last().expect("there are some").path().display().to_string();
    divide(members.last().expect("there are some"), CorePolicy::Equal);
    assert_eq!(ask(&["status", &others]).code(0).err, "");
}

#[test]
fn roots_list_prefers_its_own_slice_and_shows_others_by_their_files() {
    let slice = OwnSlice::join("prefers");
    let other = RegionFile(format!("/dev/shm/gpuslice-4242-run-{}", slice.name).into());
    let (_member, _) = Member::join(&other.0, Trust::OwnerOnly, &[]).expect("it can be made");
    if chown(&other.0, Some(4242), None).is_err() {
        return skip("root's list of slices: needs root; to mend it: run the tests as root");
    }
    let own = json(&["status", &slice.name, "--json"]);
    let region = slice.region.0.display().to_string();
    assert_eq!(own.pointer("/slices/0/region"), Some(&region.into()));
    ask(&["list"]).code(0).says(&format!("gpuslice-4242-run-{}", slice.name));
}

#[test]
fn a_name_leads_to_nothing_that_another_user_has_planted() {
    const SOMEBODY: u32 = 4242;
    let slice = OwnSlice::join("planted");
    let region = &slice.region.0;
    let own = region.metadata().expect("it is there").uid();
    fs::set_permissions(region, fs::Permissions::from_mode(0o666)).expect("it is ours");
    if chown(region, Some(SOMEBODY), Some(SOMEBODY)).is_err() {
        return skip(
            "a name of another user's slice: needs root, to give a file away; to mend it: run the tests as root",
        );
    }
    let Some(reading) = Reading::new("a name of another user's slice") else { return };
    let mut command = reading.gpuslice(&["status", &slice.name]);
    end(&mut command).code(1).complains("there is no slice");
    end(&mut reading.gpuslice(&["status", &region.display().to_string()])).code(0).says(&slice.name);
    // This process is root, and root may name the regions of all users.
    ask(&["status", &slice.name]).code(0).says(&slice.name);
    chown(region, Some(own), Some(own)).expect("this is root");
    end(&mut reading.gpuslice(&["status", &slice.name])).code(0).says(&slice.name);
}
