//! Where `top` runs: users who may only read, drivers that hang, terminals of every kind, and its cost.

use super::{USUAL, own_folder, sit, telling, top};
use crate::support::command::{GIB, OwnSlice, PROGRAM, ask, end, gpuslice, name};
use crate::support::other_user::{OtherUser, is_root};
use crate::support::terminal::Terminal;
use crate::support::timed::within;
use crate::support::{artefacts, skip};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

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
