//! `gpuslice top`: shows the figures of regions, changes limits, and leaves every terminal as it was.
//!
//! The program runs in a pseudo-terminal. A terminal emulator reads the screen that its user sees.
//!
//! It is a binary of its own. Some tests suspend the program, perhaps while it holds the lock of another test's region.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, reason = "a test")]

mod endings;
#[path = "../support/mod.rs"]
mod support;

use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_region::{Limits, Sharing};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use support::command::{GIB, OwnSlice, PROGRAM, RegionFile, ask, end, gpuslice, name};
use support::other_user::{OtherUser, is_root};
use support::terminal::Terminal;
use support::timed::within;
use support::{artefacts, skip};

const USUAL: (u16, u16) = (80, 24);

/// Starts a program with a terminal, and with an environment of `PATH`, `TERM`, `LANG` and `variables`.
fn sit(program: &str, arguments: &[&str], size: (u16, u16), variables: &[(&str, &str)]) -> Terminal {
    let usual = [("PATH", "/usr/bin:/bin"), ("TERM", "xterm-256color"), ("LANG", "C.UTF-8")];
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(usual).envs(variables.iter().copied());
    Terminal::sized(&mut command, size)
}

fn top(arguments: &[&str], size: (u16, u16)) -> Terminal {
    sit(PROGRAM, &[&["top"], arguments].concat(), size, &[])
}

/// Starts `top` on one slice, with ten looks a second.
fn watch(slice: &OwnSlice, size: (u16, u16)) -> Terminal {
    top(&[&slice.name, "--interval", "0.1"], size)
}

/// Makes a folder of the test's own. The region of a slice that ends lies in one, because commands of other tests remove unused
/// regions from the usual folder.
fn own_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder can be made")
}

/// Makes a slice in which most figures have a value.
fn telling(of: &str) -> OwnSlice {
    let slice = OwnSlice::join(of);
    let (device, member) = (slice.device(0x11), &slice.member);
    let sharing = Sharing { policy: CorePolicy::BestEffort, priority: Priority::High, weight: 250 };
    let limits = member.limits(device);
    member.set_limits(device, Limits { cores_permille: 300, sharing, ..limits });
    member.reserve(device, 6 * GIB).expect("it fits");
    assert_eq!(member.refund(device, 3 * GIB), 0);
    member.count_throttled(device, WallTime::from_millis(3_100));
    member.set_queued(device, GpuTime::from_millis(12));
    member.count_quota_denial(device);
    member.count_device_denial(device);
    member.count_device_denial(device);
    member.spill(device, GIB / 2);
    member.begin_context(device, GIB / 4);
    slice
}

#[test]
fn every_size_shows_the_figures_that_it_has_room_for() {
    let slice = telling("figures");
    for (size, figures) in [
        (
            (80, 24),
            &["11111111-1111-1111-1111-111111111111", "peak 6.00 GiB", "throttled 3.10 s", "priority high"][..],
        ),
        ((40, 10), &["GPU-11111111  "]),
        (
            (200, 50),
            &["LAST MINUTE", "peak 6.00 GiB  throttled 3.10 s  12.00 ms queued", "GPU-22222222-2222"],
        ),
    ] {
        let terminal = watch(&slice, size);
        let always = ["3.00 GiB/8GiB", "/30%", "denied 1", "device full 2", "spilled 512.00 MiB", "q quit"];
        let more =
            ["12.00 ms queued", "contexts 256.00 MiB", "policy best-effort", "weight 250", "processes 1"];
        for figure in figures.iter().copied().chain(always).chain(more) {
            terminal.shows(figure);
        }
        assert!(terminal.widest() <= size.0.into() && terminal.is_alternate(), "{}", terminal.screen());
    }
}

#[test]
fn a_filter_shows_slices_by_their_names_and_escape_shows_all() {
    let (red, web) = (OwnSlice::join("red"), OwnSlice::join("web"));
    // Slices of other tests are shown as well.
    let mut terminal = top(&["--interval", "0.1"], (120, 400));
    terminal.shows(&red.name);
    terminal.shows("/ filter");
    terminal.press("/-WEB");
    terminal.shows("in their names (Esc: all): -WEB_");
    terminal.lacks(&red.name);
    terminal.shows(&web.name);
    terminal.press("\r");
    terminal.shows("only *-WEB*");
    terminal.press("/-none");
    terminal.shows("no slice has \"-WEB-none\" in its name; Esc shows all");
    terminal.press("\x1b");
    terminal.shows(&red.name);
    terminal.press("q");
}

#[test]
fn recent_use_is_shown_with_its_history_and_by_process() {
    let slice = telling("lately");
    let device = slice.device(0x11);
    let mut terminal = watch(&slice, (120, 24));
    terminal.shows("0%/30%");
    let start = Instant::now();
    let mut charged = 0;
    let mut charge = || {
        // A quarter of the passing time is charged.
        let due = u64::try_from(start.elapsed().as_nanos()).expect("it is short") / 4;
        slice.member.count_used(device, GpuTime::from_nanos(due - charged));
        charged = due;
    };
    let used = |screen: &str| {
        let row = screen.lines().find(|line| line.contains("/30%")).unwrap_or_default();
        let word = row.split_whitespace().find_map(|word| word.strip_suffix("%/30%"));
        word.and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let is_seen = |screen: &str| (15.0..35.0).contains(&used(screen)) && screen.contains('▇');
    terminal.until("a quarter of the time, and its history", |screen| {
        charge();
        is_seen(screen)
    });
    terminal.press("\r");
    terminal.until("what the process uses", |screen| {
        charge();
        let own = std::process::id().to_string();
        let row = screen.lines().find(|line| line.trim_start().starts_with(&own)).unwrap_or_default();
        let mut words = row.split_whitespace();
        let used = words.nth(3).and_then(|word| word.strip_suffix('%')).and_then(|word| word.parse().ok());
        row.contains("3.00 GiB")
            && row.contains("top-")
            && used.is_some_and(|used| (15.0..35.0).contains(&used))
    });
    terminal.press("\x1b");
    terminal.lacks("COMMAND");
}

#[test]
fn a_user_that_may_only_read_a_region_watches_it_and_changes_nothing() {
    let slice = telling("read-only");
    let path = slice.region.0.display().to_string();
    let mode = fs::Permissions::from_mode(if is_root() { 0o644 } else { 0o444 });
    fs::set_permissions(&slice.region.0, mode).expect("it is ours");
    let mut terminal = if is_root() {
        let Some(other) = OtherUser::new("top of another user's slice") else { return };
        let mut command = other.gpuslice(&["top", &path]);
        Terminal::sized(command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8"), USUAL)
    } else {
        top(&[&path], USUAL)
    };
    terminal.shows("3.00 GiB/8GiB");
    terminal.press("m");
    terminal.press("\x151GiB\r");
    terminal.says("give this user the right to read and write it");
    assert_eq!(slice.limit(0x11), Some(8 * GIB));
    terminal.press("\x03");
    assert!(terminal.end().success());
}

#[test]
fn it_follows_the_size_of_its_terminal() {
    let slice = telling("resized");
    let mut terminal = watch(&slice, USUAL);
    terminal.shows("/30%");
    for (columns, rows) in [(40, 10), (200, 50), (10, 3), (1, 1), (80, 24)] {
        terminal.resize(columns, rows);
        terminal.until("the new size", |screen| {
            // The title is as wide as the screen. Inverse letters do not change the count of the lines.
            let first = screen.lines().next().unwrap_or_default().chars().count();
            let small = columns < 40;
            first <= columns.into()
                && (small || screen.contains("3.00 GiB/8GiB"))
                && screen.lines().count() <= rows.into()
        });
        assert!(terminal.is_running());
    }
    terminal.shows("every 0.1 s");
}

#[test]
fn slices_are_sorted_by_keys_and_the_selection_stays_with_its_slice() {
    let [few, many] = ["order-a", "order-b"].map(OwnSlice::join);
    few.member.reserve(few.device(0x11), GIB).expect("it fits");
    many.member.reserve(many.device(0x11), 2 * GIB).expect("it fits");
    // Other tests have slices at the same time, so there is room for all of them.
    let mut terminal = top(&["--interval", "0.1"], (160, 400));
    let order = |screen: &str, first: &OwnSlice, second: &OwnSlice| {
        // The group of the first GPU holds both slices.
        let place = |slice: &OwnSlice| screen.lines().position(|line| line.contains(&slice.name));
        place(first).zip(place(second)).is_some_and(|(first, second)| first < second)
    };
    terminal.until("by name", |screen| screen.contains("by name") && order(screen, &few, &many));
    terminal.press("s");
    terminal.until("by memory", |screen| screen.contains("by memory") && order(screen, &many, &few));
    terminal.press("r");
    terminal.until("reversed", |screen| screen.contains("by memory, reversed") && order(screen, &few, &many));
    terminal.press("s");
    terminal.shows("by time, reversed");
    terminal.press("rs");
    terminal.until("by name", |screen| screen.contains("by name  ") && order(screen, &few, &many));
    terminal.press("\x1b[H");
    terminal.until("the first is selected", |screen| {
        screen
            .lines()
            .filter(|line| !line.starts_with("GPU"))
            .nth(2)
            .is_some_and(|line| line.starts_with('>'))
    });
}

#[test]
fn limits_are_changed_while_the_slice_lives_and_seen_at_once() {
    let slice = OwnSlice::join("changed");
    // Two looks are 60 s apart, so a look that is due cannot show the change at once.
    let mut terminal = top(&[&slice.name, "--interval", "60"], USUAL);
    terminal.shows("0 B/8GiB");
    terminal.press("m");
    terminal.shows(&format!("memory limit (like 4GiB, 50%) of {}: 0=_", slice.name));
    terminal.press("6GiB\r");
    terminal.shows("8GiB -> 6GiB");
    terminal.shows("0 B/6GiB");
    assert_eq!((slice.limit(0x11), slice.limit(0x22)), (Some(6 * GIB), None));
    // This changes the second device.
    terminal.press("jc");
    terminal.shows("share in percent (1 to 100)");
    terminal.press("12.5\r");
    terminal.shows("100% -> 12.5% of its time");
    terminal.shows("/12.5%");
    assert_eq!((slice.share(0x11), slice.share(0x22)), (1000, 125));
    // This changes all devices.
    terminal.press("m\x1525%\r");
    terminal.shows("0 B/4GiB");
    assert_eq!((slice.limit(0x11), slice.limit(0x22)), (Some(4 * GIB), Some(4 * GIB)));
    terminal.press("m\x1599TiB\r");
    terminal.shows("is more than device");
    assert_eq!(slice.limit(0x11), Some(16 * GIB));
}

#[test]
fn a_wrong_value_is_refused_with_the_words_of_set_and_can_be_mended() {
    let slice = OwnSlice::join("wrong");
    let mut terminal = watch(&slice, USUAL);
    terminal.shows("0 B/8GiB");
    for (key, value, words) in [
        ("m", "4 apples", "write it like 4GiB"),
        ("m", "0", "a quota of nothing"),
        ("m", "7=1GiB", "\"7=1GiB\" names 7, which is no device of the slice"),
        ("c", "101", "a number from 1 to 100 like 30 or 12.5"),
        ("c", "30%", "without a % sign"),
        ("c", "0=30,0=40", "name each device once"),
    ] {
        terminal.press(&format!("{key}\x15{value}\r"));
        terminal.says(words);
        terminal.shows(&format!("{value}_"));
        assert_eq!((slice.limit(0x11), slice.share(0x11)), (Some(8 * GIB), 1000));
        terminal.press("\x1b");
        terminal.shows("q quit");
    }
    terminal.press("m\x150\r");
    terminal.shows("a quota of nothing");
    terminal.press("\x7f2GiB\r");
    terminal.shows("0 B/2GiB");
    assert_eq!(slice.limit(0x11), Some(2 * GIB));
}

#[test]
fn a_slice_may_end_and_come_back_while_it_is_selected() {
    let folder = own_folder();
    let slice = OwnSlice::join_in(folder.path());
    let mut terminal = watch(&slice, USUAL);
    terminal.shows("0 B/8GiB");
    terminal.press("\rm");
    terminal.shows("memory limit");
    let OwnSlice { member, name: _, region } = slice;
    member.leave();
    fs::remove_file(&region.0).expect("it is there");
    terminal.until("the end", |screen| screen.contains("is gone") && !screen.contains("COMMAND"));
    // Keys go on to the prompt. Escape leaves the prompt, not the program.
    terminal.shows("memory limit");
    terminal.press("6GiB\r");
    terminal.until("the refusal", |screen| screen.contains("is gone") && screen.contains("6GiB_"));
    terminal.press("\x1b");
    terminal.lacks("memory limit");
    terminal.press("mcs\r?\x1b\x1b");
    let back = OwnSlice::join_in(folder.path());
    terminal.shows("0 B/8GiB");
    back.member.reserve(back.device(0x11), GIB).expect("it fits");
    terminal.shows("1.00 GiB/8GiB");
}

#[test]
fn an_unused_slice_is_last_marked_and_removed_by_a_key() {
    let (folder, living) = (own_folder(), telling("living"));
    let OwnSlice { member, name: path, region } = OwnSlice::join_in(folder.path());
    member.leave();
    let terminal = sit(PROGRAM, &["top", "--interval", "0.1"], (160, 400), &[("GPUSLICE_REGION", &path)]);
    let row = "region  ";
    terminal.until("its mark", |screen| {
        let line = screen.lines().find(|line| line.contains(row)).unwrap_or_default();
        line.contains("unused: no process lives in it; x removes it") && screen.contains(&living.name)
    });
    // The slice has two rows, one for each GPU. Neither is selected, and `living` stands before them.
    let screen = terminal.screen();
    assert!(screen.find(&living.name) < screen.find(row), "{screen}");
    assert!(!screen.lines().any(|line| line.starts_with('>') && line.contains(row)), "{screen}");
    let mut terminal = watch_path(&region.0);
    terminal.shows("x removes it");
    terminal.press("jx");
    terminal.shows("removed ");
    assert!(!region.0.exists());
    let mut terminal = watch(&living, USUAL);
    terminal.shows("/30%");
    terminal.press("x");
    terminal.says("1 process lives in");
    assert!(living.region.0.exists());
}

/// Starts `top` on one region, with ten looks a second.
fn watch_path(path: &std::path::Path) -> Terminal {
    top(&[&path.display().to_string(), "--interval", "0.1"], USUAL)
}

#[test]
fn gpus_have_their_names_and_the_memory_used_outside_of_slices() {
    let folder = own_folder();
    let state = folder.path().join("state").display().to_string();
    let driver = artefacts::simulated_driver().display().to_string();
    let variables = [("LD_LIBRARY_PATH", driver.as_str()), ("SIMGPU_STATE", state.as_str())];
    // One program runs in a slice, and one runs without a limit.
    let start = |arguments: &[&str]| {
        let mut command = gpuslice(arguments);
        let work = if arguments.is_empty() { &["demo-worker"][..] } else { &["--", PROGRAM, "demo-worker"] };
        command.args(work).envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().expect("it can be started");
        let mut out = BufReader::new(program.stdout.take().expect("it is piped"));
        out.read_line(&mut String::new()).expect("it is text");
        (program, out)
    };
    let name = name("named");
    // A debt may keep the region for a while.
    let _region = RegionFile::of(&name);
    let mut programs = [start(&["run", "--mem", "1GiB", "--cores", "20", "--name", &name]), start(&[])];
    let arguments = ["top", &name, "--interval", "0.1"];
    let mut terminal = sit(PROGRAM, &arguments, (120, 24), &variables);
    for words in [
        "GPU 0  Simulated H100  GPU-",
        "  util ",
        " C",
        "slices use 530.00 MiB of 16GiB, ",
        "; outside 530.00 MiB, ",
    ] {
        terminal.shows(words);
    }
    // A program outside of slices runs while the slice waits.
    terminal.until("time outside", |screen| {
        let told = screen.split("; outside 530.00 MiB, ").nth(1).and_then(|rest| rest.split('%').next());
        told.and_then(|percent| percent.parse::<f64>().ok()).is_some_and(|percent| percent > 30.0)
    });
    terminal.press("q");
    assert!(terminal.end().success());
    terminal.is_as_before();
    for (program, _out) in &mut programs {
        drop(program.stdin.take());
        program.wait().expect("it is our child");
    }
}

#[test]
fn a_driver_that_hangs_does_not_hold_the_screen_up() {
    let slice = telling("hung");
    let folder = own_folder();
    let state = folder.path().join("state").display().to_string();
    let driver = artefacts::simulated_driver().display().to_string();
    let variables = [
        ("LD_LIBRARY_PATH", driver.as_str()),
        ("SIMGPU_STATE", &state),
        ("SIMGPU_FAULTS", "nvmlInit_v2=delay:600s"),
    ];
    // The program waits for NVML for five seconds.
    let terminal = within(Duration::from_secs(4), Duration::from_secs(1), || {
        let mut terminal = sit(PROGRAM, &["top", &slice.name, "--interval", "0.1"], USUAL, &variables);
        terminal.shows("3.00 GiB/8GiB");
        // The screen follows the region while NVML is asked.
        for held in ["4.00 GiB/8GiB", "5.00 GiB/8GiB"] {
            slice.member.reserve(slice.device(0x11), GIB).expect("it fits");
            terminal.shows(held);
        }
        terminal.press("?");
        terminal.shows("this help");
        terminal.press("qq");
        assert!(terminal.end().success());
        terminal
    });
    terminal.is_as_before();
}

#[test]
fn a_file_that_stops_being_a_region_is_reported_and_stops_nothing() {
    let folder = own_folder();
    let slice = OwnSlice::join_in(folder.path());
    let mut terminal = watch(&slice, (200, 24));
    terminal.shows("0 B/8GiB");
    let OwnSlice { member, name: _, region } = slice;
    member.leave();
    let path = &region.0;
    let size = fs::metadata(path).expect("it is there").len();
    fs::write(path, "something else").expect("it can be written");
    terminal.shows("begins with");
    fs::write(path, "").expect("it can be written");
    terminal.until("empty", |screen| screen.contains("region") && !screen.contains("something"));
    fs::File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(size))
        .expect("it can be made longer");
    terminal.shows("begins with");
    fs::remove_file(path).expect("it is there");
    fs::create_dir(path).expect("a folder can be made");
    terminal.shows("is a directory");
    fs::remove_dir(path).expect("it is there");
    terminal.shows("is gone; it is shown again");
    let back = OwnSlice::join_in(folder.path());
    terminal.shows("0 B/8GiB");
    drop(back);
    terminal.press("q");
    assert!(terminal.end().success());
    terminal.is_as_before();
}

#[test]
fn slices_that_storm_do_not_disturb_it() {
    let stable = telling("stable");
    let mut terminal = top(&["--interval", "0.1"], (120, 300));
    terminal.shows(&stable.name);
    let start = Instant::now();
    let mut round = 0_u32;
    while start.elapsed() < Duration::from_secs(3) {
        let slice = OwnSlice::join("storm");
        slice.member.reserve(slice.device(0x11), GIB).expect("it fits");
        let OwnSlice { member, name: _, region } = slice;
        match round % 4 {
            0 => member.leave(),
            1 => fs::File::options().write(true).open(&region.0).and_then(|file| file.set_len(100)).unwrap(),
            2 => fs::write(&region.0, vec![0xa5; 1 << 20]).unwrap(),
            _ => fs::remove_file(&region.0).unwrap(),
        }
        round += 1;
        thread::sleep(Duration::from_millis(7));
        terminal.press(["j", "k", "s", "\r", "\x1b[B", "?", "G", "\r"][usize::try_from(round % 8).unwrap()]);
        assert!(terminal.is_running(), "after {round}:\n{}", terminal.screen());
    }
    println!("{round} slices came and went");
    // These keys lead back to the page of all slices.
    terminal.press("\x0c");
    if !terminal.screen().contains("q quit") {
        terminal.press("?x");
    }
    terminal.shows(&stable.name);
    terminal.press("q");
    assert!(terminal.end().success());
    terminal.is_as_before();
}

#[test]
fn without_a_terminal_it_names_commands_that_need_none() {
    ask(&["top"]).code(2).complains("standard output is none").complains("`gpuslice status`");
    for (arguments, words) in [
        (&["TERM=dumb", PROGRAM, "top"][..], "TERM is dumb"),
        (&["sh", "-c", &format!("{PROGRAM} top </dev/null")], "standard input is none"),
        (&["TERM=dumb", "sh", "-c", &format!("{PROGRAM} top")], "`gpuslice status`"),
    ] {
        let mut terminal = sit("env", arguments, USUAL, &[]);
        let screen = terminal.shows("`gpuslice status`").replace('\n', " ");
        assert_eq!(terminal.end().code(), Some(2));
        assert!(screen.contains(words) && !terminal.raw().contains('\x1b'), "{screen}");
        terminal.is_as_before();
    }
    let mut unknown = top(&["no-such-slice"], USUAL);
    unknown.shows("there is no slice");
    assert_eq!(unknown.end().code(), Some(1));
    for interval in ["0", "0.05", "61", "x", "-1", "NaN"] {
        ask(&["top", &format!("--interval={interval}")]).code(2).complains("0.1 to 60");
    }
    end(gpuslice(&["top", "--help"]).stdin(Stdio::null())).code(0).says("Examples").says("0.1 to 60");
}

/// Returns true if a colour was set: 30 to 38 and 90 to 97 of `ESC [ … m`.
fn has_colours(raw: &str) -> bool {
    raw.split("\x1b[").skip(1).any(|rest| {
        let Some((parameters, _)) = rest.split_once('m') else { return false };
        let all_numbers = parameters.bytes().all(|byte| byte.is_ascii_digit() || byte == b';');
        all_numbers && parameters.split(';').any(|number| matches!(number.parse(), Ok(30..=38 | 90..=97)))
    })
}

#[test]
fn colours_are_left_out_where_no_color_is_set() {
    let slice = telling("colours");
    for (value, wanted) in [(None, true), (Some("1"), false), (Some(""), true)] {
        let variables: Vec<_> = value.map(|value| ("NO_COLOR", value)).into_iter().collect();
        let terminal = sit(PROGRAM, &["top", &slice.name], USUAL, &variables);
        terminal.shows("/30%");
        assert_eq!(has_colours(&terminal.raw()), wanted, "{value:?}");
        // The mouse is never switched on.
        assert!(!terminal.raw().contains("\x1b[?1000h") && terminal.raw().contains("\x1b[?1049h"));
    }
}

/// Returns the processor time that a process has used, in clock ticks of a hundredth of a second.
fn ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields = stat.rsplit_once(") ").expect("it has a name").1;
    fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("a number")).sum()
}

#[test]
fn idle_it_costs_next_to_nothing() {
    let slices: Vec<OwnSlice> = (0..20).map(|number| OwnSlice::join(&format!("idle-{number:02}"))).collect();
    let terminal = top(&[], (120, 400));
    terminal.shows(&slices[0].name);
    let (start, before) = (Instant::now(), ticks(terminal.process()));
    thread::sleep(Duration::from_secs(5));
    let (span, used) = (start.elapsed(), ticks(terminal.process()) - before);
    println!("{used} hundredths of a second in {span:?} for {} slices", slices.len());
    // A program that polls without a sleep would use all of the time.
    assert!(used < 50, "{used} hundredths of a second in {span:?}");
}

#[test]
fn it_works_in_tmux() {
    let is_there = Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success());
    if !is_there {
        skip("top in tmux: there is no tmux; to mend it: apt-get install tmux");
        return;
    }
    let slice = telling("tmux");
    let socket = name("top");
    let tmux = |arguments: &[&str]| {
        let mut command = Command::new("tmux");
        command
            .args(["-L", &socket, "-f", "/dev/null"])
            .args(arguments)
            .env_remove("TMUX")
            .env("LANG", "C.UTF-8");
        let output = command.env("TERM", "xterm-256color").output().expect("there is tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let line = format!("{PROGRAM} top {} --interval 0.1; sleep 1000", slice.name);
    tmux(&["-u", "new-session", "-d", "-x", "80", "-y", "24", &line]);
    let start = Instant::now();
    let until = |is_so: &dyn Fn(&str) -> bool| loop {
        let screen = tmux(&["capture-pane", "-p"]);
        if is_so(&screen) {
            return true;
        }
        if start.elapsed() > Duration::from_secs(60) {
            println!("{screen}");
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let drawn = until(&|screen| screen.contains("3.00 GiB/8GiB") && screen.contains("priority high"));
    tmux(&["send-keys", "Down"]);
    let moved = until(&|screen| {
        screen.lines().filter(|line| line.starts_with('>')).any(|line| line.contains("none"))
    });
    tmux(&["resize-window", "-x", "40", "-y", "10"]);
    let resized = until(&|screen| screen.contains("GPU-22222222  ") && screen.lines().count() <= 10);
    tmux(&["send-keys", "q"]);
    let left = until(&|screen| !screen.contains("gpuslice top"));
    tmux(&["kill-server"]);
    assert!(drawn && moved && resized && left, "{drawn} {moved} {resized} {left}");
}
