//! How do shells and `man` learn what can be typed? From the declarations of `arguments`.

use crate::Ending;
use crate::arguments::Arguments;
use crate::failure::{self, Failure};
use clap::CommandFactory as _;
use std::path::Path;

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
    match folder {
        Some(folder) => clap_mangen::generate_to(typed(), folder).map_err(|error| {
            Failure::new(format!("{}: {error}; name a folder that can be written", folder.display()))
        })?,
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(typed()).render(&mut page);
            rendered.map_err(|error| Failure::new(error.to_string()))?;
            failure::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(Ending::Code(0))
}
