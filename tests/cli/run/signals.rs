//! Signals, terminals and jobs: `run` passes them on to its program.

use super::{FOR_EVER, around, children_of, kill, line, start, works};
use crate::support::command::{PROGRAM, ask, end, gpuslice};
use crate::support::terminal::Terminal;
use crate::support::{artefacts, skip};
use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

#[test]
fn whatever_run_is_sent_the_program_is_sent() {
    let usual = "HUP INT QUIT TRAP ABRT USR1 USR2 PIPE ALRM TERM STKFLT TSTP TTIN TTOU URG XCPU \
                 XFSZ VTALRM PROF WINCH IO PWR SYS RTMIN RTMIN+5 RTMAX";
    let program = format!("for s in {usual}; do trap \"echo got $s\" $s; done; {FOR_EVER}");
    let run = gpuslice(&["run", "--mem", "1g", "--", "env", "--default-signal", "bash", "-c", &program]);
    let (mut child, mut out) = start(run);
    assert_eq!(line(&mut out), "ready");
    for signal in usual.split_ascii_whitespace() {
        kill(signal, child.id());
        assert_eq!(line(&mut out), format!("got {signal}"));
    }
    for program in children_of(child.id()) {
        kill("KILL", program);
    }
    assert_eq!(child.wait().expect("it is our child").signal(), Some(libc::SIGKILL));
}

#[test]
fn run_keeps_no_signal_back_that_the_processor_raises() {
    // While `run` waits for signals, they do not show as blocked. So the program looks while `run` is stopped.
    let program = "s=/proc/$PPID/status; kill -STOP $PPID; until grep -q '^State:.T' $s; do sleep 0.02; done; \
                   grep SigBlk $s; kill -CONT $PPID";
    let ended = ask(&["run", "--mem", "1g", "--", "sh", "-c", program]).code(0);
    let blocked = ended.out.trim().rsplit('\t').next().expect("there is a set");
    let blocked = u64::from_str_radix(blocked, 16).expect("it is a number");
    let is_blocked = |signal: &i32| blocked >> (signal - 1) & 1 == 1;
    let raised = [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE];
    assert_eq!(raised.into_iter().filter(is_blocked).collect::<Vec<_>>(), Vec::<i32>::new());
    assert!(is_blocked(&libc::SIGTERM), "{ended:?}");
}

/// Lets `run` go on after it stood still, and sends it `WINCH` first. `run` handles the signal with the lower number first, so
/// the program's trap for `WINCH` counts everything that was sent before.
fn go_on_with_winch(run: u32) {
    kill("WINCH", run);
    kill("CONT", run);
}

#[test]
fn a_program_gets_a_signal_to_its_own_group_once() {
    let program = format!(
        "trap 'n=$((n+1)); echo terminated' TERM; trap 'echo count $n; exit 3' WINCH; trap 'kill -TERM 0' USR1; \
         {FOR_EVER}"
    );
    let mut run = gpuslice(&["run", "--mem", "1g", "--", "bash", "-c", &program]);
    run.process_group(0);
    let (mut child, mut out) = start(run);
    assert_eq!(line(&mut out), "ready");
    // Two pending signals of one kind merge, which would hide a second signal. So the program gets the first one while `run` is
    // stopped.
    kill("STOP", child.id());
    kill("USR1", children_of(child.id())[0]);
    assert_eq!(line(&mut out), "terminated");
    go_on_with_winch(child.id());
    assert_eq!(line(&mut out), "count 1");
    assert_eq!(child.wait().expect("it is our child").code(), Some(3));
}

#[test]
fn a_timer_that_was_set_before_run_ends_the_program() {
    if !works(&["perl", "-e", "1"]) {
        return skip("a timer that was set before run: there is no perl; to mend it: apt-get install perl");
    }
    let script = "alarm 1; exec @ARGV";
    let mut run = around(&["perl", "-e", script, PROGRAM, "run", "--mem", "1g", "--", "sleep", "60"]);
    assert_eq!(end(run.env("GPUSLICE_LIB", artefacts::library())).status.signal(), Some(libc::SIGALRM));
}

#[test]
fn ctrl_c_reaches_a_program_once() {
    let program =
        format!("trap 'n=$((n+1)); echo interrupted' INT; trap 'echo count $n.; exit 5' WINCH; {FOR_EVER}");
    let mut terminal = Terminal::start(&mut gpuslice(&["run", "--mem", "1g", "--", "bash", "-c", &program]));
    terminal.hears("ready");
    kill("STOP", terminal.process());
    terminal.press("\x03");
    terminal.hears("interrupted");
    go_on_with_winch(terminal.process());
    terminal.hears("count 1.");
    assert_eq!(terminal.end().code(), Some(5));
}

#[test]
fn ctrl_c_reaches_a_program_that_has_left_the_group() {
    // `timeout` makes a process group of its own.
    let program = format!("trap 'echo interrupted; exit 6' INT; {FOR_EVER}");
    let mut terminal = Terminal::start(&mut gpuslice(&[
        "run", "--mem", "1g", "--", "timeout", "100", "bash", "-c", &program,
    ]));
    terminal.hears("ready");
    terminal.press("\x03");
    terminal.hears("interrupted");
    assert_eq!(terminal.end().code(), Some(6));
}

#[test]
fn a_terminal_that_hangs_up_ends_run_and_its_program() {
    // As with `ssh -t host gpuslice run ...`: `run` leads the session, and the kernel signals the leader alone.
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let said = folder.path().join("said");
    let program = format!("trap 'echo hung up >{}; exit 7' HUP; {FOR_EVER}", said.display());
    let mut terminal = Terminal::start(&mut gpuslice(&["run", "--mem", "1g", "--", "bash", "-c", &program]));
    terminal.hears("ready");
    terminal.hang_up();
    assert_eq!(terminal.end().code(), Some(7));
    assert_eq!(fs::read_to_string(&said).expect("it has written the file"), "hung up\n");
}

#[test]
fn a_job_is_stopped_and_goes_on_as_a_whole() {
    let program = format!("trap 'echo goes on; exit 4' CONT; {FOR_EVER}");
    let shell = r#"set -m; "$0" run --mem 1g -- bash -c "$1"; echo "stopped $?"; fg; echo "ended $?""#;
    let mut command = around(&["bash", "-c", shell, PROGRAM, &program]);
    let mut terminal = Terminal::start(command.env("GPUSLICE_LIB", artefacts::library()));
    terminal.hears("ready");
    terminal.press("\x1a");
    // The shell stopped the job. It reports 128 and the number of SIGTSTP.
    terminal.hears("stopped 148");
    terminal.hears("goes on");
    terminal.hears("ended 4");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_program_that_catches_ctrl_z_and_then_stops_itself_stops_the_job() {
    // Editors stop and continue like this.
    let program =
        format!("trap 'echo tidy; kill -STOP $$' TSTP; trap 'echo goes on; exit 4' CONT; {FOR_EVER}");
    let shell = r#"set -m; "$0" run --mem 1g -- bash -c "$1"; echo "stopped $?"; fg; echo "ended $?""#;
    let mut command = around(&["bash", "-c", shell, PROGRAM, &program]);
    let mut terminal = Terminal::start(command.env("GPUSLICE_LIB", artefacts::library()));
    terminal.hears("ready");
    terminal.press("\x1a");
    terminal.hears("tidy");
    terminal.hears("stopped 148");
    terminal.hears("ended 4");
    assert_eq!(terminal.end().code(), Some(0));
}
