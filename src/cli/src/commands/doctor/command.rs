//! Examines a command: finds the program that it starts, and reports if the loader would not load the library into it.

use super::elf::Elf;
use super::finding::Finding;
use super::script::{self, LineEffect};
use super::{calls, library};
use crate::system;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Longest chain of interpreters and starters that the doctor follows.
const DEPTH: usize = 4;
/// Most bytes that the doctor reads of a script.
const SCRIPT_BYTES: usize = 1 << 20;
/// Programs that start another program, named in their arguments, and pass `LD_PRELOAD` on to it.
const STARTERS: [&str; 11] = [
    "env",
    "nohup",
    "nice",
    "time",
    "timeout",
    "stdbuf",
    "setsid",
    "taskset",
    "numactl",
    "tini",
    "dumb-init",
];
/// Shells. Their argument after `-c` is a script.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];

/// Facts about a program's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Program {
    /// Path of the file.
    pub(super) path: PathBuf,
    /// True if this user may execute the file.
    pub(super) executable: bool,
    /// True if the program runs with more rights than this user has.
    pub(super) secure: bool,
    /// Type of the file.
    pub(super) kind: Kind,
}

/// Type of a program's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ELF file.
    Elf(Box<Elf>),
    /// A script: its interpreter and its text.
    Script {
        /// The interpreter, with its argument.
        interpreter: Vec<String>,
        /// The script's text, as far as the doctor read it.
        text: String,
    },
    /// A file of another type.
    #[default]
    Other,
}

impl Program {
    /// Looks at a program by its path, or finds it in `PATH`.
    pub(super) fn find(name: &OsStr) -> Option<Self> {
        if name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            return path.exists().then(|| Self::look(&path));
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
        paths.find(|path| path.is_file() && calls::may_execute(path)).map(|path| Self::look(&path))
    }

    fn look(path: &Path) -> Self {
        let kind = match Elf::read(path) {
            Ok(Some(elf)) => Kind::Elf(Box::new(elf)),
            Ok(None) => script_at(path).unwrap_or_default(),
            Err(_) => Kind::Other,
        };
        let executable = path.is_file() && calls::may_execute(path);
        // A script runs with the rights of its interpreter. The rights of its own file have no effect.
        let secure = !matches!(kind, Kind::Script { .. }) && is_secure(path);
        Self { path: path.to_owned(), executable, secure, kind }
    }

    /// Returns true if the name of the program's file is one of these.
    fn is_one_of(&self, names: &[&str]) -> bool {
        self.path.file_name().and_then(OsStr::to_str).is_some_and(|name| names.contains(&name))
    }
}

/// Returns true if the kernel gives a program rights that this user does not have. The loader then preloads almost no library.
fn is_secure(path: &Path) -> bool {
    let Ok(found) = path.metadata() else { return false };
    if !calls::gives_rights(path) {
        return false;
    }
    let mode = if calls::gets_no_rights() { 0 } else { found.permissions().mode() };
    let user = mode & 0o4000 != 0 && found.uid() != system::user();
    let group = mode & 0o2010 == 0o2010 && found.gid() != calls::group();
    user || group || (system::user() != 0 && calls::has_capabilities(path))
}

fn script_at(path: &Path) -> Option<Kind> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let limit = u64::try_from(SCRIPT_BYTES).unwrap_or(u64::MAX);
    fs::File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let line = text.lines().next()?.strip_prefix("#!")?;
    let interpreter = line.split_ascii_whitespace().map(str::to_owned).collect();
    Some(Kind::Script { interpreter, text })
}

/// A finding about a command.
#[derive(Debug)]
pub(super) struct CommandFinding {
    /// The finding.
    pub(super) finding: Finding,
    /// True if a program that may use a GPU certainly runs without the library for this reason. It is false for shells and
    /// starters: they use no GPU, so only the program that they start counts.
    pub(super) unlimited: bool,
}

impl CommandFinding {
    fn guessed(finding: Finding) -> Self {
        Self { finding, unlimited: false }
    }
}

/// Returns the findings about a command. `find` looks up a program, and `ours` is the library that `run` would preload.
pub(super) fn examine(
    command: &[OsString],
    ours: Option<&library::Library>,
    find: &dyn Fn(&OsStr) -> Option<Program>,
) -> Vec<Finding> {
    look(command, ours, find).into_iter().map(|seen| seen.finding).collect()
}

/// Returns the findings about a command, each with its effect on the limits. `find` looks up a program, and `ours` is the
/// library that `run` would preload.
pub(super) fn look(
    command: &[OsString],
    ours: Option<&library::Library>,
    find: &dyn Fn(&OsStr) -> Option<Program>,
) -> Vec<CommandFinding> {
    let mut seen = Vec::new();
    follow(command, ours, find, DEPTH, &mut seen);
    seen
}

/// Collects the findings about a command, and then follows it to the command that it starts.
///
/// Example: `env A=b sh -c 'sudo python3 x.py'`. `env` starts `sh`, and the script of `sh` starts a program with `sudo`. The
/// function judges first the words of the command, then the file of its program. It goes on with the interpreter of a script, or
/// with the command that a starter starts, at most `depth` times. The doctor runs nothing, so findings in scripts are guesses.
fn follow(
    command: &[OsString],
    ours: Option<&library::Library>,
    find: &dyn Fn(&OsStr) -> Option<Program>,
    depth: usize,
    seen: &mut Vec<CommandFinding>,
) {
    let Some((name, arguments)) = command.split_first() else { return };
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let shown: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(does) = script::does(&shown) {
        // The configuration of `sudo` and similar programs decides whether they pass the environment on.
        let unlimited = matches!(does, LineEffect::Overwrites | LineEffect::Removes | LineEffect::Empties);
        seen.push(CommandFinding { finding: told(does, &format!("`{}`", words.join(" "))), unlimited });
    }
    let Some(program) = find(name) else {
        seen.push(CommandFinding::guessed(Finding::error(
            "command.program",
            format!("{} is not found", name.to_string_lossy()),
            "name a program of PATH, or its path",
        )));
        return;
    };
    let is_between = program.is_one_of(&SHELLS) || program.is_one_of(&STARTERS);
    let never_loads =
        matches!(&program.kind, Kind::Elf(elf) if elf.foreign.is_some() || elf.interpreter.is_none());
    let unlimited = program.executable && (program.secure || (never_loads && !is_between));
    seen.extend(file(&program, ours).into_iter().map(|finding| CommandFinding { finding, unlimited }));
    let path = program.path.display().to_string();
    if let Kind::Script { interpreter, text } = &program.kind {
        let lines = script::lines(text);
        let told =
            lines.iter().map(|line| told(line.does, &format!("{path}:{}: `{}`", line.number, line.text)));
        seen.extend(told.map(CommandFinding::guessed));
        let next: Vec<OsString> = interpreter.iter().map(OsString::from).collect();
        if depth > 0 && !next.is_empty() {
            follow(&next, ours, find, depth.saturating_sub(1), seen);
        }
        return;
    }
    if program.is_one_of(&SHELLS) {
        seen.extend(in_shell(arguments).into_iter().map(CommandFinding::guessed));
    } else if let Some(next) = started_by(&program, arguments, find).filter(|_| depth > 0) {
        follow(next, ours, find, depth.saturating_sub(1), seen);
    }
}

/// Returns true if a command loads gpuslice's library into its program by itself, whatever the environment contains.
pub(super) fn brings_library(command: &[OsString], find: &dyn Fn(&OsStr) -> Option<Program>) -> bool {
    let mut left = command;
    for _ in 0..=DEPTH {
        let Some((name, arguments)) = left.split_first() else { return false };
        let words: Vec<String> = left.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        if script::brings(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
            return true;
        }
        let Some(program) = find(name) else { return false };
        if let Kind::Script { text, .. } = &program.kind {
            return script::brings_library(text);
        }
        if program.is_one_of(&SHELLS) {
            return behind_c(arguments).is_some_and(|text| script::brings_library(&text));
        }
        left = started_by(&program, arguments, find).unwrap_or_default();
    }
    false
}

/// Returns the command that a program starts, if the program is one of [`STARTERS`].
fn started_by<'a>(
    program: &Program,
    arguments: &'a [OsString],
    find: &dyn Fn(&OsStr) -> Option<Program>,
) -> Option<&'a [OsString]> {
    // The doctor does not look up the arguments of other programs. They may name many files in any place.
    if !program.is_one_of(&STARTERS) {
        return None;
    }
    let is_program = |word: &OsString| {
        let text = word.to_string_lossy();
        !text.starts_with('-') && !text.contains('=') && find(word).is_some_and(|found| found.executable)
    };
    arguments.get(arguments.iter().position(is_program)?..)
}

/// Returns the findings about the script after a shell's `-c`.
fn in_shell(arguments: &[OsString]) -> Vec<Finding> {
    let lines = behind_c(arguments).map_or_else(Vec::new, |text| script::lines(&text));
    lines.iter().map(|line| told(line.does, &format!("`{}`", line.text))).collect()
}

/// Returns the script after a shell's `-c`.
fn behind_c(arguments: &[OsString]) -> Option<String> {
    let at = arguments
        .iter()
        .position(|word| word.as_bytes().starts_with(b"-") && word.as_bytes().ends_with(b"c"))?;
    Some(arguments.get(at.saturating_add(1))?.to_string_lossy().into_owned())
}

/// Returns the findings about a program's file. Example: a reason why the loader cannot load the library into it.
fn file(program: &Program, ours: Option<&library::Library>) -> Vec<Finding> {
    let path = program.path.display();
    let check = "command.program";
    if !program.executable {
        let what = format!("{path} cannot be executed");
        return vec![Finding::error(check, what, "chmod +x, or name the program")];
    }
    let mut findings = Vec::new();
    if program.secure {
        findings.push(Finding::error(
            "command.rights",
            format!("{path} runs with more rights than its caller (setuid, setgid or capabilities): the loader preloads nothing"),
            "take the rights off (chmod u-s, setcap -r), or start it as the user it becomes",
        ));
    }
    match &program.kind {
        Kind::Elf(elf) => findings.push(elf_of(elf, program, ours)),
        Kind::Script { interpreter, .. } => {
            let by = interpreter.join(" ");
            findings.push(Finding::ok(check, format!("{path} is a script for {by}")));
        }
        Kind::Other => findings.push(Finding::note(
            check,
            format!("{path} is neither an ELF file nor a script that names its interpreter"),
            "a shell would take it for a script of its own",
        )),
    }
    findings
}

fn elf_of(elf: &Elf, program: &Program, ours: Option<&library::Library>) -> Finding {
    let path = program.path.display();
    if let Some(foreign) = &elf.foreign {
        return Finding::error(
            "command.program",
            format!("{path} is for another architecture ({foreign}): the library cannot be loaded into it"),
            "run a build for this machine's architecture",
        );
    }
    let Some(loader) = &elf.interpreter else {
        return Finding::error(
            "command.program",
            format!("{path} is linked statically: no loader runs, and nothing can be preloaded"),
            "link it dynamically; such a program is not limited by any preload library",
        );
    };
    let library = ours.and_then(|library| library.elf.as_ref());
    let strange = library.filter(|_| loader.contains("ld-musl")).and_then(|library| {
        library.needed.iter().find(|name| name.starts_with("libgcc_s") || name.starts_with("ld-linux"))
    });
    if let Some(name) = strange {
        return Finding::error(
            "command.program",
            format!("{path} uses musl, which has no {name}: its loader would end it"),
            "build the portable library with ci/dist.sh",
        );
    }
    Finding::ok("command.program", format!("{path} is loaded by {loader}: the library can be preloaded"))
}

fn told(does: LineEffect, place: &str) -> Finding {
    let check = "command.environment";
    match does {
        LineEffect::Overwrites => Finding::error(
            check,
            format!("{place} sets LD_PRELOAD and drops its earlier value"),
            "add to it: LD_PRELOAD=libother.so:$LD_PRELOAD; or mount /etc/ld.so.preload, which nothing overwrites",
        ),
        LineEffect::Removes => Finding::error(
            check,
            format!("{place} takes LD_PRELOAD out of the environment"),
            "leave it there; or mount /etc/ld.so.preload, which nothing overwrites",
        ),
        LineEffect::Empties => Finding::error(
            check,
            format!("{place} starts programs with an empty environment"),
            "hand LD_PRELOAD, GPUSLICE_REGION and GPU_* on; or use /etc/ld.so.preload and an operator's file",
        ),
        LineEffect::OtherRights => Finding::error(
            check,
            format!("{place} starts programs as another user: LD_PRELOAD is dropped on the way"),
            "put gpuslice run behind it: sudo -u USER gpuslice run --mem 4GiB -- CMD",
        ),
        LineEffect::Elsewhere => Finding::warning(
            check,
            format!("{place} has a daemon start the program: it is not this command's child"),
            "bring the library into the container: see examples/container",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn elf(interpreter: Option<&str>) -> Kind {
        Kind::Elf(Box::new(Elf {
            interpreter: interpreter.map(str::to_owned),
            is_dynamic: true,
            ..Elf::default()
        }))
    }

    fn levels(command: &[&str], programs: &[(&str, Kind)]) -> Vec<(&'static str, Level)> {
        let find = |name: &OsStr| {
            let (path, kind) = programs.iter().find(|(path, _)| OsStr::new(path) == name)?;
            Some(Program { path: path.into(), executable: true, secure: false, kind: kind.clone() })
        };
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        examine(&command, None, &find).iter().map(|finding| (finding.check, finding.level)).collect()
    }

    const LOADER: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");

    #[test]
    fn a_static_program_is_an_error_and_a_dynamic_one_fine() {
        assert_eq!(levels(&["a"], &[("a", elf(LOADER))]), [("command.program", Level::Ok)]);
        assert_eq!(levels(&["a"], &[("a", elf(None))]), [("command.program", Level::Error)]);
        assert_eq!(levels(&["b"], &[("a", elf(None))]), [("command.program", Level::Error)]);
    }

    #[test]
    fn scripts_are_followed_to_their_interpreters_and_starters_to_their_programs() {
        let interpreter = vec!["/bin/sh".to_owned()];
        let script = Kind::Script { interpreter, text: "#!/bin/sh\nunset LD_PRELOAD\n".to_owned() };
        let programs = [("s", script), ("/bin/sh", elf(None)), ("nice", elf(LOADER)), ("a", elf(None))];
        let (fine, bad) = (("command.program", Level::Ok), ("command.program", Level::Error));
        assert_eq!(levels(&["s"], &programs), [fine, ("command.environment", Level::Error), bad]);
        assert_eq!(levels(&["nice", "-n", "a"], &programs), [fine, bad]);
    }

    #[test]
    fn commands_that_bring_the_library_are_found_behind_starters_and_in_scripts() {
        let script =
            |text: &str| Kind::Script { interpreter: vec!["/bin/sh".to_owned()], text: text.to_owned() };
        let programs = [
            ("run.sh", script("#!/bin/sh\nexec gpuslice run --mem 1g -- \"$@\"\n")),
            ("other.sh", script("#!/bin/sh\n# gpuslice run\nexec \"$@\"\n")),
            ("nice", elf(LOADER)),
            ("sh", elf(LOADER)),
        ];
        let brings = |line: &str| {
            let find = |name: &OsStr| {
                let (path, kind) = programs.iter().find(|(path, _)| OsStr::new(path) == name)?;
                Some(Program { path: path.into(), executable: true, secure: false, kind: kind.clone() })
            };
            brings_library(&line.split(' ').map(OsString::from).collect::<Vec<_>>(), &find)
        };
        for line in ["/bin/gpuslice run -- a", "nice run.sh a", "env LD_PRELOAD=libgpuslice.so a"] {
            assert!(brings(line), "{line}");
        }
        for line in ["a", "nice other.sh a", "sh -c a", "gpuslice list", "env LD_PRELOAD=/l/libm.so a"] {
            assert!(!brings(line), "{line}");
        }
    }

    #[test]
    fn a_script_behind_c_is_read() {
        let programs = [("bash", elf(LOADER))];
        let expected = [("command.program", Level::Ok), ("command.environment", Level::Error)];
        assert_eq!(levels(&["bash", "-ec", "LD_PRELOAD= python"], &programs), expected);
    }
}
