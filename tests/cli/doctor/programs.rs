//! Findings about the command after `--`: programs into which nothing can be preloaded.

use super::{Machine, Told, with_mounts};
use crate::support::command::{PROGRAM, end};
use crate::support::container::OWN_ETC;
use crate::support::{artefacts, compiler, executable, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

#[test]
fn real_programs_with_musl_are_told() {
    let compile = |name, flags| compiler::for_musl("doctor with programs for musl", "holder.c", name, flags);
    let Some(program) = compile("holder_musl", &[]) else { return };
    let program = program.display().to_string();
    let static_one = compile("holder_musl_static", &["-static"]).unwrap().display().to_string();
    let machine = Machine::simulated();
    machine.asks(&["--", &static_one]).has(
        "command.program",
        "error",
        &format!("{static_one} is linked statically: no loader runs"),
    );
    machine.asks(&["--", &program]).has_no("preload.musl");
    let library = artefacts::library().display().to_string();
    let line = format!("{OWN_ETC} && echo {library} > /etc/ld.so.preload");
    let machine = machine.without("LD_PRELOAD");
    let Some(told) = with_mounts(&line, &machine, &["--", &program]) else { return };
    let loader = "is loaded by /lib/ld-musl-x86_64.so.1: programs with musl ignore /etc/ld.so.preload";
    told.has("preload.musl", "warning", &format!("{program} {loader}"));
    assert!(told.ended.out.contains(&format!("set LD_PRELOAD={library} ")), "{}", told.ended.out);
}

#[test]
fn commands_into_which_nothing_can_be_preloaded_are_found() {
    let machine = Machine::simulated();
    machine.asks(&["--", "no-such-program"]).has("command.program", "error", "not found");
    machine.asks(&["--", "/etc/passwd"]).has("command.program", "error", "cannot be executed");
    match compiler::compile("holder.c", "holder_static", &["-static"]) {
        Some(program) => {
            let program = program.display().to_string();
            machine.asks(&["--", &program]).has("command.program", "error", "linked statically");
        }
        None => skip(
            "doctor with a static program: cc -static does not work; to mend it: apt-get install libc6-dev",
        ),
    }
    let foreign = machine.script("foreign", "");
    let mut bytes = fs::read(PROGRAM).unwrap();
    bytes[18] = 183;
    fs::write(&foreign, bytes).unwrap();
    machine.asks(&["--", &foreign]).has("command.program", "error", "another architecture (aarch64)");
    let script = "#!/bin/sh\nset -e\nunset LD_PRELOAD\nexport LD_PRELOAD=libother.so\nexec \"$@\"\n";
    let script = machine.script("entrypoint.sh", script);
    machine
        .asks(&["--", "nice", &script, "python"])
        .has("command.environment", "error", "entrypoint.sh:3: `unset LD_PRELOAD` takes")
        .has("command.environment", "error", "entrypoint.sh:4: `export LD_PRELOAD=libother.so` sets")
        .has("command.program", "ok", "is a script for /bin/sh");
    machine.asks(&["--", "sudo", "-u", "worker", "cat"]).has(
        "command.environment",
        "error",
        "as another user",
    );
    machine.asks(&["--", "env", "-i", "sh"]).has("command.environment", "error", "empty environment");
    machine.asks(&["--", "sh", "-c", "LD_PRELOAD= exec x"]).has(
        "command.environment",
        "error",
        "takes LD_PRELOAD out",
    );
    let fine = machine.script("fine.sh", "#!/bin/sh\nLD_PRELOAD=libm.so.6:$LD_PRELOAD exec \"$@\"\n");
    machine.asks(&["--", &fine]).has_no("command.environment");
}

#[test]
fn a_path_of_no_regular_file_is_not_opened() {
    let machine = Machine::simulated();
    let fifo = machine.path("fifo");
    assert!(Command::new("mkfifo").args(["-m", "755"]).arg(&fifo).status().unwrap().success());
    let fifo = fifo.display().to_string();
    // A reader that opens a pipe without a writer waits for ever.
    let asks = |arguments: &[&str], library: &Path| {
        let mut asked = machine.command(&[&["--json"], arguments].concat());
        asked.env("GPUSLICE_LIB", library);
        let variables = asked.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", PROGRAM]).args(asked.get_args()).env_clear().envs(variables);
        Told::of(end(&mut command))
    };
    asks(&["--", &fifo], &artefacts::library()).has("command.program", "error", "cannot be executed");
    asks(&[], Path::new(&fifo)).has("library.found", "error", "fifo");
}

#[test]
fn a_program_with_rights_of_its_own_is_found_and_really_loads_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("other");
    executable::copy(PROGRAM, &program, 0o755);
    if chown(&program, Some(65534), None).is_err() {
        return skip(
            "doctor with a setuid program: a file cannot be given away; to mend it: run the tests as root",
        );
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let machine = Machine::simulated();
    machine.asks(&["--", &program.display().to_string()]).has("command.rights", "error", "preloads nothing");
    // The program itself confirms the finding: the library is not in it.
    let mut probe = Command::new(&program);
    let said = end(probe.args(["doctor-probe", "preloaded"]).env("LD_PRELOAD", artefacts::library()));
    assert!(said.out.contains("\"secure\":true") && !said.out.contains("libgpuslice.so"), "{said:?}");
}
