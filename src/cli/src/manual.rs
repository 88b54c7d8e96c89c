//! How do shells and `man` learn what can be typed? From the declarations of `arguments`.

use crate::Ending;
use crate::arguments::Arguments;
use crate::failure::{self, Failure};
use clap::CommandFactory as _;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// What begins the examples in the help of a command.
const EXAMPLES: &str = "Examples:\n";

/// What people type: without the commands that nobody does.
fn typed() -> clap::Command {
    let all = Arguments::command();
    let typed: Vec<_> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let shown = clap::Command::new("gpuslice").version(env!("CARGO_PKG_VERSION"));
    let about = all.get_about().cloned().unwrap_or_default();
    let examples = all.get_after_help().cloned().unwrap_or_default();
    shown.about(about).after_help(examples).disable_help_subcommand(true).subcommands(typed)
}

/// `gpuslice completions`.
pub(crate) fn complete(shell: clap_complete::Shell) -> Result<Ending, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut typed(), "gpuslice", &mut script);
    failure::print(&String::from_utf8_lossy(&script))?;
    Ok(Ending::Code(0))
}

/// `gpuslice man`.
pub(crate) fn write(folder: Option<&Path>) -> Result<Ending, Failure> {
    let mut all = typed();
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

/// The pages of a command and of those below it, each in its file.
fn write_all(command: &clap::Command, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    fs::write(folder.join(format!("{name}.1")), page(command)?)?;
    command.get_subcommands().try_for_each(|below| write_all(below, folder))
}

/// One page. Examples have a section of their own, in which lines stay lines.
fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (notes, examples): (Vec<&str>, Vec<&str>) =
        help.split("\n\n").filter(|part| !part.is_empty()).partition(|part| !part.starts_with(EXAMPLES));
    if !notes.is_empty() {
        writeln!(page, ".SH NOTES\n{}", roff(&notes, "\n.PP\n"))?;
    }
    if !examples.is_empty() {
        let examples: Vec<&str> = examples.iter().filter_map(|part| part.strip_prefix(EXAMPLES)).collect();
        writeln!(page, ".SH EXAMPLES\n.nf\n{}\n.fi", roff(&examples, "\n\n"))?;
    }
    Ok(page)
}

/// Paragraphs as `man` reads them: nothing in them is an order.
fn roff(paragraphs: &[&str], between: &str) -> String {
    let line = |line: &str| format!("\\&{}", line.replace('\\', "\\e").replace('-', "\\-"));
    let paragraph = |text: &&str| text.lines().map(line).collect::<Vec<_>>().join("\n");
    paragraphs.iter().map(paragraph).collect::<Vec<_>>().join(between)
}
