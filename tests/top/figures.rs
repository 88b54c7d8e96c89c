//! The figures that `top` shows, by the size of its terminal, the filter and the order.

use super::{USUAL, own_folder, sit, telling, top, watch};
use crate::support::artefacts;
use crate::support::command::{GIB, OwnSlice, PROGRAM, RegionFile, gpuslice, name};
use gpuslice_policy::time::GpuTime;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Instant;

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
        // The test charges a quarter of the elapsed time.
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
    let mut terminal = top(&["--interval", "0.1"], (160, 40));
    // Other tests have slices at the same time. The selection would move if the selected one of them ends.
    terminal.press("/order-\r");
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
    // The region stays for a while if the slice has a debt.
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
