//! Manual pages, completions and documents agree with the program.
#![allow(clippy::indexing_slicing, reason = "a test")]

use crate::support::command::{Ended, OwnSlice, PROGRAM, RegionFile, ask, end, gpuslice};
use crate::support::{artefacts, skip};
use gpuslice_region::{Member, Trust};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Write as _, pipe};
use std::process::{Command, Stdio};

/// Returns the commands that `gpuslice --help` shows, without `help`, which has no page of its own.
fn commands() -> BTreeSet<String> {
    let help = ask(&["--help"]).code(0).out;
    let (_, list) = help.split_once("Commands:\n").expect("there are commands");
    let (list, _) = list.split_once("\n\n").expect("something follows");
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    list.lines().filter_map(first).filter(|command| command != "help").collect()
}

/// Runs a program of the system, if it is installed.
fn system(words: &[&str], input: &str) -> Option<Ended> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let _ended_before = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it is our child");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Ended { status: output.status, out: text(&output.stdout), err: text(&output.stderr) })
}

#[test]
fn every_command_has_a_manual_page_with_its_options_and_examples() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().display().to_string();
    ask(&["man", &path]).code(0);
    let files: BTreeSet<String> = fs::read_dir(folder.path())
        .expect("it can be read")
        .map(|file| file.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    let pages = commands().iter().map(|command| format!("gpuslice-{command}.1")).collect::<BTreeSet<_>>();
    assert_eq!(files, pages.into_iter().chain(["gpuslice.1".to_owned()]).collect());
    for (command, words) in
        [("run", "\\-\\-weight"), ("set", "\\-\\-priority"), ("status", "\\-\\-over"), ("list", "\\-\\-json")]
    {
        let page =
            fs::read_to_string(folder.path().join(format!("gpuslice-{command}.1"))).expect("it is there");
        assert!(page.contains(words) && page.contains(".SH EXAMPLES"), "{page}");
    }
    let page =
        |command: &str| fs::read_to_string(folder.path().join(format!("gpuslice-{command}.1"))).unwrap();
    for (command, words) in [
        ("run", "[\\fB\\-\\-mem\\fR \\fISIZE\\fR] "),
        ("run", " \\fICMD\\fR...\n"),
        ("run", "\\(bu 2\nbest\\-effort: the slice uses what others leave"),
        ("list", "[\\fISLICE\\fR...]\n"),
        ("status", "[\\fB\\-\\-watch\\fR [\\fISECONDS\\fR]] "),
        ("set", " \\fISLICE\\fR\n"),
    ] {
        assert!(page(command).contains(words), "{words} is missing in {}", page(command));
    }
    assert!(ask(&["man"]).code(0).out.starts_with(".ie"), "the page of gpuslice itself");
    ask(&["man", "/nowhere/at/all"]).code(1).complains("/nowhere/at/all");
}

#[test]
fn man_reads_the_pages() {
    let page = ask(&["man"]).code(0).out;
    let Some(read) = system(&["man", "--warnings", "-E", "UTF-8", "-l", "-"], &page) else {
        return skip("manual pages read by man: there is no man; to mend it: apt-get install man-db");
    };
    if !read.status.success() {
        return skip(
            "manual pages read by man: this man is not the one of man-db; to mend it: apt-get install man-db",
        );
    }
    assert_eq!(read.err, "");
    read.says("gpuslice").says("set 12345 --mem 6GiB --cores 50");
}

/// Returns the words that bash offers for the last word of a line.
fn bash_offers(line: &[&str]) -> Vec<String> {
    let line = [&[PROGRAM], &line[1..]].concat();
    let words = line.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let last = line.len() - 1;
    let script = ask(&["completions", "bash"]).code(0).out;
    let ask = format!(
        "{script}\nCOMP_WORDS=({words}); COMP_CWORD={last}; COMP_LINE=\"${{COMP_WORDS[*]}}\"\n\
         COMP_POINT=${{#COMP_LINE}}\n_gpuslice \"{PROGRAM}\" \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let told = system(&["bash", "--norc", "-c", &ask], "").expect("there is bash").code(0);
    assert_eq!(told.err, "");
    told.out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    assert_eq!(bash_offers(&["gpuslice", "st"]), ["status"]);
    assert_eq!(bash_offers(&["gpuslice", "set", "x", "--pri"]), ["--priority"]);
    assert_eq!(bash_offers(&["gpuslice", "run", "--policy", ""]), ["fixed", "equal", "best-effort"]);
    assert_eq!(bash_offers(&["gpuslice", "run", "--policy", "b"]), ["best-effort"]);
    assert_eq!(bash_offers(&["gpuslice", "completions", "z"]), ["zsh"]);
    let all: BTreeSet<String> = bash_offers(&["gpuslice", ""]).into_iter().collect();
    assert!(commands().is_subset(&all) && !all.contains("demo-worker"), "{all:?}");
}

#[test]
fn shells_complete_the_names_of_slices() {
    let slice = OwnSlice::join("completed");
    let own = slice.name.as_str();
    let start = &own[..own.len() - 2];
    for command in ["status", "list", "set", "top", "remove", "rm"] {
        assert_eq!(bash_offers(&["gpuslice", command, start]), [own], "{command}");
    }
    assert!(bash_offers(&["gpuslice", "status", ""]).contains(&own.to_owned()));
    // The completion offers no slice where a command takes none.
    for line in
        [&["gpuslice", "run", start][..], &["gpuslice", "status", "--over", start], &["gpuslice", start]]
    {
        let offers = bash_offers(line);
        assert!(!offers.contains(&own.to_owned()), "{line:?}: {offers:?}");
    }
    // The completion leaves out a name that would need quotes.
    let odd = RegionFile::of(&format!("{own} $(x)"));
    let (_member, _) = Member::join(&odd.0, Trust::OwnerOnly, &[]).expect("it can be made");
    let offered = ask(&["complete-slices"]).code(0).out;
    assert!(offered.lines().any(|line| line == own) && !offered.contains('$'), "{offered}");
    // The scripts of the other shells offer slices in the same places, and ask `complete-slices` too.
    let zsh = ask(&["completions", "zsh"]).code(0).out;
    assert_eq!(zsh.lines().filter(|line| line.contains(":_gpuslice_slices'")).count(), 6, "{zsh}");
    let script = ask(&["completions", "fish"]).code(0).out;
    let folder = tempfile::tempdir().expect("a folder can be made");
    std::os::unix::fs::symlink(PROGRAM, folder.path().join("gpuslice")).expect("it can be made");
    let asked = format!(
        "set PATH {} $PATH\n{script}\ncomplete -C 'gpuslice status {start}'",
        folder.path().display()
    );
    let Some(told) = system(&["fish", "--no-config", "-c", &asked], "") else {
        return skip("fish completes the names of slices; to mend it: install fish");
    };
    assert!(told.code(0).out.lines().any(|line| line.split('\t').next() == Some(own)));
}

#[test]
fn other_shells_read_their_scripts() {
    for (shell, check) in [("zsh", &["zsh", "-n"][..]), ("fish", &["fish", "--no-execute"])] {
        let script = ask(&["completions", shell]).code(0).out;
        assert!(commands().iter().all(|command| script.contains(command.as_str())), "{script}");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("script");
        fs::write(&file, &script).expect("it can be written");
        let Some(read) = system(&[check, &[&file.display().to_string()]].concat(), "") else {
            skip(&format!(
                "completions for {shell}: there is no {shell}; to mend it: apt-get install {shell}"
            ));
            continue;
        };
        assert_eq!(read.code(0).err, "");
    }
}

#[test]
fn the_exit_codes_are_those_that_are_documented() {
    let file = artefacts::repository().join("docs/reference/cli.md");
    let text = fs::read_to_string(file).expect("there is a page");
    let (_, codes) = text.split_once("## Exit codes").expect("there is a section");
    let codes = codes.split("\n## ").next().expect("there is a first part");
    // The codes are the first cells of the rows.
    let told: Vec<&str> =
        codes.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    assert_eq!(told, ["code", "0", "1", "2", "3", "125", "126", "127", "128 + n"]);
    ask(&["list"]).code(0);
    ask(&["status", "no-such-slice"]).code(1);
    ask(&["status", "--wrong"]).code(2);
    ask(&[]).code(2);
    let mut run = gpuslice(&["run", "--mem", "1g", "true"]);
    end(run.env("GPUSLICE_LIB", "/nowhere.so")).code(125);
    ask(&["run", "--mem", "1g", "/etc/passwd"]).code(126);
    ask(&["run", "--mem", "1g", "/nowhere/at/all"]).code(127);
    ask(&["run", "--mem", "1g", "sh", "-c", "exit 42"]).code(42);
    ask(&["top"]).code(2);
}

#[test]
fn an_unwritable_output_is_reported_by_the_exit_code() {
    let full = || File::options().write(true).open("/dev/full").expect("there is such a device");
    for (arguments, code) in [(&["lst"][..], 2), (&[], 2), (&["status", "no-such-slice"], 1)] {
        assert_eq!(gpuslice(arguments).stderr(full()).status().unwrap().code(), Some(code), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["list"], &["list", "--json"], &["completions", "bash"], &["man"]] {
        end(gpuslice(arguments).stdout(full())).code(1).complains("standard output cannot be written");
        // A reader that has closed its end is no error.
        let (reader, gone) = pipe().expect("there are pipes");
        drop(reader);
        let ended = end(gpuslice(arguments).stdout(gone)).code(0);
        assert!(!ended.err.contains("standard output"), "{ended:?}");
    }
}

#[test]
fn every_command_and_option_is_in_the_documents() {
    let docs = [
        "docs/reference/cli.md",
        "docs/reference/status-json.md",
        "docs/reference/configuration.md",
        "README.md",
    ];
    let read = |file: &&str| fs::read_to_string(artefacts::repository().join(file)).expect("there is a page");
    let text: String = docs.iter().map(read).collect();
    for command in ["run", "list", "status", "set", "remove", "demo", "completions", "man", "help"] {
        assert!(text.contains(&format!("gpuslice {command}")), "gpuslice {command} is in no document");
        let help = ask(&["help", command]).code(0).out;
        for option in help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
            let option = option.trim_end_matches([',', '.', ';', ')']);
            let is_known = matches!(option, "--help" | "--seconds" | "--simulated" | "--epochs");
            assert!(is_known || text.contains(option), "{option} of {command} is in no document");
        }
    }
}
