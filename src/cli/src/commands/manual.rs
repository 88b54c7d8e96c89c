//! Makes completion scripts and manual pages from the declarations in `arguments`.

use crate::arguments::Arguments;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// First line of the examples in a command's help.
const EXAMPLES_HEADING: &str = "Examples:\n";

/// Returns the commands that people type. Hidden commands are left out.
fn typed() -> clap::Command {
    let all = Arguments::command();
    let typed: Vec<_> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let shown = clap::Command::new("gpuslice").version(env!("CARGO_PKG_VERSION")).disable_version_flag(true);
    let about = all.get_about().cloned().unwrap_or_default();
    let examples = all.get_after_help().cloned().unwrap_or_default();
    shown.about(about).after_help(examples).args(all.get_arguments().cloned()).subcommands(typed)
}

/// Prints a completion script: `gpuslice completions`. clap makes the script, and this function adds the names of
/// slices, which clap cannot know.
pub(crate) fn complete(shell: Shell) -> Result<Ending, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut typed(), "gpuslice", &mut script);
    let script = String::from_utf8_lossy(&script);
    failure::print(&match shell {
        Shell::Bash => in_bash(&script),
        Shell::Zsh => in_zsh(&script),
        Shell::Fish => in_fish(&script),
        _ => script.into_owned(),
    })?;
    Ok(Ending::Code(0))
}

/// Returns the names of the commands that take a slice, with their aliases.
fn with_slices() -> Vec<String> {
    let takes = |command: &&clap::Command| {
        command.get_positionals().any(|argument| matches!(argument.get_id().as_str(), "slice" | "slices"))
    };
    let names = |command: &clap::Command| {
        let aliases: Vec<String> = command.get_visible_aliases().map(str::to_owned).collect();
        [command.get_name().to_owned()].into_iter().chain(aliases).collect::<Vec<_>>()
    };
    typed().get_subcommands().filter(takes).flat_map(names).collect()
}

/// Returns the options, of all commands, that take a value.
fn with_values() -> Vec<String> {
    let all = typed();
    let options = all.get_subcommands().flat_map(clap::Command::get_opts);
    let names: BTreeSet<String> =
        options.filter_map(|option| option.get_long().map(|name| format!("--{name}"))).collect();
    names.into_iter().collect()
}

/// Adds a function that calls clap's function, and then adds the names of slices where a slice may be typed.
fn in_bash(script: &str) -> String {
    let script = script.replace("_gpuslice() {", "_gpuslice_words() {");
    let own = r#"
_gpuslice() {
    _gpuslice_words "$@"
    case "${COMP_WORDS[1]}" in
        COMMANDS) ;;
        *) return ;;
    esac
    [[ ${COMP_CWORD} -gt 1 && "$2" != -* ]] || return
    case "$3" in
        OPTIONS) return ;;
    esac
    COMPREPLY+=($(compgen -W "$("$1" complete-slices 2>/dev/null)" -- "$2"))
}

"#;
    let own = own.replace("COMMANDS", &with_slices().join("|")).replace("OPTIONS", &with_values().join("|"));
    let at = script.find("if [[ \"${BASH_VERSINFO[0]}\" -eq 4").unwrap_or(script.len());
    let (functions, registration) = script.split_at(at);
    format!("{functions}{}{registration}", own.trim_start())
}

/// Adds a function that completes slices, and names it in each argument that is a slice.
fn in_zsh(script: &str) -> String {
    const OWN: &str = r#"
_gpuslice_slices() {
    local -a slices
    slices=(${(f)"$(_call_program slices gpuslice complete-slices 2>/dev/null)"})
    compadd -a slices
}
"#;
    let line = |line: &str| {
        let is_slice =
            ["':slice -- ", "'::slice -- ", "'*::slices -- "].iter().any(|start| line.starts_with(start));
        if is_slice { line.replace(":_default'", ":_gpuslice_slices'") } else { line.to_owned() }
    };
    let mut lines = script.lines();
    let first = lines.next().unwrap_or_default();
    let rest: Vec<String> = lines.map(line).collect();
    format!("{first}\n{OWN}{}\n", rest.join("\n"))
}

/// Adds a condition for each command that takes a slice.
fn in_fish(script: &str) -> String {
    let line = |command: String| {
        format!(
            "complete -c gpuslice -n \"__fish_gpuslice_using_subcommand {command}\" -f -a \"(gpuslice complete-slices \
             2>/dev/null)\" -d 'Slice'\n"
        )
    };
    format!("{script}{}", with_slices().into_iter().map(line).collect::<String>())
}

/// Writes the manual pages: `gpuslice man`.
pub(crate) fn write(folder: Option<&Path>) -> Result<Ending, Failure> {
    let mut all = typed().disable_help_subcommand(true);
    all.build();
    match folder {
        Some(folder) => write_all(&all, folder).map_err(|error| {
            Failure::new(format!("{}: {error}; name a folder that can be written", folder.display()))
        })?,
        None => {
            let page = page(&all).map_err(|error| Failure::new(error.to_string()))?;
            failure::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(Ending::Code(0))
}

/// Writes the pages of a command and of its subcommands, each into its file.
fn write_all(command: &clap::Command, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(folder.join(format!("{name}.1")), page(command)?)?;
    command.get_subcommands().try_for_each(|below| write_all(below, folder))
}

/// Returns the page of a command. The examples have a section of their own, which keeps their line breaks.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    writeln!(page, ".SH SYNOPSIS\n{}", synopsis(command))?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (notes, examples): (Vec<&str>, Vec<&str>) = help
        .split("\n\n")
        .filter(|part| !part.is_empty())
        .partition(|part| !part.starts_with(EXAMPLES_HEADING));
    if !notes.is_empty() {
        writeln!(page, ".SH NOTES\n{}", roff(&notes, "\n.PP\n"))?;
    }
    if !examples.is_empty() {
        let examples: Vec<&str> =
            examples.iter().filter_map(|part| part.strip_prefix(EXAMPLES_HEADING)).collect();
        writeln!(page, ".SH EXAMPLES\n.nf\n{}\n.fi", roff(&examples, "\n\n"))?;
    }
    Ok(page)
}

/// Returns the synopsis of a command: options with their values, then arguments.
fn synopsis(command: &clap::Command) -> String {
    let mut words = vec![format!("\\fB{}\\fR", escaped(command.get_bin_name().unwrap_or("gpuslice")))];
    let optional = |text: String, is_required: bool| if is_required { text } else { format!("[{text}]") };
    for option in command.get_opts().chain(flags(command)).filter(|option| !option.is_hide_set()) {
        let long = option.get_long().map(|name| format!("\\fB{}\\fR", escaped(&format!("--{name}"))));
        let Some(mut text) = long else { continue };
        let values = option.get_value_names().filter(|_| option.get_action().takes_values());
        if let Some([value]) = values {
            let value = format!("\\fI{}\\fR", escaped(value));
            let is_optional = option.get_num_args().is_some_and(|range| range.min_values() == 0);
            text.push_str(&if is_optional { format!(" [{value}]") } else { format!(" {value}") });
        }
        words.push(optional(text, option.is_required_set()));
    }
    for argument in command.get_positionals() {
        let id = argument.get_id().as_str().to_uppercase();
        let name = argument.get_value_names().and_then(|names| names.first()).map_or(id, ToString::to_string);
        let many = argument.get_num_args().is_some_and(|range| range.max_values() > 1);
        let text = format!("\\fI{}\\fR{}", escaped(&name), if many { "..." } else { "" });
        words.push(optional(text, argument.is_required_set()));
    }
    if command.has_subcommands() {
        words.push("\\fICOMMAND\\fR [...]".to_owned());
    }
    words.join(" ")
}

/// Returns the options that take no value.
fn flags(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    command.get_arguments().filter(|option| !option.is_positional() && !option.get_action().takes_values())
}

/// Escapes a word for `man`.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Escapes paragraphs for `man`, so that `man` takes no line for a request.
fn roff(paragraphs: &[&str], between: &str) -> String {
    let line = |line: &str| format!("\\&{}", escaped(line));
    let paragraph = |text: &&str| text.lines().map(line).collect::<Vec<_>>().join("\n");
    paragraphs.iter().map(paragraph).collect::<Vec<_>>().join(between)
}
