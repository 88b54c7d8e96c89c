//! Verdict of timed tests: a miss fails on a host that keeps up, and is inconclusive on a host that does not.

use crate::support::living::send;
use crate::support::others;
use crate::support::timed::{Lateness, Verdict, holds, verdict};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Variable with the slack in milliseconds. It is set when this test runs as a program of its own.
const SLACK: &str = "GPUSLICE_TEST_SLACK";
/// Time for which the host stalls that program.
const STALL: Duration = Duration::from_millis(300);

/// Runs as the program: measures a result that is always wrong.
fn miss(slack: &str) {
    let measure = || {
        println!("measuring");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("it gets the order to go on");
    };
    let slack = Duration::from_millis(slack.parse().expect("a number"));
    holds(slack, measure, |()| false);
}

/// Runs this test as a program of its own. The host stalls it in the middle of its measurement if `is_stalled`.
fn measured(slack: Duration, is_stalled: bool) -> Output {
    let test =
        "runs::inconclusive::a_miss_fails_unless_the_host_stalled_the_measurement_as_long_as_its_slack";
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args([test, "--exact", "--nocapture"]).env(SLACK, slack.as_millis().to_string());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut lines = String::new();
    while !lines.ends_with("measuring\n") {
        assert!(said.read_line(&mut lines).expect("it is text") > 0, "{lines}");
    }
    if is_stalled {
        send(child.id(), libc::SIGSTOP);
        std::thread::sleep(STALL);
        send(child.id(), libc::SIGCONT);
    }
    child.stdin.take().expect("it is a pipe").write_all(b"\n").expect("it listens");
    while said.read_line(&mut lines).expect("it is text") > 0 {}
    let output = child.wait_with_output().expect("it can be waited for");
    Output { stdout: lines.into_bytes(), ..output }
}

#[test]
fn a_miss_fails_unless_the_host_stalled_the_measurement_as_long_as_its_slack() {
    if let Ok(slack) = std::env::var(SLACK) {
        return miss(&slack);
    }
    // No host that runs tests loses an hour.
    let hour = Duration::from_secs(3600);
    for is_stalled in [false, true] {
        let failed = measured(hour, is_stalled);
        let said = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(101), "{failed:?}");
        assert!(said.contains("and the host kept up: Lateness"), "{said}");
    }
    let late = measured(STALL, true);
    let said = String::from_utf8_lossy(&late.stdout);
    assert_eq!(late.status.code(), Some(0), "{late:?}");
    assert!(said.contains("INCONCLUSIVE runs::inconclusive::a_miss_fails_unless_"), "{said}");
}

#[test]
fn the_verdict_is_the_hosts_and_not_the_size_of_the_miss() {
    let ms = Duration::from_millis;
    let of = |is_right, lost, taken| verdict(is_right, Lateness { lost: ms(lost), taken: ms(taken) }, ms(30));
    assert_eq!([of(true, 0, 0), of(true, 500, 500)], [Verdict::Holds; 2]);
    // Three threads of a chain that are each 10 ms late use up a slack of 30 ms. So do other processes that run for 30 ms.
    assert_eq!(of(false, 9, 29), Verdict::Missed);
    assert_eq!([of(false, 10, 0), of(false, 0, 30)], [Verdict::Inconclusive; 2]);
}

#[test]
fn time_of_a_program_outside_of_the_test_is_taken_by_others() {
    // The parent of the loop ends at once, so the loop descends from no test.
    let mut shell = Command::new("bash");
    shell.args(["-c", "bash -c 'echo $$; while :; do :; done' & exit"]).stdout(Stdio::piped());
    let mut shell = shell.spawn().expect("bash runs");
    let mut pid = String::new();
    BufReader::new(shell.stdout.take().expect("it is a pipe"))
        .read_line(&mut pid)
        .expect("it tells a number");
    shell.wait().expect("it can be waited for");
    let ran = || {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", pid.trim())).expect("it lives");
        text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).expect("a number")
    };
    let (before, from) = (others::taken(), ran());
    while ran() < from + 300_000_000 {
        std::thread::yield_now();
    }
    let taken = others::taken().saturating_sub(before);
    send(pid.trim().parse().expect("a number"), libc::SIGKILL);
    assert!(taken >= Duration::from_millis(280), "{taken:?}");
}

#[test]
fn time_of_a_tests_own_programs_is_not_taken_by_others() {
    let line = |parent: u32, ticks: [u64; 4]| {
        let [user, kernel, children, in_kernel] = ticks;
        format!(
            "7 (a (b) c) S {parent} 7 7 0 -1 4194304 90 0 0 0 {user} {kernel} {children} {in_kernel} 20 0 1 0 9"
        )
    };
    let planted = [
        (1, line(0, [1, 0, 0, 0])),
        // These are a runner with an ended child, the test, its child and its grandchild, and another test of the runner.
        (10, line(1, [10, 20, 30, 40])),
        (11, line(10, [1000, 0, 0, 0])),
        (12, line(11, [1000, 1000, 1000, 1000])),
        (13, line(12, [1000, 0, 0, 0])),
        (14, line(10, [200, 0, 0, 0])),
    ];
    let processes = planted.map(|(pid, line)| (pid, others::read(&line).expect("a process")));
    assert_eq!(others::of_others(11, &processes.into()), 1 + 100 + 200);
}
