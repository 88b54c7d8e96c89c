//! Changes while `top` runs: limits that its user sets, slices that end, files that stop being regions.

use super::{USUAL, own_folder, sit, telling, top, watch, watch_path};
use crate::support::command::{GIB, OwnSlice, PROGRAM};
use std::time::{Duration, Instant};
use std::{fs, thread};

#[test]
fn limits_are_changed_while_the_slice_lives_and_seen_at_once() {
    let slice = OwnSlice::join("changed");
    // The next regular look is 60 s away, so only the change itself can make the screen show a new limit soon.
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
