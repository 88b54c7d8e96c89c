//! Unused slices, overcommitment, and names of slices at the command line.
#![allow(clippy::indexing_slicing, reason = "a test")]

use crate::support::command::{Ended, GIB, OwnSlice, RegionFile, ask, end, gpuslice, json, name};
use crate::support::terminal::Terminal;
use gpuslice_policy::config::CorePolicy;
use gpuslice_policy::time::{GpuTime, GpuTimeChange};
use gpuslice_region::{DeviceRequest, Limits, Member, Reader, Sharing, Trust, Uuid};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Joins a slice on one GPU of 16 GiB.
fn join(path: &Path, gpu: u8, limits: Limits) -> Member {
    let wanted = [DeviceRequest { uuid: Uuid([gpu; 16]), total: 16 * GIB, limits }];
    Member::join(path, Trust::OwnerOnly, &wanted).expect("it can be made").0
}

/// Makes a folder for regions. `list` does not look into it.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder can be made")
}

fn lines_with<'a>(ended: &'a Ended, words: &str) -> Vec<&'a str> {
    ended.out.lines().filter(|line| line.contains(words)).collect()
}

#[test]
fn a_slice_without_a_process_is_hidden_marked_and_last() {
    let (folder, living) = (folder(), OwnSlice::join("z-living"));
    let path = folder.path().join(name("a-unused"));
    join(&path, 0x41, Limits { memory: Some(GIB), ..Limits::NONE }).leave();
    let list = |arguments: &[&str]| {
        let all = [&["list"], arguments].concat();
        end(gpuslice(&all).env("GPUSLICE_REGION", &path)).code(0)
    };
    assert_eq!(lines_with(&list(&[]), "a-unused"), Vec::<&str>::new());
    let all = list(&["--all"]);
    let row = lines_with(&all, "a-unused");
    assert!(row.len() == 1 && row[0].contains(" unused") && row[0].contains(" 0  "), "{all:?}");
    assert!(
        all.out.find(&living.name) < all.out.find("a-unused") && all.out.contains(&living.name),
        "{all:?}"
    );
    // `list` with its name shows the slice, and `--json` shows every slice.
    assert_eq!(lines_with(&list(&[&path.display().to_string()]), "a-unused").len(), 1);
    let listing: serde_json::Value = serde_json::from_str(&list(&["--json"]).out).expect("this is JSON");
    let slices = listing["slices"].as_array().expect("there are slices");
    let place = |name: &str| slices.iter().position(|slice| slice["name"] == name).expect("it is listed");
    assert!(place(&living.name) < place(&name("a-unused")), "{listing}");
    assert_eq!(slices[place(&name("a-unused"))]["processes"].as_u64(), Some(0));
    let mut status = gpuslice(&["status"]);
    let status = end(status.env("GPUSLICE_REGION", &path)).code(0).says("unused: no process lives in it");
    assert!(status.out.find(&living.name) < status.out.find("a-unused"), "{status:?}");
}

#[test]
fn list_shows_the_slices_that_are_named() {
    let [one, two] = ["one", "two"].map(OwnSlice::join);
    let ended = ask(&["list", &one.name]).code(0);
    assert!(ended.out.contains(&one.name) && !ended.out.contains(&two.name), "{ended:?}");
    let ended = ask(&["list", &one.name, &two.name]).code(0);
    assert!(ended.out.contains(&one.name) && ended.out.contains(&two.name), "{ended:?}");
    ask(&["list", "no-such-slice"]).code(1).complains("there is no slice");
}

#[test]
fn a_slice_is_removed_once_no_process_lives_in_it() {
    let folder = folder();
    let path = folder.path().join("region");
    let member = join(&path, 0x42, Limits::NONE);
    let text = path.display().to_string();
    let own = std::process::id();
    ask(&["remove", &text])
        .code(1)
        .complains(&format!("1 process lives in {text} ({own}); only a slice without"));
    assert!(path.exists());
    member.leave();
    ask(&["rm", &text]).code(0).says(&format!("removed {text}"));
    assert!(!path.exists());
    ask(&["remove", &text]).code(1).complains("there is no region at");
    // A slice that cannot be removed does not stop the removal of the others.
    join(&path, 0x42, Limits::NONE).leave();
    ask(&["remove", "no-such-slice", &text]).code(1).complains("there is no slice").says("removed ");
    assert!(!path.exists());
    ask(&["remove"]).code(2).complains("<SLICE>");
    // A file that is no region is not removed.
    std::fs::write(&path, "something else").expect("it can be written");
    ask(&["remove", &text, "--force"]).code(1).complains(&text);
    assert!(path.exists());
}

#[test]
fn a_slice_whose_file_was_removed_is_said_to_be_by_its_name() {
    let slice = OwnSlice::join("deleted");
    std::fs::remove_file(&slice.region.0).expect("it is there");
    // The child of another test has the region open until it executes a program, so the message may name that child too.
    let own = std::process::id();
    let is_named = |error: &str| {
        let (_, users) = error.split_once("was removed while in use by process").unwrap_or_default();
        users.split([' ', ',', ':']).any(|word| word.parse() == Ok(own))
    };
    for arguments in
        [&["status", &slice.name][..], &["set", &slice.name, "--mem", "1g"], &["list", &slice.name]]
    {
        let ended = ask(arguments).code(1);
        assert!(is_named(&ended.err), "{ended:?}");
    }
    let other = name("never");
    ask(&["status", &other]).code(1).complains(&format!("there is no slice \"{other}\""));
}

#[test]
fn a_limit_that_is_a_long_number_is_shown_as_a_size() {
    let region = RegionFile::of(&name("decimal"));
    let _member = join(&region.0, 0x47, Limits { memory: Some(4_000_000_000), ..Limits::NONE });
    let name = name("decimal");
    ask(&["list", &name]).code(0).says(" 3.72 GiB ");
    ask(&["status", &name]).code(0).says("limit 3.72 GiB (3906250KiB)");
}

#[test]
fn all_unused_slices_are_removed_and_no_other() {
    let living = OwnSlice::join("kept");
    // This region is named like a container's. `run` has not made it, so `list` does not remove it.
    let unused = living.region.0.display().to_string().replace("-run-", "-container-");
    let unused = RegionFile(unused.into());
    join(&unused.0, 0x43, Limits::NONE).leave();
    ask(&["list"]).code(0);
    assert!(unused.0.exists());
    ask(&["remove", "--all-unused"]).code(0).says("removed ");
    assert!(!unused.0.exists() && living.region.0.exists());
    ask(&["remove", "--all-unused", "x"]).code(2).complains("cannot be used with");
}

#[test]
fn a_slice_that_owes_gpu_time_is_removed_by_force_only() {
    let folder = folder();
    let path = folder.path().join("region");
    let text = path.display().to_string();
    let member = join(&path, 0x44, Limits { cores_permille: 10, ..Limits::NONE });
    let device = member.device(&Uuid([0x44; 16])).expect("the slice has the device");
    let reader = Reader::open(&path, Trust::OwnerOnly).unwrap().expect("it is there");
    let now = reader.device(device.index()).unwrap().expect("it is there").read_at;
    member.settle(device, GpuTimeChange::charge(GpuTime::from_millis(50_000)), now);
    member.leave();
    ask(&["remove", &text]).code(1).complains(" owes GPU time, which its share pays in ");
    assert!(path.exists());
    ask(&["remove", &text, "--force"]).code(0).says("removed ");
    assert!(!path.exists());
}

#[test]
fn limits_that_sum_to_more_than_the_gpu_has_are_told_by_list_status_and_doctor() {
    let limits = Limits { memory: Some(12 * GIB), cores_permille: 600, ..Limits::NONE };
    // The slices are on a GPU of their own, so that slices of other tests do not count.
    let regions = ["first", "second", "third"].map(|of| RegionFile::of(&name(of)));
    let members: Vec<Member> = regions.iter().map(|region| join(&region.0, 0x45, limits)).collect();
    let gpu = "GPU-45454545-4545-4545-4545-454545454545";
    let memory = format!("{gpu}: memory limits of 3 slices sum to 36GiB of 16GiB; once the GPU is full,");
    let time = format!("{gpu}: shares of 3 slices sum to 180%; while all are busy,");
    for command in ["list", "status"] {
        ask(&[command]).code(0).complains(&memory).complains(&time);
        let report = json(&[command, "--json"]);
        let gpus = report["gpus"].as_array().expect("there are GPUs");
        let own = gpus.iter().find(|found| found["uuid"] == gpu).expect("it is reported");
        let sums = ["limit_sum", "share_permille_sum", "total"].map(|field| own[field].as_u64());
        assert_eq!(sums, [Some(36 * GIB), Some(1800), Some(16 * GIB)], "{own}");
    }
    let doctor = ask(&["doctor"]).out;
    let warning = |words: &str| doctor.lines().any(|line| line.contains("warning") && line.contains(words));
    assert!(warning(&memory) && warning(&time) && doctor.contains("gpuslice set SLICE --mem"), "{doctor}");
    // These quotas fit. A share under a policy is only an upper bound, so it does not count in the sum.
    let device = |member: &Member| member.device(&Uuid([0x45; 16])).expect("the slice has the device");
    let sharing = Sharing { policy: CorePolicy::Equal, ..Sharing::FIXED };
    for member in &members {
        member.set_limits(device(member), Limits { memory: Some(5 * GIB), sharing, ..limits });
    }
    for command in ["list", "status", "doctor"] {
        let ended = ask(&[command]);
        assert!(!ended.err.contains(gpu) && !ended.out.contains("shares of"), "{ended:?}");
    }
    // A slice without a process does not count in the sums.
    for member in &members {
        member.set_limits(device(member), limits);
    }
    for member in members {
        member.leave();
    }
    assert!(!ask(&["list", "--all"]).code(0).err.contains(gpu));
}

#[test]
fn a_slice_is_meant_by_the_number_of_a_process_in_it() {
    let slice = OwnSlice::join("by-process");
    let own = std::process::id().to_string();
    // This process is in the slices of other tests as well, so its number may lead to any of them.
    let pids = json(&["status", &own, "--json"])["slices"][0]["devices"][0]["processes"][0]["pid"].as_u64();
    assert_eq!(pids, Some(std::process::id().into()));
    // If a slice has the word as its name, the command takes that slice and not a process number.
    let name = format!("{own}-1");
    let region = RegionFile::of(&name);
    let _member = join(&region.0, 0x46, Limits::NONE);
    assert_eq!(json(&["status", &name, "--json"])["slices"][0]["name"], name.as_str());
    let mut gone = Command::new("true").spawn().expect("there is true");
    gone.wait().expect("it is our child");
    ask(&["status", &gone.id().to_string()]).code(1).complains("there is no slice");
    drop(slice);
}

#[test]
fn status_is_shown_again_and_again() {
    let slice = OwnSlice::join("watched");
    let mut watching = gpuslice(&["status", &slice.name, "--watch", "0.1"]);
    let mut watching = watching.stdout(Stdio::piped()).spawn().expect("gpuslice can be started");
    let mut out = BufReader::new(watching.stdout.take().expect("it is piped"));
    let device = slice.device(0x11);
    // Each report follows the last one and shows the current figures.
    for held in 1..4 {
        slice.member.reserve(device, GIB).expect("it fits");
        let mut line = String::new();
        while !line.contains(&format!("{held}.00 GiB used")) {
            line.clear();
            assert_ne!(out.read_line(&mut line).expect("it is text"), 0, "it ended");
            assert!(!line.contains('\x1b'), "{line:?}");
        }
    }
    // A reader that closes its end ends the command.
    drop(out);
    assert!(watching.wait().expect("it is our child").success());
    let mut terminal = Terminal::start(&mut gpuslice(&["status", &slice.name, "--watch=0.1"]));
    terminal.until("two reports", |_| terminal.raw().matches("\x1b[H\x1b[2J").count() > 2);
    terminal.shows("3.00 GiB used, limit 8GiB");
    terminal.press("\x03");
    assert_eq!(terminal.end().signal(), Some(2));
    ask(&["status", "--watch", &slice.name]).code(2).complains("name the slice before --watch");
    ask(&["status", "no-such-slice", "--watch"]).code(1).complains("there is no slice");
}
