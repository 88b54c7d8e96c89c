//! Tests that the commands of `gpuslice` act as their help says, seen from outside.

use crate::support::artefacts;
use crate::support::bench::Bench;
use crate::support::command::{GIB, OwnSlice, RegionFile, Running, ask, end, gpuslice, json, name};
use crate::support::living::send;
use crate::support::machine;
use crate::support::terminal::Terminal;
use gpuslice_policy::time::GpuTime;
use gpuslice_region::{Limits, Member, Trust};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

fn start(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("gpuslice can be started");
    let out = child.stdout.take().expect("it is piped");
    (child, BufReader::new(out))
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in ["run", "list", "status", "top", "set", "remove", "demo", "completions", "man"] {
        ask(&[command, "--help"]).code(0).says("Example").says("Usage: gpuslice");
    }
    let all = ask(&["--help"]).code(0).says("Examples:").says("list");
    assert!(!all.out.contains("demo-worker"), "{all:?}");
    for flag in ["--version", "-V", "-v"] {
        ask(&[flag]).code(0).says("gpuslice 0");
    }
    ask(&["help"]).code(0).says("Examples:").says("list");
    assert_eq!(ask(&["help", "set"]).code(0).out, ask(&["set", "--help"]).out);
    ask(&["help", "sett"]).code(2).complains("sett");
    ask(&["completions", "bash"]).code(0).says("complete -F _gpuslice");
}

#[test]
fn wrong_arguments_end_with_2_and_show_the_right_ones() {
    for (arguments, words) in [
        (&["run", "--mem", "4 apples", "true"][..], "write it like 4GiB"),
        (&["run", "--mem", "0", "true"], "a quota of nothing"),
        (&["run", "--cores", "101", "true"], "a number from 1 to 100 like 30 or 12.5"),
        (&["run", "--cores", "0", "true"], "a number from 1 to 100"),
        (&["run", "--cores", "30%", "true"], "without a % sign"),
        (&["run", "--cores", "0=30,0=40", "true"], "name each device once"),
        (&["run", "--cores", "30", "--burst", "20", "true"], "write strict, latency or a duration like 20ms"),
        (&["run", "--burst", "20ms", "true"], "--mem <SIZE>"),
        (&["run", "--cores", "30", "--burst", "3600s", "true"], "at most 60s of GPU time"),
        (&["set", "x", "--burst", "60001ms"], "at most 60s of GPU time"),
        (&["set", "x", "--cores", "100.1"], "a number from 1 to 100"),
        (&["run", "--mem", "1g", "--name", "a/b", "true"], "letters, digits"),
        (&["run", "--mem", "1g", "--name", "7857", "true"], "its process number; add a letter"),
        (&["run", "--mem", "1g", "--name", "a", "--region", "/b", "true"], "cannot be used with"),
        (&["run", "--policy", "fair", "true"], "[possible values: fixed, equal, best-effort]"),
        (&["run", "--priority", "urgent", "true"], "[possible values: high, normal, low]"),
        (&["run", "--policy", "equal", "--weight", "1001", "true"], "write a whole number from 1 to 1000"),
        (&["run", "--weight", "5", "true"], "--mem <SIZE>"),
        (
            &["run", "--mem", "4096", "true"],
            "is 4096 bytes, less than any program needs; write 4096MiB if that is meant",
        ),
        (
            &["run", "--mem", "0=4GiB,1=8", "true"],
            "\"1=8\" is 8 bytes, less than any program needs; write 8GiB if",
        ),
        (
            &["set", "x", "--mem", "500000"],
            "is 500000 bytes, less than any program needs; write a unit, like 4GiB",
        ),
        (&["run", "--mem", "4 GiB", "true"], "has a space before its unit; write it without"),
        (&["run", "--cores", "12,5", "true"], "has a comma, which separates the items of a list; write 12.5"),
        (
            &["set", "x", "--mem", "0"],
            "a quota of nothing; write a size like 4GiB, or 100% for all that the device has",
        ),
        (&["set", "x", "--mem", "0=0%"], "\"0=0%\" is a quota of nothing; write a size like 4GiB, or 100%"),
        (&["run", "--mem", "1g", "--nmae", "x", "true"], "unexpected argument '--nmae' found"),
        (&["run", "--mem", "1g", "--nmae", "x", "true"], "'--name'"),
        (&["run", "--mem", "1g", "-x", "true"], "unexpected argument '-x' found"),
        (&["doctor", "--jsno"], "'--json'"),
        (&["status", "--over", "61"], "a number of seconds from 0.1 to 60, like 0.5 or 2, or 0 for no look"),
        (&["status", "--over", "0.01"], "a number of seconds from 0.1 to 60"),
        (&["status", "--over", "1s"], "a number of seconds from 0.1 to 60"),
        (&["status", "--over", "-1"], "a number of seconds from 0.1 to 60, like 0.5 or 2, or 0 for no look"),
        (&["top", "--interval", "-0.5"], "a number of seconds from 0.1 to 60"),
        (&["set", "x", "--mem", "-1"], "write it like 4GiB"),
        (&["set", "x", "--cores", "-12.5"], "a number from 1 to 100"),
        (&["set", "x", "--burst", "-1"], "write strict, latency or a duration like 20ms"),
        (&["set", "x", "--weight", "-1"], "write a whole number from 1 to 1000"),
        (&["run", "--mem", "-1", "true"], "write it like 4GiB"),
        (&["run", "--cores", "-1", "true"], "a number from 1 to 100"),
        (&["run", "--cores", "30", "--burst", "-1", "true"], "write strict, latency or a duration like 20ms"),
        (&["run", "--policy", "equal", "--weight", "-1", "true"], "write a whole number from 1 to 1000"),
        (&["demo", "--seconds", "-1"], "a whole number from 2 to 3600"),
        (&["doctor", "--timeout", "-1"], "a whole number from 1 to 600"),
        (&["set", "x", "--weight", "0"], "write a whole number from 1 to 1000"),
        (&["set", "x", "--policy", "none"], "[possible values: fixed, equal, best-effort]"),
        (&["run", "true"], "--mem <SIZE>"),
        (&["run", "--mem", "1g"], "<CMD>..."),
        (&["set", "x"], "--mem <SIZE>"),
        (&["demo", "--seconds", "0"], "a whole number from 2 to 3600"),
        (&["lst"], "a similar subcommand exists"),
    ] {
        assert_eq!(ask(arguments).code(2).complains(words).out, "");
    }
}

#[test]
fn a_slice_is_listed_while_its_program_runs_and_gone_afterwards() {
    let name = name("listed");
    let region = RegionFile::of(&name);
    let running = Running::start(&["run", "--mem", "64MiB", "--name", &name]);
    let list = ask(&["list"]).code(0);
    let row = list.out.lines().find(|line| line.contains(&name)).expect("it is listed");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((words[0], words[5]), (name.as_str(), "64MiB"), "{row}");
    ask(&["status", &name]).code(0).says("demo-worker --seed 1").says("limit 64MiB");
    running.finish().code(0);
    assert!(!region.0.exists());
    ask(&["status", &name]).code(1).complains("there is no slice");
}

#[test]
fn status_shows_the_figures_of_the_region_to_the_byte() {
    let slice = OwnSlice::join("figures");
    slice.member.reserve(slice.device(0x11), 3 * GIB + 1).expect("it fits");
    slice.member.count_quota_denial(slice.device(0x11));
    let report = json(&["status", &slice.name, "--json"]);
    let device = report.pointer("/slices/0/devices/0").expect("there is a device");
    for (pointer, value) in [
        ("/uuid", Value::from("GPU-11111111-1111-1111-1111-111111111111")),
        ("/total", (16 * GIB).into()),
        ("/limit", (8 * GIB).into()),
        ("/held", (3 * GIB + 1).into()),
        ("/refused", 1.into()),
        ("/processes/0/pid", std::process::id().into()),
        ("/processes/0/held", (3 * GIB + 1).into()),
        ("/processes/0/refused", 1.into()),
    ] {
        assert_eq!(device.pointer(pointer), Some(&value), "{pointer}");
    }
    assert!(
        device.pointer("/processes/0/command").is_some_and(|command| command.to_string().contains("/cli-"))
    );
    assert_eq!(report.pointer("/slices/0/devices/1/limit"), Some(&Value::Null));
    ask(&["status", &slice.name])
        .code(0)
        .says("memory  3.00 GiB used, limit 8GiB, ")
        .says("1 denied (quota)")
        .says("0 B used, no limit, ");
}

#[test]
fn set_takes_effect_while_the_slice_lives() {
    let slice = OwnSlice::join("set");
    let device = slice.device(0x11);
    slice.member.reserve(device, 2 * GIB).expect("it fits");
    ask(&["set", &slice.name, "--mem", "0=3GiB"]).code(0).says("8GiB -> 3GiB");
    assert_eq!((slice.limit(0x11), slice.limit(0x22)), (Some(3 * GIB), None));
    slice.member.reserve(device, GIB).expect("it fits");
    slice.member.reserve(device, 1).expect_err("it does not fit");
    ask(&["set", &slice.name, "--mem", "GPU-2222=25%"]).code(0).says("none -> 4GiB");
    assert_eq!((slice.limit(0x11), slice.limit(0x22)), (Some(3 * GIB), Some(4 * GIB)));
    ask(&["set", &slice.name, "--mem", "1GiB"]).code(0).says("it holds 3.00 GiB");
    let region = slice.member.path().display().to_string();
    ask(&["set", &region, "--mem", "99TiB"]).code(0).complains("is more than device");
    assert_eq!(slice.limit(0x11), Some(16 * GIB));
}

#[test]
fn set_refuses_an_impossible_change_and_changes_nothing() {
    let slice = OwnSlice::join("refused");
    for arguments in [
        &["--mem", "7=1GiB"][..],
        &["--mem", "0=2GiB,7=1GiB"],
        &["--cores", "7=50"],
        &["--mem", "1GiB", "--cores", "7=50,GPU-11=30"],
    ] {
        let all = [&["set", &slice.name], arguments].concat();
        ask(&all).code(1).complains("names 7, which is no device of the slice");
    }
    assert_eq!((slice.limit(0x11), slice.limit(0x22)), (Some(8 * GIB), None));
    assert_eq!((slice.share(0x11), slice.share(0x22)), (1000, 1000));
    ask(&["set", "no-such-slice", "--mem", "1g"]).code(1).complains("there is no slice");
    // The region is not in the folder of `run`: `list` removes a region of `run` in which no process lives.
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let region = folder.path().join("region");
    Member::join(&region, Trust::OwnerOnly, &[]).expect("the slice can be joined").0.leave();
    ask(&["set", &region.display().to_string(), "--mem", "1g"]).code(1).complains("no process lives");
    let _member = Member::join(&region, Trust::OwnerOnly, &[]).expect("the slice can be joined");
    ask(&["set", &region.display().to_string(), "--mem", "1g"]).code(1).complains("has no device yet");
}

#[test]
fn two_commands_that_change_a_slice_at_once_undo_nothing_of_each_other() {
    let slice = OwnSlice::join("at-once");
    let mut waiting = None;
    slice
        .member
        .change_limits(|view| {
            // Meanwhile another command changes another limit and has to wait.
            let other = waiting.get_or_insert_with(|| {
                gpuslice(&["set", &slice.name, "--weight", "7", "--policy", "equal"])
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("gpuslice can be started")
            });
            let end = Instant::now() + Duration::from_millis(500);
            while Instant::now() < end && other.try_wait().expect("it is our child").is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            Some(Limits { memory: Some(GIB), ..view.limits })
        })
        .expect("they can be changed");
    let ended = waiting.expect("it was started").wait_with_output().expect("it is our child");
    assert!(ended.status.success(), "{ended:?}");
    for number in [0x11, 0x22] {
        let limits = slice.member.limits(slice.device(number));
        assert_eq!((limits.memory, limits.sharing.weight), (Some(GIB), 7), "{limits:?}");
    }
    assert!(String::from_utf8_lossy(&ended.stdout).contains("weight 100 -> 7"), "{ended:?}");
}

#[test]
fn a_value_that_changes_nothing_for_now_is_set_and_said_to() {
    let slice = OwnSlice::join("idle-values");
    let name = slice.name.as_str();
    let idle = |arguments: &[&str]| ask(&[&["set", name], arguments].concat()).code(0).err;
    let (weight, burst) =
        ("a weight has no effect under policy fixed", "a burst has no effect on a slice that has all");
    for (arguments, said) in [
        (&["--weight", "300"][..], Some(weight)),
        (&["--burst", "50ms"], Some(burst)),
        (&["--cores", "30", "--burst", "50ms"], None),
        (&["--cores", "1=100", "--burst", "60ms"], None),
        (&["--policy", "equal", "--weight", "200"], None),
        (&["--cores", "100", "--burst", "latency"], None),
        (&["--policy", "fixed", "--weight", "100"], Some(weight)),
    ] {
        let err = idle(arguments);
        assert_eq!(err.lines().count(), usize::from(said.is_some()), "{arguments:?}: {err}");
        assert!(said.is_none_or(|words| err.starts_with("gpuslice: ") && err.contains(words)), "{err}");
    }
    let limits = slice.member.limits(slice.device(0x11));
    assert_eq!((limits.sharing.weight, limits.burst), (100, GpuTime::from_millis(200)));
}

#[test]
fn a_file_that_is_no_region_is_named_and_stops_no_list() {
    let region = RegionFile::of(&name("damaged"));
    std::fs::write(&region.0, "something else").expect("it can be written");
    let path = region.0.display().to_string();
    ask(&["status", &path]).code(1).complains(&path);
    ask(&["list"]).code(0).says("NAME").complains(&path);
}

#[test]
fn names_of_other_users_files_do_not_steer_the_terminal() {
    let evil = name("evil-\x1b]0;owned\x07\u{202e}\u{9b}2J");
    let damaged = RegionFile::of(&format!("{evil}-damaged"));
    std::fs::write(&damaged.0, "something else").expect("it can be written");
    let region = RegionFile::of(&format!("{evil}-region"));
    let _member = Member::join(&region.0, Trust::OwnerOnly, &[]).expect("the slice can be joined");
    let (damaged, region) = (damaged.0.display().to_string(), region.0.display().to_string());
    let shown = "evil-?]0;owned??";
    for (arguments, code) in [
        (&["list"][..], 0),
        (&["status", &damaged], 1),
        (&["set", &region, "--mem", "1g"], 1),
        (&["status", "no-such-slice"], 1),
    ] {
        let ended = ask(arguments).code(code).complains("");
        assert!(ended.err.contains(shown) || arguments.contains(&"no-such-slice"), "{ended:?}");
        let steers = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!ended.out.contains(steers) && !ended.err.contains(steers), "{ended:?}");
    }
}

#[test]
fn the_demo_shows_its_promised_results_in_80_columns_and_leaves_nothing() {
    let _alone = machine();
    let (mut child, mut out) = start(gpuslice(&["demo", "--simulated", "--seconds", "4"]));
    let mut said = String::new();
    out.read_to_string(&mut said).expect("it is text");
    assert!(child.wait().expect("it is our child").success(), "{said}");
    for words in [
        "red's 3 programs took 8.00 GiB of 8.00 GiB\n",
        "blue's program asked for 1.00 GiB and died: CUDA_ERROR_OUT_OF_MEMORY\n",
        "red held 4.00 GiB at most, of 4.00 GiB; the GPU counted 4.00 GiB\n",
        "blue held 1.00 GiB at most, of 2.00 GiB; the GPU counted 1.00 GiB\n",
        "red's new quota of 5.00 GiB was used at once: 5.00 GiB at most\n",
    ] {
        assert!(said.contains(words), "{words} is missing in {said}");
    }
    assert!(said.ends_with("demo passed\n"), "{said}");
    let long = said.lines().find(|line| line.chars().count() > 80 && !line.contains(" LD_LIBRARY_PATH="));
    assert_eq!(long, None);
    // The program under NEXT must exist, because frameworks do not run on the simulated GPU.
    let next = said.split("\nNEXT\n").nth(1).expect("it says what is next").replace("\\\n", "");
    let run =
        next.lines().find(|line| line.starts_with("  gpuslice run ")).expect("it says how to run a program");
    assert!(Path::new(run.rsplit(' ').next().expect("a program")).is_file(), "{said}");
    let summary = said.lines().rev().take_while(|line| !line.is_empty()).count();
    assert!(summary < 24, "{summary} lines do not fit a screen: {said}");
    assert_eq!(left_of_demo(child.id()), Vec::<PathBuf>::new());
}

#[test]
fn the_demo_on_a_narrow_terminal_redraws_its_figures_and_ends_with_a_screen_that_says_all() {
    let _alone = machine();
    let mut demo = gpuslice(&["demo", "--simulated", "--seconds", "4"]);
    let mut terminal = Terminal::sized(demo.env("TERM", "xterm-256color"), (80, 24));
    let is_whole = |screen: &str| {
        let rows: Vec<&str> =
            screen.lines().filter(|line| line.contains("of 30%") || line.contains("of 70%")).collect();
        let is_row = |row: &&str| {
            row.contains("GiB  of ") && row.trim_end().ends_with(|last: char| last.is_ascii_digit())
        };
        let titles = screen.lines().filter(|line| line.starts_with("slice")).count();
        titles == 1 && rows.len() == 2 && rows.iter().all(is_row)
    };
    terminal.until("one table of two rows", is_whole);
    terminal
        .until("the same while it is redrawn", |screen| is_whole(screen) && screen.contains("$ kill -KILL"));
    let parts = ["WITHOUT gpuslice\n", "demo passed", "NEXT\n"];
    terminal.until("a last screen with all parts", |screen| parts.iter().all(|part| screen.contains(part)));
    assert!(terminal.end().success());
}

#[test]
fn a_program_of_the_demo_leaves_memory_to_its_siblings_until_all_have_started() {
    let bench = Bench::simulated_without_contexts();
    let program = Path::new(env!("CARGO_BIN_EXE_gpuslice"));
    let mut greedy = bench.program(program, &["demo-worker", "--greedy"]).start();
    assert_eq!(greedy.hear().as_deref(), Some("ready"));
    assert_eq!(bench.truth(0).held, 0);
    greedy.order("");
    let counts = greedy.hear().expect("it counts what it was granted and refused");
    assert!(counts.ends_with(" 1"), "{counts}");
    assert_eq!(bench.truth(0).held, 1 << 30, "all of the device");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let _alone = machine();
    for moment in ["WITHOUT", " s  blue"] {
        let (mut child, mut out) = start(gpuslice(&["demo", "--simulated"]));
        let mut line = String::new();
        while !line.contains(moment) {
            line.clear();
            assert_ne!(out.read_line(&mut line).expect("it is text"), 0, "the demo ended");
        }
        send(child.id(), libc::SIGINT);
        std::io::copy(&mut out, &mut std::io::sink()).expect("it can be read");
        assert_eq!(child.wait().expect("it is our child").signal(), Some(2));
        assert_eq!(left_of_demo(child.id()), Vec::<PathBuf>::new());
    }
}

#[test]
fn the_demo_knows_the_simulated_gpu_by_its_driver() {
    let _alone = machine();
    let (mut child, mut out) = start({
        let mut demo = gpuslice(&["demo"]);
        demo.env("LD_LIBRARY_PATH", artefacts::simulated_driver());
        demo
    });
    let mut line = String::new();
    out.read_line(&mut line).expect("it is text");
    assert!(line.contains("share a simulated GPU (LD_LIBRARY_PATH names its driver)"), "{line}");
    send(child.id(), libc::SIGTERM);
    std::io::copy(&mut out, &mut std::io::sink()).expect("it can be read");
    assert_eq!(child.wait().expect("it is our child").signal(), Some(15));
}

#[test]
fn the_demo_fails_where_nothing_enforces_a_quota() {
    let idle = artefacts::system_object("libm.so.6").expect("every system has it");
    let mut demo = gpuslice(&["demo", "--simulated", "--seconds", "2"]);
    end(demo.env("GPUSLICE_LIB", idle)).code(1).complains("without a quota");
}

/// Returns files and processes that the demo left behind. The names of its regions and of its state contain its number.
fn left_of_demo(process: u32) -> Vec<PathBuf> {
    let entries =
        |folder: &str| std::fs::read_dir(folder).expect("it can be read").flatten().map(|file| file.path());
    let number = process.to_string();
    let own = |text: &str| text.contains("demo-") && text.split(['-', '\0']).any(|part| part == number);
    let environment = |path: &Path| std::fs::read(path.join("environ")).unwrap_or_default();
    let files = entries("/dev/shm").filter(|path| own(&path.to_string_lossy()));
    files.chain(entries("/proc").filter(|path| own(&String::from_utf8_lossy(&environment(path))))).collect()
}
