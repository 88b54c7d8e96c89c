//! `gpuslice run`: its program runs as it would without `run`, and nothing stays behind.
#![allow(clippy::indexing_slicing, reason = "a test")]

use crate::support::command::{OwnSlice, PROGRAM, RegionFile, Running, ask, end, gpuslice, json, name};
use crate::support::other_user::{NOBODY, OtherUser};
use crate::support::outcome::is_refusal;
use crate::support::terminal::Terminal;
use crate::support::{artefacts, compiler, executable, skip, skip_without_rights};
use gpuslice_region::{Member, Trust};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{chown, lchown, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Shell lines that go on until a trap ends them. They start no other process, which the terminal could stop.
const FOR_EVER: &str = "exec 9<> <(:); echo ready; for ((i = 0; i < 3000; i++)); do read -t 0.02 -u 9; done";

fn start(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
    let out = child.stdout.take().expect("it is piped");
    (child, BufReader::new(out))
}

fn line(out: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    out.read_line(&mut line).expect("it is text");
    line.trim_end().to_owned()
}

fn kill(signal: &str, process: u32) {
    // The shell's built-in `kill` knows all names of signals.
    let sent = Command::new("bash").args(["-c", "kill -$0 $1", signal, &process.to_string()]).status();
    assert!(sent.expect("there is bash").success());
}

fn children_of(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("it lives");
    text.split_whitespace().map(|number| number.parse().expect("it is a number")).collect()
}

/// Prepares a program of the system, with an empty environment but for `PATH`.
fn around(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Returns true once `what` returns true, or false after 60 s.
fn soon(mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Returns true if these words run with success here.
fn works(words: &[&str]) -> bool {
    around(words).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn run_ends_as_its_program_ends() {
    let run = |line: &str| ask(&["run", "--mem", "64MiB", "--", "sh", "-c", line]);
    for code in [0, 1, 7, 255] {
        run(&format!("exit {code}")).code(code);
    }
    for signal in [15, 9, 6] {
        assert_eq!(run(&format!("kill -{signal} $$")).status.signal(), Some(signal));
        let line = format!(r#""$0" run --mem 64MiB -- sh -c 'kill -{signal} $$' 2>/dev/null; echo $?"#);
        let shell = end(around(&["sh", "-c", &line, PROGRAM]).env("GPUSLICE_LIB", artefacts::library()));
        assert_eq!(shell.out.trim(), (128 + signal).to_string());
    }
}

#[test]
fn run_tells_its_own_failures_from_the_programs() {
    ask(&["run", "--mem", "1g", "/nowhere/at/all"]).code(127).complains("not found");
    ask(&["run", "--mem", "1g", "/etc/passwd"]).code(126).complains("cannot be executed");
    ask(&["run", "--mem", "1g", "--", "/tmp"]).code(126).complains("/tmp: is a directory; name a program");
    ask(&["run", "--mem", "1g", "python3 load.py 3"])
        .code(127)
        .complains("\"python3 load.py 3\": not found; if this is a command with its arguments")
        .complains("write them without quotes: -- python3 load.py 3");
    ask(&["run", "--mem", "1g", "--region", "/nowhere/region", "true"]).code(125).complains("make it first");
    ask(&["run", "--mem", "1g", "--region", "/dev/shm/a ", "true"]).code(125).complains("ends in a space");
    let mut run = gpuslice(&["run", "--mem", "1g", "--region"]);
    run.arg(OsStr::from_bytes(b"/dev/shm/\xff")).arg("true");
    end(&mut run).code(125).complains("is not UTF-8");
    let mut run = gpuslice(&["run", "--mem", "1g", "true"]);
    end(run.env("GPUSLICE_LIB", "/nowhere.so")).code(125).complains("GPUSLICE_LIB names /nowhere.so");
}

#[test]
fn the_library_is_looked_for_beside_the_program_and_the_places_are_named() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let copy = folder.path().join("bin/gpuslice");
    fs::create_dir(folder.path().join("bin")).expect("a folder can be made");
    executable::copy(PROGRAM, &copy, 0o755);
    let mut run = Command::new(&copy);
    run.args(["run", "--mem", "1g", "--", "sh", "-c", "echo $LD_PRELOAD"]).env_remove("GPUSLICE_LIB");
    end(&mut run)
        .code(125)
        .complains("bin/libgpuslice.so or ")
        .complains("../lib/gpuslice/libgpuslice.so; unpack the release with all its folders, or build it");
    for place in ["lib/gpuslice/libgpuslice.so", "bin/libgpuslice.so"] {
        let place = folder.path().join(place);
        fs::create_dir_all(place.parent().expect("it has a folder")).expect("a folder can be made");
        fs::copy(artefacts::library(), &place).expect("the library can be copied");
        let found = place.canonicalize().expect("it is there");
        end(&mut run).code(0).says(&found.display().to_string());
    }
}

#[test]
fn a_program_finds_its_slice_in_its_environment_and_its_signals_as_they_were() {
    let shown = "echo $LD_PRELOAD $GPU_MEM_LIMIT $GPU_CORE_PERCENT $GPU_CORE_BURST $GPU_CORE_POLICY \
                 $GPU_CORE_WEIGHT $GPU_PRIORITY $GPUSLICE_REGION";
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let limits = ["--mem", "50%", "--cores", "0=12.5", "--burst", "latency"];
    let sharing = ["--policy", "Equal", "--weight", "300", "--priority", "high"];
    let run = [&["run"], &limits[..], &sharing, &["--region", "region", "--", "sh", "-c", shown]].concat();
    let ended = end(gpuslice(&run).current_dir(folder.path()).env("LD_PRELOAD", "libm.so.6")).code(0);
    let (library, region) = (artefacts::library(), folder.path().join("region"));
    assert_eq!(
        ended.out,
        format!("{}:libm.so.6 50% 0=12.5 latency equal 300 high {}\n", library.display(), region.display())
    );
    // Blocked, ignored and caught signals are as before, even the two that a program may change at its start.
    let ways = [&[][..], &["--block-signal=INT", "--ignore-signal=PIPE,CHLD,USR1"], &["--default-signal"]];
    for way in ways {
        let shown = ["grep", "Sig[BIC]", "/proc/self/status"];
        let bare = end(&mut around(&[&["env"], way, &shown[..]].concat()));
        let run = [&["env"], way, &[PROGRAM, "run", "--mem", "1g", "--"], &shown[..]].concat();
        let run = end(around(&run).env("GPUSLICE_LIB", artefacts::library())).code(0);
        assert_eq!((bare.out, bare.status), (run.out, run.status));
    }
}

#[test]
fn a_share_of_the_environment_stays_under_each_of_its_names() {
    for (name, value, share) in [
        ("CUDA_DEVICE_SM_LIMIT", "30", ""),
        ("CUDA_DEVICE_SM_LIMIT_0", "30", ""),
        ("CUDA_DEVICE_SM_LIMIT", "0", "100"),
        ("GPU_CORE_PERCENT", "40", "40"),
        ("GPU_CORE_PERCENT", " ", "100"),
    ] {
        let mut run = gpuslice(&["run", "--mem", "64MiB", "--", "sh", "-c", "echo \"<$GPU_CORE_PERCENT>\""]);
        end(run.env(name, value)).code(0).says(&format!("<{share}>"));
    }
}

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
    // Two signals that arrive at once are one: the program has received its own before `run` looks.
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
    // The shell stopped the job: 128 and SIGTSTP.
    terminal.hears("stopped 148");
    terminal.hears("goes on");
    terminal.hears("ended 4");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_program_that_catches_ctrl_z_and_then_stops_itself_stops_the_job() {
    // Editors do this.
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

/// Asserts that `run` refuses to start this command, because nothing could limit it, and that it starts the command with
/// `--allow-unlimited`. The command must end with 0.
#[track_caller]
fn is_not_limited(command: &[&str], why: &str) {
    let run = |options: &[&str]| ask(&[&["run", "--mem", "1g"], options, &["--"], command].concat());
    let refused = run(&[]).code(125).complains("not started, since it would be NOT LIMITED: ").complains(why);
    assert!(refused.out.is_empty() && refused.err.contains("--allow-unlimited starts it"), "{refused:?}");
    run(&["--allow-unlimited"]).code(0).complains("gpuslice: NOT LIMITED: ").complains(why);
}

#[test]
fn a_program_known_to_run_unlimited_is_not_started_unless_that_is_allowed() {
    for words in [&["env", "-u", "LD_PRELOAD", "echo"][..], &["nice", "env", "--unset=LD_PRELOAD", "echo"]] {
        is_not_limited(words, "takes LD_PRELOAD out of the environment");
    }
    for words in
        [&["env", "-i", "echo"][..], &["env", "-", "/bin/echo"], &["env", "-C", "/", "-i", "/bin/echo"]]
    {
        is_not_limited(words, "starts programs with an empty environment");
    }
    is_not_limited(&["env", "LD_PRELOAD=libm.so.6", "echo"], "drops its earlier value");
    // These commands load the library again, or may load it.
    let library = format!("LD_PRELOAD={}", artefacts::library().display());
    for words in [
        &["env", "-i", &library, "/bin/echo"][..],
        &["env", "A=1", "echo"],
        &["env", "-u", "OTHER", "echo"],
        &["env", "A=1", "echo", "-i"],
        &["sh", "-c", "true"],
    ] {
        let ended = ask(&[&["run", "--mem", "1g", "--"], words].concat()).code(0);
        assert!(!ended.err.contains("NOT LIMITED"), "{ended:?}");
    }
    ask(&["run", "--mem", "1g", "--", "env", "/nowhere/program"]).code(127);
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let file = |name: &str, contents: &[u8]| {
        let path = folder.path().join(name);
        executable::write(&path, contents, 0o755);
        path.display().to_string()
    };
    let script = file("script", b"#!/bin/sh\nexit 0\n");
    assert_eq!(ask(&["run", "--mem", "1g", "--", &script]).code(0).err, "");
    // Files of another architecture and of 32 bits. The kernel here executes neither, so the end of the program does not matter.
    let mut bytes = fs::read("/bin/echo").expect("every system has it");
    for (place, byte, why) in
        [(18, 183, "another architecture (aarch64)"), (4, 1, "another architecture (32 bits)")]
    {
        let before = std::mem::replace(&mut bytes[place], byte);
        let program = file(&format!("foreign-{place}"), &bytes);
        bytes[place] = before;
        ask(&["run", "--mem", "1g", "--", &program]).code(125).complains("NOT LIMITED").complains(why);
        let allowed = ["run", "--mem", "1g", "--allow-unlimited", "--", &program];
        ask(&allowed).complains("gpuslice: NOT LIMITED: ");
    }
    let source = folder.path().join("zero.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("it can be written");
    let program = folder.path().join("zero").display().to_string();
    let compiled = Command::new("cc").args(["-static", "-o", &program]).arg(source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return skip("a static program under run: cc cannot link one; to mend it: apt-get install libc6-dev");
    }
    is_not_limited(&[&program], "is linked statically");
    is_not_limited(&["env", "A=1", &program], "is linked statically");
    is_not_limited(&["nice", &program], "is linked statically");
    let script = file("interpreted", format!("#!{program}\n").as_bytes());
    is_not_limited(&[&script], "is linked statically");
    // A shell and a program that only starts others use no GPU themselves.
    for name in ["sh", "tini"] {
        executable::copy(&program, folder.path().join(name), 0o755);
        let shell = folder.path().join(name).display().to_string();
        let ended = ask(&["run", "--mem", "1g", "--", &shell, "-c", "x"]).code(0);
        assert!(
            ended.err.contains("is linked statically") && !ended.err.contains("NOT LIMITED"),
            "{ended:?}"
        );
    }
}

#[test]
fn a_program_that_cannot_load_the_library_is_reported_before_it_starts() {
    let run = |program: &str| ask(&["run", "--mem", "1g", "--", program]);
    assert_eq!(run("true").code(0).err, "");
    // The loader would not load these, and the program would run without a limit.
    let text = artefacts::repository().join("README.md");
    let other = artefacts::system_object("libm.so.6").expect("every system has it");
    for (library, why) in [(other, "does not export"), (text, "is no shared object")] {
        let mut run = gpuslice(&["run", "--mem", "1g", "--", "echo", "started"]);
        let ended = end(run.env("GPUSLICE_LIB", library)).code(125).complains(why);
        assert_eq!(ended.out, "");
    }
    let Some(public) = OtherUser::new("run of a program that gets rights") else { return };
    executable::copy("/usr/bin/id", public.path("id"), 0o4755);
    let ended = public.ask(&["run", "--mem", "1g", "--", &public.path("id")]).code(125);
    assert_eq!(ended.complains("with more rights than its caller").out, "");
    let behind = public.ask(&["run", "--mem", "1g", "--", "env", &public.path("id")]).code(125);
    behind.complains("with more rights");
    let allowed = public.ask(&["run", "--mem", "1g", "--allow-unlimited", "--", &public.path("id")]).code(0);
    assert!(allowed.out.starts_with("uid="), "{allowed:?}");
    allowed.complains("NOT LIMITED: ");
    // A script gets no rights from its file.
    executable::write(public.path("script"), "#!/bin/sh\necho started\n", 0o6755);
    let ended = public.ask(&["run", "--mem", "1g", "--", &public.path("script")]).code(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("started\n", ""));
    // `run` does not look at the arguments of a program that starts no other.
    let ended = public.ask(&["run", "--mem", "1g", "--", "echo", &public.path("id")]).code(0);
    assert_eq!(ended.err, "");
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

#[test]
fn everything_works_without_privileges_and_others_slices_are_not_touched() {
    let Some(public) = OtherUser::new("everything_works_without_privileges") else { return };
    let name = name("plain");
    let roots = OwnSlice::join("of-root");
    let worker = public.path("gpuslice");
    let mut run = public.command(&["run", "--mem", "64MiB", "--name", &name, "--", &worker, "demo-worker"]);
    let (mut child, mut out) = start({
        run.args(["--seed", "1"]).stdin(Stdio::piped());
        run
    });
    assert!(line(&mut out).contains(' '), "the program does not work");
    let list = public.ask(&["list"]).code(0).complains("regions of other users are not shown");
    assert!(list.out.contains(&name) && !list.out.contains(&roots.name), "{list:?}");
    public.ask(&["status", &name]).code(0).says("demo-worker --seed 1").says("limit 64MiB");
    public.ask(&["set", &name, "--mem", "32MiB"]).code(0).says("64MiB -> 32MiB");
    let path = roots.region.0.display().to_string();
    for slice in [&roots.name, &path] {
        public
            .ask(&["set", slice, "--mem", "1GiB"])
            .code(1)
            .complains("give this user the right to read and write it");
    }
    public
        .ask(&["status", &path])
        .code(1)
        .complains("give this user the right to read it, which root can, or");
    assert_eq!(roots.limit(0x11), Some(8 << 30));
    // Root sees the slices of all users, and names one by its name if no other slice has that name.
    ask(&["list"]).code(0).says(&name);
    ask(&["set", &name, "--mem", "48MiB"]).code(0).says("32MiB -> 48MiB");
    let region = format!("/dev/shm/gpuslice-{NOBODY}-run-{name}");
    assert!(Path::new(&region).exists());
    drop(child.stdin.take());
    out.read_to_string(&mut String::new()).expect("it is text");
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
    assert!(!Path::new(&region).exists());
}

#[test]
fn run_can_be_the_first_process_of_a_container() {
    let container = ["unshare", "--pid", "--fork", "--mount", "--mount-proc"];
    if !works(&[&container[..], &["true"]].concat()) {
        return skip_without_rights("run as the first process of a container");
    }
    let inside = |name: &str, program: &str| {
        let run = [PROGRAM, "run", "--mem", "1g", "--name", name, "--", "bash", "-c", program];
        let mut command = around(&[&container[..], &run].concat());
        command.env("GPUSLICE_LIB", artefacts::library());
        command
    };
    let name = name("container");
    end(&mut inside(&name, "exit 7")).code(7);
    // The first process of a container cannot die by a signal.
    end(&mut inside(&name, "kill -9 $$")).code(137);
    // `run` waits for orphans.
    let program = "[ $PPID = 1 ] || exit 8; for i in 1 2 3; do (sleep 0 & ); done; for i in $(seq 1000); do \
                   grep -qs '^State:.Z' /proc/[0-9]*/status || exit 0; sleep 0.02; done; exit 9";
    end(&mut inside(&name, program)).code(0);
    // The program gets each signal that the container's runtime sends.
    let program = format!("trap 'echo terminated; exit 5' TERM; {FOR_EVER}");
    let (mut child, mut out) = start(inside(&name, &program));
    assert_eq!(line(&mut out), "ready");
    kill("TERM", children_of(child.id())[0]);
    assert_eq!(line(&mut out), "terminated");
    assert_eq!(child.wait().expect("it is our child").code(), Some(5));
}

#[test]
fn a_slice_in_a_container_is_seen_from_outside() {
    let container = ["unshare", "--pid", "--fork", "--mount", "--mount-proc"];
    if !works(&[&container[..], &["true"]].concat()) {
        return skip_without_rights("a slice in a container, seen from outside");
    }
    let name = name("inside");
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let run =
        [PROGRAM, "run", "--mem", "64MiB", "--name", &name, "--", PROGRAM, "demo-worker", "--seed", "1"];
    let mut command = around(&[&container[..], &run].concat());
    command.env("GPUSLICE_LIB", artefacts::library()).env("LD_LIBRARY_PATH", artefacts::simulated_driver());
    command.env("SIMGPU_STATE", folder.path().join("state")).env("SIMGPU_CONTEXT_BYTES", "0");
    let (mut child, mut out) = start({
        command.stdin(Stdio::piped());
        command
    });
    assert!(line(&mut out).contains(' '), "the program does not work");
    let report = json(&["status", &name, "--json"]);
    let process = report.pointer("/slices/0/devices/0/processes/0").expect("it is seen").clone();
    // The process number is one of the container. The process outside with that number may be any.
    let number = process.get("host_pid").and_then(serde_json::Value::as_u64).expect("it is seen from here");
    let command = process.get("command").and_then(serde_json::Value::as_str).unwrap_or_default();
    assert!(command.ends_with(" demo-worker --seed 1"), "{process}");
    let words = fs::read_to_string(format!("/proc/{number}/cmdline")).expect("it lives");
    assert_eq!(words.trim_end_matches('\0').replace('\0', " "), command);
    ask(&["set", &name, "--mem", "32MiB"]).code(0).says("64MiB -> 32MiB");
    drop(child.stdin.take());
    out.read_to_string(&mut String::new()).expect("it is text");
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
}

/// A log-out on a machine with systemd, in namespaces of its own. A user runs a slice, logind cleans up after the last log-out,
/// and the script lists what is left. `$0` is `gpuslice`, in a folder with everything that the user needs. The mounts would hide
/// that folder, so the script copies it to `/run`. `$1` is the mode of `/tmp`, which is in memory. If not every user may write to
/// it, it serves as little as a `/tmp` on a disk.
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
