//! The region of a slice: its place, its owner, and the end of the last program in it.

use super::{around, line, soon, start};
use crate::support::command::{OwnSlice, PROGRAM, RegionFile, Running, ask, end, gpuslice, json, name};
use crate::support::other_user::{NOBODY, OtherUser};
use crate::support::outcome::is_refusal;
use crate::support::{artefacts, compiler, executable, skip};
use gpuslice_region::{Member, Trust};
use std::fs;
use std::io::{BufReader, Read as _};
use std::os::unix::fs::{chown, lchown, symlink};
use std::process::Stdio;

#[test]
fn programs_under_one_name_are_one_slice_and_the_last_takes_the_region_along() {
    let name = name("shared");
    let region = RegionFile::of(&name);
    let [first, second] = [(); 2].map(|()| Running::start(&["run", "--mem", "64MiB", "--name", &name]));
    let report = json(&["status", "--json", &name]);
    assert_eq!(report.pointer("/slices/0/processes"), Some(&2.into()), "{report}");
    first.finish().code(0).complains("1 process still runs in the slice");
    second.finish().code(0);
    assert!(!region.0.exists());
}

#[test]
fn a_region_stays_for_a_child_that_outlives_the_command_and_goes_with_it() {
    for (number, cleaner) in [&["list"][..], &["run", "--mem", "1g", "--", "true"]].into_iter().enumerate() {
        let name = name(&format!("outlives-{number}"));
        let region = RegionFile::of(&name);
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
        // The program ends when the test writes the gate. Its child ends when its standard input closes.
        let program = r#"exec 3<&0; "$0" demo-worker --seed 1 <&3 & until [ -e "$1" ]; do sleep 0.02; done"#;
        let gate = folder.path().join("gate");
        let mut run =
            gpuslice(&["run", "--mem", "64MiB", "--name", &name, "--", "sh", "-c", program, PROGRAM]);
        run.arg(&gate).env("LD_LIBRARY_PATH", artefacts::simulated_driver());
        run.env("SIMGPU_STATE", folder.path().join("state")).env("SIMGPU_CONTEXT_BYTES", "0");
        run.stdin(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, mut out) = start(run);
        assert!(line(&mut out).contains(' '), "the program does not work");
        fs::write(gate, "").expect("it can be written");
        // `wait` would close the standard input that the child reads.
        let mut status = None;
        assert!(soon(|| {
            status = child.try_wait().expect("it is our child");
            status.is_some()
        }));
        assert_eq!(status.and_then(|status| status.code()), Some(0));
        // The worker allocates until its quota is full.
        let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let said = [line(&mut errors), line(&mut errors)].concat();
        assert!(is_refusal(&said), "{said}");
        assert!(said.contains("stays: 1 process still runs in the slice"), "{said}");
        ask(cleaner).code(0);
        assert!(region.0.exists());
        ask(&["list"]).code(0).says(&name);
        drop(child.stdin.take());
        out.read_to_string(&mut String::new()).expect("it is text");
        assert!(soon(|| {
            ask(cleaner).code(0);
            !region.0.exists()
        }));
    }
}

#[test]
fn the_region_of_a_killed_run_is_removed_when_its_program_has_ended() {
    for (number, cleaner) in [&["status"][..], &["run", "--mem", "1g", "--", "true"]].into_iter().enumerate()
    {
        let name = name(&format!("orphan-{number}"));
        let region = RegionFile::of(&name);
        let mut running = Running::start(&["run", "--mem", "64MiB", "--name", &name]);
        let input = running.child.stdin.take();
        running.child.kill().expect("it is our child");
        running.child.wait().expect("it is our child");
        ask(cleaner).code(0);
        assert!(region.0.exists(), "its program lives");
        drop(input);
        running.out.read_to_string(&mut String::new()).expect("it is text");
        assert!(soon(|| {
            ask(cleaner).code(0);
            !region.0.exists()
        }));
    }
}

#[test]
fn a_named_region_is_removed_by_its_maker_and_by_no_other() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let region = folder.path().join("region");
    let path = region.display().to_string();
    let run = || Running::start(&["run", "--mem", "64MiB", "--region", &path]);
    run().finish().code(0);
    assert!(!region.exists(), "run has made it");
    Member::join(&region, Trust::OwnerOnly, &[]).expect("it can be made").0.leave();
    let running = run();
    ask(&["status", &path]).code(0).says("limit 64MiB");
    running.finish().code(0);
    assert!(region.exists(), "it was there before");
    ask(&["list"]).code(0);
    assert!(region.exists(), "list removes no region that was named");
}

#[test]
fn a_name_under_which_somebody_else_has_put_a_region_is_refused() {
    let name = name("foreign");
    let slice = OwnSlice::join("foreign");
    let region = &slice.region.0;
    if chown(region, Some(NOBODY), Some(NOBODY)).is_err() {
        return skip(
            "a region that another user made: needs root, to give a file away; to mend it: run the tests as root",
        );
    }
    let run = ["run", "--mem", "1g", "--name", &name, "--", "echo", "started"];
    let ended = ask(&run)
        .code(125)
        .complains("belongs to user 65534")
        .complains("have that user or root remove the file");
    assert_eq!(ended.out, "");
    // A link of that user to a region of this user belongs to that user, too.
    let elsewhere = region.with_extension("elsewhere");
    fs::rename(region, &elsewhere).expect("it is there");
    let elsewhere = RegionFile(elsewhere);
    chown(&elsewhere.0, Some(0), Some(0)).expect("this is root");
    symlink(&elsewhere.0, region).expect("a link can be made");
    lchown(region, Some(NOBODY), Some(NOBODY)).expect("this is root");
    ask(&run).code(125).complains("belongs to user 65534");
    // `run` trusts a region of root. The library finds out whether this user may write to it.
    let Some(other) = OtherUser::new("a region of root under a user's name") else { return };
    let roots = RegionFile(format!("/dev/shm/gpuslice-{NOBODY}-run-{name}").into());
    fs::write(&roots.0, "").expect("it can be written");
    other.ask(&run).code(0).says("started");
}

#[test]
fn a_slice_in_a_slice_is_another_one() {
    let line =
        r#"echo $GPUSLICE_REGION; "$0" run --mem 32MiB -- sh -c 'echo $GPU_MEM_LIMIT $GPUSLICE_REGION'"#;
    let ended = ask(&["run", "--mem", "64MiB", "--", "sh", "-c", line, PROGRAM]).code(0);
    let (outer, inner) = ended.out.trim_end().split_once('\n').expect("two lines");
    assert!(inner.starts_with("32MiB /dev/shm/gpuslice-") && !inner.ends_with(outer), "{ended:?}");
    assert_eq!(ended.err, "", "the outer slice has no process that uses CUDA, and so no region");
    let outer = OwnSlice::join("outer");
    let mut run = gpuslice(&["run", "--mem", "32MiB", "--", "true"]);
    end(run.env("GPUSLICE_REGION", &outer.region.0)).code(0).complains("the limits of the two add up");
    let mut run = gpuslice(&["run", "--mem", "32MiB", "--name", &outer.name, "--", "true"]);
    let ended = end(run.env("GPUSLICE_REGION", &outer.region.0)).code(0);
    assert!(!ended.err.contains("add up"), "it is in that slice: {ended:?}");
}

#[test]
fn settings_that_limit_nothing_now_make_a_slice_all_the_same() {
    for limit in [["--cores", "100"], ["--policy", "fixed"], ["--priority", "normal"]] {
        let name = name(limit[1]);
        let running = Running::start(&["run", limit[0], limit[1], "--name", &name]);
        ask(&["set", &name, "--mem", "32MiB"]).code(0).says("none -> 32MiB");
        running.finish().code(0);
        assert!(!RegionFile::of(&name).0.exists());
    }
    let name = name("team");
    let first = Running::start(&["run", "--mem", "64MiB", "--name", &name]);
    let second = Running::start(&["run", "--cores", "100", "--name", &name]);
    assert_eq!(json(&["status", &name, "--json"]).pointer("/slices/0/processes"), Some(&2.into()));
    second.finish().code(0);
    first.finish().code(0);
}

#[test]
fn the_slice_of_an_operators_file_is_that_of_every_program() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let [region, file] = ["operators", "config"].map(|name| folder.path().join(name));
    fs::write(&file, format!("GPUSLICE_REGION={}\nGPU_MEM_LIMIT=4GiB\n", region.display()))
        .expect("it can be written");
    let as_there = |arguments: &[&str]| {
        let mut command = gpuslice(arguments);
        command.env("GPUSLICE_CONFIG", &file).env("GPUSLICE_REGION", "/nowhere/region");
        end(&mut command)
    };
    let shown = as_there(&["run", "--cores", "30", "--", "sh", "-c", "echo $GPUSLICE_REGION"]).code(0);
    assert_eq!(shown.out.trim_end(), region.display().to_string());
    for other in [["--name", "x"], ["--region", "/dev/shm/x"]] {
        let run = [&["run", "--cores", "30"], &other[..], &["--", "true"]].concat();
        as_there(&run).code(125).complains("leave --name and --region out");
    }
    as_there(&["run", "--cores", "30", "--region", &region.display().to_string(), "--", "true"]).code(0);
    let (_member, _) = Member::join(&region, Trust::OwnerOnly, &[]).expect("it can be made");
    as_there(&["list"]).code(0).says("operators");
    as_there(&["status", "operators"]).code(0).says(&region.display().to_string());
    as_there(&["run", "--cores", "30", "--", "true"]).code(0);
    assert!(region.exists(), "it is the operator's");
}

/// A log-out on a machine with systemd, in namespaces of its own. A user runs a slice, logind cleans up after the last log-out,
/// and the script lists what is left. `$0` is `gpuslice`, in a folder with everything that the user needs. The mounts would hide
/// that folder, so the script copies it to `/run`. `$1` is the mode of `/tmp`, which is in memory. If not every user may write
/// to this `/tmp`, `run` puts no region there, as with a `/tmp` on a disk.
const LOG_OUT: &str = r#"
    mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && cp -a "${0%/*}" /run/programs || exit 77
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount -t tmpfs -o mode=$1 tmpfs /tmp || exit 77
    cd /run/programs && export LD_LIBRARY_PATH=$PWD SIMGPU_STATE=/dev/shm/state
    as() { setpriv --reuid 12345 --regid 12345 --clear-groups "$@"; }
    as ./gpuslice run --name kept --cores 1 -- ./brief 50ms wait || exit 78
    ls /dev/shm/gpuslice-* /tmp/gpuslice-* 2>/dev/null
    find /dev/shm -mindepth 1 '(' -uid 12345 -o -gid 12345 ')' -delete
    as ./gpuslice list --all | cut -d ' ' -f 1
"#;

#[test]
fn a_region_is_where_it_outlives_a_log_out() {
    let Some(user) = OtherUser::new("a log-out") else { return };
    executable::copy(compiler::plain("brief"), user.path("brief"), 0o755);
    let program = user.path("gpuslice");
    for (tmp, expected) in [
        ("1777", "/tmp/gpuslice-12345-run-kept\nNAME\nkept\n"),
        ("755", "/dev/shm/gpuslice-12345-run-kept\nNAME\n"),
    ] {
        let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", LOG_OUT, &program, tmp];
        let ended = end(&mut around(&words));
        if ended.status.code() == Some(77) || ended.err.contains("unshare:") || ended.err.contains("setpriv:")
        {
            return skip("a log-out: run the tests as root, with CAP_SYS_ADMIN and setpriv");
        }
        assert_eq!(ended.out, expected, "{ended:?}");
    }
}
