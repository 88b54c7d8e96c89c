//! Declares the arguments of `gpuslice-agent`.

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const EXAMPLES: &str = "\
Examples:
  gpuslice-agent check                               is /etc/gpuslice/agent.toml right?
  gpuslice-agent                                     make its slices, and serve figures until SIGTERM
  gpuslice-agent run --config agent.toml             the same with another file
  curl http://127.0.0.1:9454/metrics                 figures for Prometheus; / is a page for people
  podman run --device gpuslice.dev/slice=a IMAGE     a container in the slice a

SIGHUP reads the configuration again. The log names its mistakes; with any, the old one stays.
docs/reference/agent.md has every key of the configuration, every metric, and the form of the JSON.

Exit codes: 0 done, 1 failed, 2 the arguments are wrong, 3 `check` found mistakes.";

/// Makes the slices of a node, and shows the use of all of its slices.
#[derive(Debug, Parser)]
#[command(name = "gpuslice-agent", version, after_help = EXAMPLES, disable_version_flag = true)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(subcommand)]
    pub(crate) wish: Option<Task>,
    #[command(flatten)]
    pub(crate) place: ConfigPlace,
}

/// The task.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Make the slices, and serve figures until SIGTERM (the default without a subcommand)
    Run(ConfigPlace),
    /// Report each mistake of the configuration, with a right value
    Check(ConfigPlace),
    /// Tell a Kubernetes scheduler which nodes have room for a pod, and bind pods, until SIGTERM
    Extender(Extender),
    /// Answer questions about NVML on standard input (for `run`)
    #[command(hide = true)]
    NvmlWorker,
    /// Print a shell's completion script
    Completions {
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page (for packages)
    #[command(hide = true)]
    Man,
}

/// Writes the completion script of a shell.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write_completions(shell: Shell, script: &mut impl Write) -> io::Result<()> {
    // For a command's name with a hyphen, clap writes bash names that do not fit together in different parts of the script.
    let name = if shell == Shell::Bash { "gpusliceagent" } else { "gpuslice-agent" };
    let all = Arguments::command();
    let typed: Vec<_> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let shown = clap::Command::new(name).version(env!("CARGO_PKG_VERSION")).disable_version_flag(true);
    let mut shown = shown.args(all.get_arguments().cloned()).subcommands(typed);
    let mut written = Vec::new();
    clap_complete::generate(shell, &mut shown, name, &mut written);
    let written = String::from_utf8_lossy(&written);
    script.write_all(written.replace(" gpusliceagent\n", " gpuslice-agent\n").as_bytes())
}

/// Writes the manual page of the command. The examples keep their line breaks.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write_manual(page: &mut impl Write) -> io::Result<()> {
    let man = Man::new(Arguments::command());
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    writeln!(page, ".SH COMMANDS")?;
    for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(page, ".TP\n\\fB{}\\fR\n{about}", command.get_name())?;
    }
    writeln!(page, ".SH NOTES\n.nf")?;
    for line in EXAMPLES.lines() {
        writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    writeln!(page, ".fi")
}

/// An extender of a scheduler.
#[derive(Debug, Clone, Args)]
pub(crate) struct Extender {
    /// The address and port at which the scheduler calls the extender
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9455")]
    pub(crate) listen: SocketAddr,
    /// GPUs that are filled first: the fullest with room, or the emptiest
    #[arg(long, value_enum, default_value_t)]
    pub(crate) order: Order,
    /// The apiserver's address without TLS, like that of kubectl proxy [default: the cluster's, as a pod knows it]
    #[arg(long, value_name = "URL")]
    pub(crate) apiserver: Option<String>,
    /// The Lease by which one of several extenders binds pods [default: this is the only extender]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) lease: Option<Lease>,
    /// Serve /healthz, /readyz and /metrics, and nothing else, at this address too
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) health: Option<SocketAddr>,
}

/// A Lease of the apiserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |text: &str| !text.is_empty() && !text.contains('/');
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("write NAMESPACE/NAME, like gpuslice/gpuslice-extender".to_owned()),
        }
    }
}

/// The GPUs that are filled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Order {
    /// The fullest.
    #[default]
    Binpack,
    /// The emptiest.
    Spread,
}

/// The place of the configuration.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigPlace {
    /// The configuration [default: /etc/gpuslice/agent.toml]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Put this folder before every path of the host that the agent writes, or reads its configuration from
    #[arg(long, value_name = "DIR", default_value = "/", value_hint = clap::ValueHint::DirPath)]
    pub(crate) root: PathBuf,
}

impl ConfigPlace {
    /// Returns the path of the configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.config.clone().unwrap_or_else(|| below(&self.root, Path::new("/etc/gpuslice/agent.toml")))
    }
}

/// Returns a path of the host as a path below `root`.
pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_manual_has_the_visible_commands_and_the_examples_line_by_line() {
        let mut page = Vec::new();
        write_manual(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains(".TP\n\\fBcheck\\fR\nReport each mistake"), "{page}");
        assert!(page.contains("\n\\&  gpuslice\\-agent check  "), "{page}");
        assert!(!page.contains("Answer questions"), "{page}");
    }

    #[test]
    fn a_lease_has_a_namespace_and_a_name() {
        let lease: Lease = "a/b".parse().unwrap();
        assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("a", "b"));
        for wrong in ["", "a", "/", "a/", "/b", "a/b/c"] {
            assert!(wrong.parse::<Lease>().unwrap_err().contains("NAMESPACE/NAME"), "{wrong}");
        }
    }

    #[test]
    fn paths_lie_below_the_root() {
        let parse =
            |typed: &[&str]| Arguments::try_parse_from([&["gpuslice-agent"], typed].concat()).unwrap();
        assert_eq!(parse(&[]).place.config(), Path::new("/etc/gpuslice/agent.toml"));
        assert_eq!(parse(&["--root", "/x"]).place.config(), Path::new("/x/etc/gpuslice/agent.toml"));
        let Some(Task::Check(place)) = parse(&["check", "--config", "y", "--root", "/x"]).wish else {
            panic!()
        };
        assert_eq!(place.config(), Path::new("y"));
        assert_eq!(below(Path::new("/"), Path::new("/run/x")), Path::new("/run/x"));
    }

    #[test]
    fn bash_completes_the_arguments_of_each_command() {
        let mut script = Vec::new();
        write_completions(Shell::Bash, &mut script).unwrap();
        let script = String::from_utf8(script).unwrap();
        let bound = |line: &&str| line.contains("-F _gpusliceagent") && line.ends_with(" gpuslice-agent");
        assert!(script.lines().any(|line| bound(&line)), "{script}");
        let names = script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\"")?.strip_suffix('"'));
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        assert!(names.len() > 4, "{names:?}");
        for name in names {
            assert!(script.contains(&format!("\n        {name})\n")), "{name} has no arguments");
        }
    }
}
