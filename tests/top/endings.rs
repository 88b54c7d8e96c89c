//! The terminal after `top` ends, and while it is suspended, is as it was before.

use super::{USUAL, sit, telling, watch};
use crate::support::command::PROGRAM;
use crate::support::living::send;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn however_it_ends_the_terminal_is_as_before() {
    let slice = telling("restored");
    for key in ["q", "\x03", "?xq", "\rq", "m\x03"] {
        let mut terminal = watch(&slice, USUAL);
        terminal.shows("/30%");
        terminal.press(key);
        assert!(terminal.end().success(), "{key:?}");
        terminal.is_as_before();
    }
    // Escape leaves a page or a prompt, and never the program.
    let mut terminal = watch(&slice, USUAL);
    terminal.shows("/30%");
    terminal.press("\x1b");
    terminal.shows("q or Ctrl-C quits");
    assert!(terminal.is_running());
    terminal.press("q");
    assert!(terminal.end().success());
    for number in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1] {
        let mut terminal = watch(&slice, USUAL);
        terminal.shows("/30%");
        send(terminal.process(), number);
        let status = terminal.end();
        assert_eq!(status.signal(), Some(number), "{status:?}");
        terminal.is_as_before();
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let slice = telling("hung-up");
    let mut terminal = watch(&slice, USUAL);
    terminal.shows("/30%");
    terminal.hang_up();
    let status = terminal.end();
    assert_eq!(status.signal(), Some(libc::SIGHUP), "{status:?}");
}

#[test]
fn it_ends_with_its_terminal_even_without_sighup() {
    let slice = telling("not-told");
    // The program runs in a session that does not own the terminal, so it gets no SIGHUP.
    let line = format!("setsid {PROGRAM} top {} --interval 0.1 <&4 & echo $! >&3; wait", slice.name);
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let number = folder.path().join("number");
    let line = format!("exec 3>{} 4<&0; {line}", number.display());
    let mut terminal = sit("sh", &["-c", &line], USUAL, &[]);
    terminal.shows("/30%");
    let process = fs::read_to_string(number).expect("it was written").trim().parse().expect("a number");
    terminal.hang_up();
    let start = Instant::now();
    while state_of(process).is_some_and(|state| state != 'Z') {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn it_can_be_suspended_and_goes_on_where_it_was() {
    let slice = telling("suspended");
    let shell = ["--norc", "--noprofile", "-i"];
    let mut terminal = sit("bash", &shell, USUAL, &[("PS1", "shell> "), ("SHELL", "/bin/bash")]);
    terminal.shows("shell>");
    terminal.press(&format!("{PROGRAM} top {} --interval 0.1; echo end=$?\r", slice.name));
    terminal.shows("/30%");
    assert!(terminal.is_alternate());
    for (how, signal) in [("key", None), ("TSTP", Some(libc::SIGTSTP)), ("STOP", Some(libc::SIGSTOP))] {
        let process = child_of(terminal.process());
        match signal {
            None => terminal.press("\x1a"),
            Some(signal) => send(process, signal),
        }
        terminal.until("stopped", |_| state_of(process) == Some('T'));
        if how != "STOP" {
            terminal.shows("Stopped");
            assert!(!terminal.is_alternate(), "{how}");
            terminal.press(
                "clear; stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo -e isig | paste -sd+\r",
            );
            terminal.shows("isig+icanon+echo");
        }
        terminal.press("clear; fg\r");
        terminal.until("it goes on", |screen| screen.contains("/30%") && screen.contains("every 0.1 s"));
        assert!(terminal.is_alternate(), "{how}");
        terminal.press("?");
        terminal.shows("reverse the order");
        terminal.press("x");
        terminal.shows("/30%");
    }
    terminal.press("q");
    terminal.until("the usual screen", |screen| !screen.contains("every 0.1 s") && screen.contains("shell>"));
    assert!(!terminal.is_alternate());
    // The program ends while it is stopped and does not touch the terminal again.
    terminal.press(&format!("clear; {PROGRAM} top {}\r", slice.name));
    terminal.shows("every 1 s");
    terminal.press("\x1a");
    terminal.shows("Stopped");
    let process = child_of(terminal.process());
    end_while_stopped(process);
    terminal.until("the end", |_| is_gone(process));
    assert!(!terminal.is_alternate());
    // The program starts in the background, where it may not touch the terminal, and ends there.
    terminal.press(&format!("clear; {PROGRAM} top {} & echo is $!.\r", slice.name));
    let number = |screen: &str| {
        screen.lines().find_map(|line| line.strip_prefix("is ")?.strip_suffix('.')?.parse().ok())
    };
    let process = number(&terminal.until("its number", |screen| number(screen).is_some())).unwrap();
    terminal.until("stopped", |_| state_of(process) == Some('T'));
    end_while_stopped(process);
    terminal.until("the end", |_| is_gone(process));
    terminal.press("stty -a | tr ' ;' '\\n\\n' | grep -x -e icanon -e echo -e isig | paste -sd+\r");
    terminal.shows("isig+icanon+echo");
}

/// Ends a stopped process as a shell ends a stopped job.
fn end_while_stopped(process: u32) {
    send(process, libc::SIGTERM);
    send(process, libc::SIGCONT);
}

fn is_gone(process: u32) -> bool {
    matches!(state_of(process), None | Some('Z'))
}

/// Returns the only child of a shell.
fn child_of(shell: u32) -> u32 {
    let path = format!("/proc/{shell}/task/{shell}/children");
    let children = fs::read_to_string(path).expect("the shell runs");
    children.split_whitespace().next_back().and_then(|child| child.parse().ok()).expect("it has a child")
}

fn state_of(process: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
