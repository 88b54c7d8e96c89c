//! Finds the lines of a shell script that keep the library out of programs, or bring it in.

use std::path::Path;

/// A line that affects the programs that start after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptLine {
    /// The line's number, from 1.
    pub(super) number: usize,
    /// The line's text.
    pub(super) text: String,
    /// The line's effect.
    pub(super) does: LineEffect,
}

/// Effect of a line on the programs that start after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEffect {
    /// Sets `LD_PRELOAD` to a value that has neither its old value nor the preload library.
    Overwrites,
    /// Removes `LD_PRELOAD`.
    Removes,
    /// Starts programs with an empty environment.
    Empties,
    /// Starts programs with other rights, so that the loader or the starter drops `LD_PRELOAD`.
    OtherRights,
    /// Makes a daemon start the program outside of this process tree.
    Elsewhere,
}

/// Programs that start other programs as another user, with a new environment.
const OTHER_RIGHTS: [&str; 8] = ["sudo", "su", "doas", "runuser", "pkexec", "gosu", "su-exec", "setpriv"];
/// Programs of [`OTHER_RIGHTS`] that pass the environment on.
const KEEPERS: [&str; 3] = ["gosu", "su-exec", "setpriv"];
/// Programs that make a daemon start a container.
const ELSEWHERE: [&str; 5] = ["docker", "podman", "nerdctl", "ctr", "kubectl"];

/// Returns the lines of a script that have an effect. The doctor reads the script as text and does not run it, so it does not
/// know which branches the script takes.
pub(super) fn lines(script: &str) -> Vec<ScriptLine> {
    let numbered = script.lines().zip(1..);
    numbered
        .filter_map(|(line, number)| {
            let text = line.trim();
            (!text.starts_with('#')).then(|| commands(text)).flatten().map(|does| ScriptLine {
                number,
                text: text.to_owned(),
                does,
            })
        })
        .collect()
}

/// Returns the effect of the first command of a line that has an effect.
fn commands(line: &str) -> Option<LineEffect> {
    line.split([';', '&', '|', '(', ')', '`']).find_map(|command| {
        let words: Vec<&str> = command.split_ascii_whitespace().map(unquoted).collect();
        does(&words)
    })
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

/// Returns the effect of a command on the program that it starts.
///
/// Assignments and words such as `exec`, which the shell handles itself, come before the program. `LD_PRELOAD=…` among them
/// decides at once. Otherwise the name of the program decides.
pub(super) fn does(words: &[&str]) -> Option<LineEffect> {
    let mut words = words;
    // A line can have any number of `env`, so no recursion follows them.
    loop {
        match start(words) {
            CommandStart::Does(effect) => return effect,
            CommandStart::Command(rest) => words = rest,
        }
    }
}

/// The start of a command.
enum CommandStart<'a, 'b> {
    /// It decides the effect.
    Does(Option<LineEffect>),
    /// `env`, which starts this command.
    Command(&'a [&'b str]),
}

fn start<'a, 'b>(words: &'a [&'b str]) -> CommandStart<'a, 'b> {
    let passed =
        ["exec", "export", "declare", "then", "do", "else", "if", "!", "{", "time", "nohup", "command"];
    let mut words = words;
    while let [first, rest @ ..] = words {
        if let Some(value) = first.strip_prefix("LD_PRELOAD=") {
            return CommandStart::Does(assigned(value));
        }
        let skips =
            passed.contains(first) || (first.contains('=') && !first.starts_with('-')) || *first == "-x";
        if !skips {
            break;
        }
        if *first == "exec" && rest.first() == Some(&"-c") {
            return CommandStart::Does(Some(LineEffect::Empties));
        }
        words = rest;
    }
    let [program, rest @ ..] = words else { return CommandStart::Does(None) };
    let name = program.rsplit('/').next().unwrap_or(program);
    let effect = match name {
        "unset" if rest.contains(&"LD_PRELOAD") => Some(LineEffect::Removes),
        "env" => return env(rest),
        _ if KEEPERS.contains(&name) => None,
        _ if OTHER_RIGHTS.contains(&name) => Some(LineEffect::OtherRights),
        _ if ELSEWHERE.contains(&name)
            && rest.iter().any(|word| matches!(*word, "run" | "exec" | "start" | "create")) =>
        {
            Some(LineEffect::Elsewhere)
        }
        _ => None,
    };
    CommandStart::Does(effect)
}

fn assigned(value: &str) -> Option<LineEffect> {
    let value = unquoted(value);
    if value.is_empty() {
        return Some(LineEffect::Removes);
    }
    let keeps =
        value.contains("$LD_PRELOAD") || value.contains("${LD_PRELOAD") || value.contains("libgpuslice");
    (!keeps).then_some(LineEffect::Overwrites)
}

/// Returns true if a script starts a program with the preload library.
pub(super) fn brings_library(script: &str) -> bool {
    let commands = script.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    commands.flat_map(|line| line.split([';', '&', '|', '(', ')', '`'])).any(|command| {
        let words: Vec<&str> = command.split_ascii_whitespace().map(unquoted).collect();
        brings(&words)
    })
}

/// Returns true if a command loads the preload library into its program, either by `gpuslice run` or by naming the library.
pub(super) fn brings(words: &[&str]) -> bool {
    let runs =
        |pair: &[&str]| matches!(pair, [program, "run"] if program.rsplit('/').next() == Some("gpuslice"));
    words.windows(2).any(runs)
        || words.iter().filter_map(|word| word.strip_prefix("LD_PRELOAD=")).any(names_library)
}

/// Returns true if a list for the loader names the preload library. A library with an absolute path must exist,
/// unless the path contains a variable.
fn names_library(list: &str) -> bool {
    let may_be = |path: &str| !path.starts_with('/') || path.contains('$') || Path::new(path).is_file();
    unquoted(list).split([':', ' ']).any(|path| path.contains("libgpuslice") && may_be(path))
}

/// Reads the words after `env`: options, then variables, then the program that `env` starts.
fn env<'a, 'b>(words: &'a [&'b str]) -> CommandStart<'a, 'b> {
    let mut words = words;
    while let [option, rest @ ..] = words {
        let takes_value = matches!(*option, "-u" | "--unset" | "-C" | "--chdir");
        match *option {
            "-i" | "-" | "--ignore-environment" => return CommandStart::Does(Some(LineEffect::Empties)),
            "-u" | "--unset" if rest.first() == Some(&"LD_PRELOAD") => {
                return CommandStart::Does(Some(LineEffect::Removes));
            }
            "-uLD_PRELOAD" | "--unset=LD_PRELOAD" => return CommandStart::Does(Some(LineEffect::Removes)),
            option if !option.starts_with('-') => break,
            _ => words = rest.get(usize::from(takes_value)..).unwrap_or_default(),
        }
        if *option == "--" {
            break;
        }
    }
    while let [variable, rest @ ..] = words
        && variable.contains('=')
    {
        if let Some(value) = variable.strip_prefix("LD_PRELOAD=") {
            return CommandStart::Does(assigned(value));
        }
        words = rest;
    }
    CommandStart::Command(words)
}

#[cfg(test)]
mod tests {
    use super::super::chance::seed;
    use super::*;

    #[test]
    fn lines_that_keep_the_library_out_are_found() {
        for (line, expected) in [
            ("unset LD_PRELOAD", LineEffect::Removes),
            ("unset -v A LD_PRELOAD B", LineEffect::Removes),
            ("export LD_PRELOAD=", LineEffect::Removes),
            ("export LD_PRELOAD=/usr/lib/libjemalloc.so", LineEffect::Overwrites),
            ("LD_PRELOAD=\"libx.so\" exec python train.py", LineEffect::Overwrites),
            ("if true; then unset LD_PRELOAD; fi", LineEffect::Removes),
            ("exec env -i PATH=$PATH python", LineEffect::Empties),
            ("env -u LD_PRELOAD python", LineEffect::Removes),
            ("env -u A -C /tmp -u LD_PRELOAD B=1 python", LineEffect::Removes),
            ("env -- A=1 LD_PRELOAD= python", LineEffect::Removes),
            ("env A=1 env -i python", LineEffect::Empties),
            ("exec -c python", LineEffect::Empties),
            ("exec sudo -u worker python train.py", LineEffect::OtherRights),
            ("env A=1 su - worker", LineEffect::OtherRights),
            ("docker run --rm image", LineEffect::Elsewhere),
        ] {
            let found: Vec<LineEffect> = lines(line).iter().map(|line| line.does).collect();
            assert_eq!(found, [expected], "{line}");
        }
    }

    #[test]
    fn a_script_made_by_chance_ends_nothing() {
        const PIECES: [&str; 28] = [
            "env",
            "-i",
            "-u",
            "-S",
            "LD_PRELOAD",
            "=",
            "libx.so",
            "libgpuslice.so",
            "$LD_PRELOAD",
            "export",
            "unset",
            "exec",
            "sudo",
            "sh",
            "-c",
            "gpuslice run",
            "--",
            "#",
            "\\",
            "'",
            "\"",
            "`",
            "(",
            "\n",
            ";",
            " ",
            "\t",
            "ß\u{0}",
        ];
        let mut chance = seed("a script");
        for _ in 0..20_000 {
            let mut script = String::new();
            for _ in 0..24 {
                script.push_str(PIECES[chance.index(PIECES.len())]);
            }
            let _found = (lines(&script), brings_library(&script));
        }
    }

    #[test]
    fn a_line_of_a_hundred_thousand_commands_is_read() {
        let script = format!("{}env -i python\n", "env ".repeat(100_000));
        assert_eq!(lines(&script).len(), 1);
    }

    #[test]
    fn a_library_is_brought_by_run_or_by_its_name_but_not_from_where_it_is_not() {
        for line in [
            "exec \"/usr/bin/gpuslice\" run --mem 1g -- python",
            "export LD_PRELOAD=\"libx.so:libgpuslice.so\"",
            "A=1 LD_PRELOAD=$FOLDER/libgpuslice.so python",
        ] {
            assert!(brings_library(line), "{line}");
        }
        for line in [
            "# gpuslice run -- python",
            "gpuslice list; run",
            "LD_PRELOAD=/nowhere/libgpuslice.so python",
            "LD_PRELOAD=libx.so python",
        ] {
            assert!(!brings_library(line), "{line}");
        }
    }

    #[test]
    fn lines_that_keep_the_preloaded_libraries_are_not_found() {
        for line in [
            "export LD_PRELOAD=libx.so:$LD_PRELOAD",
            "export LD_PRELOAD=\"libx.so${LD_PRELOAD:+:$LD_PRELOAD}\"",
            "LD_PRELOAD=/opt/libgpuslice.so python",
            "# unset LD_PRELOAD",
            "echo unset LD_PRELOAD",
            "env PYTHONPATH=. python train.py",
            "env python -i",
            "env A=1 python -u LD_PRELOAD",
            "env -- python - LD_PRELOAD=x",
            "env",
            "gosu worker python train.py",
            "docker ps",
            "unset OTHER",
        ] {
            assert_eq!(lines(line), [], "{line}");
        }
    }
}
