//! Programs that would run without a limit: `run` does not start them unless that is allowed.

use crate::support::command::{ask, end, gpuslice};
use crate::support::other_user::OtherUser;
use crate::support::{artefacts, executable, skip};
use std::fs;
use std::process::Command;

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
    // These files are of another architecture and of 32 bits. The kernel here executes neither, so how the program ends does not
    // matter.
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
    // `run` does not look at the arguments of a program that starts no other program.
    let ended = public.ask(&["run", "--mem", "1g", "--", "echo", &public.path("id")]).code(0);
    assert_eq!(ended.err, "");
}
