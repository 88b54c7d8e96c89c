//! Reads the configuration, and names its mistakes.
//!
//! A mistake is told with the file, the line, the key, the value, and a right value. A file that is no TOML, an unknown key and
//! a value of another kind end the reading at once. All other mistakes are told together.

use crate::arguments::{Place, below};
use gpuslice_policy::config::{CorePolicy, DeviceName, Priority, Quota, Weight, refuse_few_bytes};
use gpuslice_policy::units::Permille;
use gpuslice_slices::slot::{Name, Places};
use serde::Deserialize;
use std::fmt;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;

/// Bytes of a configuration at the most.
const MOST_BYTES: u64 = 1 << 20;
/// Slices of a configuration at the most.
const MOST_SLICES: usize = 512;
/// Address of the figures unless the file has another.
const LISTEN: &str = "127.0.0.1:9454";

/// A configuration without mistakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Address of the figures.
    pub(crate) listen: SocketAddr,
    /// Requests of all clients together that are answered in a second.
    pub(crate) rate: u32,
    /// Connections at a time.
    pub(crate) connections: usize,
    /// The preload library that slices get; none: the one beside this program.
    pub(crate) library: Option<PathBuf>,
    /// The folders of slices.
    pub(crate) places: Places,
    /// The socket by which limits are changed.
    pub(crate) socket: PathBuf,
    /// The group whose members may use it beside root.
    pub(crate) group: Option<String>,
    /// Whether slices that others made are looked for.
    pub(crate) discover: bool,
    /// The level of the log.
    pub(crate) log: tracing::Level,
    /// The slices.
    pub(crate) slices: Vec<Wanted>,
}

/// A slice of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its name.
    pub(crate) name: Name,
    /// Its GPU: a number, or a UUID whose beginning is enough.
    pub(crate) gpu: DeviceName,
    /// Device memory that it may hold; none: all.
    pub(crate) memory: Option<Quota>,
    /// Its share of the GPU's time.
    pub(crate) cores: Permille,
    /// Divides that time with others.
    pub(crate) policy: CorePolicy,
    /// Its weight beside others.
    pub(crate) weight: Weight,
    /// Whether it goes first.
    pub(crate) priority: Priority,
    /// Its line of the file, for messages.
    pub(crate) line: usize,
}

/// Something that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    file: PathBuf,
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(out, "{line}:")?;
        }
        write!(out, " {}", self.what)
    }
}

/// The file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    log: Option<Spanned<String>>,
    library: Option<Spanned<PathBuf>>,
    discover: Option<bool>,
    web: Web,
    control: Control,
    paths: Paths,
    slices: Vec<Spanned<Entry>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Web {
    listen: Option<Spanned<String>>,
    requests_per_second: Option<Spanned<i64>>,
    connections: Option<Spanned<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Control {
    group: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Paths {
    state: Option<Spanned<PathBuf>>,
    run: Option<Spanned<PathBuf>>,
    cdi: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    gpu: Spanned<Word>,
    memory: Option<Spanned<Word>>,
    cores: Option<Spanned<Word>>,
    policy: Option<Spanned<String>>,
    weight: Option<Spanned<Word>>,
    priority: Option<Spanned<String>>,
}

/// A value that may be written with quotes or without.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a number or a text in quotes")]
enum Word {
    Text(String),
    Integer(i64),
    Float(f64),
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Integer(number) => number.fmt(out),
            Self::Float(number) => number.fmt(out),
        }
    }
}

/// Reads values, and gathers what is wrong with them.
struct Reading<'a> {
    file: &'a Path,
    text: &'a str,
    mistakes: Vec<Mistake>,
}

impl Reading<'_> {
    /// The line of a byte of the file, from 1.
    fn line(&self, byte: usize) -> usize {
        self.text.bytes().take(byte).filter(|byte| *byte == b'\n').count().saturating_add(1)
    }

    fn wrong(&mut self, at: usize, what: String) {
        let line = Some(self.line(at));
        self.mistakes.push(Mistake { file: self.file.to_owned(), line, what });
    }

    /// The value of a key, if `parse` takes it.
    fn value<S: ToString, T>(
        &mut self,
        key: &str,
        said: Option<&Spanned<S>>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let said = said?;
        let text = said.get_ref().to_string();
        match parse(&text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.wrong(said.span().start, format!("{key} = {text:?}: {why}"));
                None
            }
        }
    }

    /// The value of a key that is read as settings are.
    fn setting<S: ToString, T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &str,
        said: Option<&Spanned<S>>,
    ) -> Option<T> {
        self.value(key, said, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// A whole number within bounds.
    fn number(&mut self, key: &str, said: Option<&Spanned<i64>>, least: i64, most: i64) -> Option<i64> {
        self.value(key, said, |text| {
            let number = text.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("write a whole number from {least} to {most}"))
        })
    }

    /// A path that does not depend on where the agent was started.
    fn path(&mut self, key: &str, said: Option<&Spanned<PathBuf>>) -> Option<PathBuf> {
        let said = said?;
        let path = said.get_ref().clone();
        if !path.is_absolute() {
            self.wrong(
                said.span().start,
                format!("{key} = {path:?}: write an absolute path, with a / in front"),
            );
        }
        Some(path)
    }

    fn slice(&mut self, number: usize, said: &Spanned<Entry>) -> Option<Wanted> {
        let Entry { name, gpu, memory, cores, policy, weight, priority } = said.get_ref();
        let key = |key: &str| format!("slices[{number}].{key}");
        let before = self.mistakes.len();
        let name = self.setting(&key("name"), Some(name));
        let gpu = self.value(&key("gpu"), Some(gpu), |text| {
            let meant = text.parse::<DeviceName>();
            meant.map_err(|_| {
                "write the number that nvidia-smi shows, like 0, or a UUID, like \"GPU-8932f937\"".to_owned()
            })
        });
        let memory = self.value(&key("memory"), memory.as_ref(), |text| {
            refuse_few_bytes(text).map_err(|error| error.to_string())?;
            text.parse::<Quota>().map_err(|fault| fault.to_string())
        });
        let cores = self.setting(&key("cores"), cores.as_ref());
        let policy = self.setting(&key("policy"), policy.as_ref());
        let weight = self.setting(&key("weight"), weight.as_ref());
        let priority = self.setting(&key("priority"), priority.as_ref());
        let line = self.line(said.span().start);
        (self.mistakes.len() == before).then_some(Wanted {
            name: name?,
            gpu: gpu?,
            memory,
            cores: cores.unwrap_or(Permille::FULL),
            policy: policy.unwrap_or_default(),
            weight: weight.unwrap_or_default(),
            priority: priority.unwrap_or_default(),
            line,
        })
    }
}

impl Config {
    /// Reads the configuration of a place.
    ///
    /// # Errors
    /// All mistakes; at least one.
    pub(crate) fn read(place: &Place) -> Result<Self, Vec<Mistake>> {
        let file = place.config();
        let unreadable = |what: String| vec![Mistake { file: file.clone(), line: None, what }];
        let mut text = String::new();
        std::fs::File::open(&file)
            .and_then(|opened| opened.take(MOST_BYTES.saturating_add(1)).read_to_string(&mut text))
            .map_err(|error| {
                unreadable(format!("cannot be read: {error}; write it, or name another with --config"))
            })?;
        if u64::try_from(text.len()).is_ok_and(|bytes| bytes > MOST_BYTES) {
            return Err(unreadable(format!(
                "is larger than {MOST_BYTES} bytes; name a configuration with --config"
            )));
        }
        Self::parse(&file, &text, &place.root)
    }

    /// Whether another configuration has the same values of the keys that hold from the start to the end of an agent.
    pub(crate) fn serves_as(&self, other: &Self) -> bool {
        let of = |config: &Self| {
            let Self { listen, rate, connections, places, socket, group, log, .. } = config.clone();
            (listen, rate, connections, places, socket, group, log)
        };
        of(self) == of(other)
    }

    fn parse(file: &Path, text: &str, root: &Path) -> Result<Self, Vec<Mistake>> {
        let mut reading = Reading { file, text, mistakes: Vec::new() };
        let said: File = match toml::from_str(text) {
            Ok(said) => said,
            Err(error) => {
                let (at, what) =
                    (error.span().map_or(0, |span| span.start), error.message().replace('\n', " "));
                reading.wrong(at, told_of_key(text, at, &what));
                return Err(reading.mistakes);
            }
        };
        let log = reading.value("log", said.log.as_ref(), |text| {
            text.parse().map_err(|_| "write error, warn, info, debug or trace".to_owned())
        });
        let listen = reading.value("web.listen", said.web.listen.as_ref(), |text| {
            text.parse().map_err(|_| format!("write an address and a port, like {LISTEN} or [::1]:9454"))
        });
        let rate =
            reading.number("web.requests_per_second", said.web.requests_per_second.as_ref(), 1, 10_000);
        let connections = reading.number("web.connections", said.web.connections.as_ref(), 1, 1024);
        let library = reading.path("library", said.library.as_ref());
        let state = reading.path("paths.state", said.paths.state.as_ref());
        let run = reading.path("paths.run", said.paths.run.as_ref());
        let cdi = reading.path("paths.cdi", said.paths.cdi.as_ref());
        let group = reading.value("control.group", said.control.group.as_ref(), |text| match text {
            "" => Err("write the name of a group, or leave the key out for root alone".to_owned()),
            name => Ok(name.to_owned()),
        });
        let mut slices: Vec<Wanted> = Vec::new();
        for (number, entry) in said.slices.iter().enumerate() {
            let Some(slice) = reading.slice(number, entry) else { continue };
            if let Some(other) = slices.iter().find(|other| other.name == slice.name) {
                let what = format!(
                    "slices[{number}].name = \"{}\": line {} has that name; choose another",
                    slice.name, other.line
                );
                reading.wrong(entry.get_ref().name.span().start, what);
            }
            slices.push(slice);
        }
        if slices.len() > MOST_SLICES {
            let what = format!(
                "slices: {} are more than the {MOST_SLICES} that one agent makes; leave some out",
                slices.len()
            );
            reading.wrong(0, what);
        }
        if !reading.mistakes.is_empty() {
            return Err(reading.mistakes);
        }
        let host = |path: Option<PathBuf>, usual: &str| below(root, &path.unwrap_or_else(|| usual.into()));
        let run = host(run, "/run/gpuslice");
        Ok(Self {
            listen: listen
                .or_else(|| LISTEN.parse().ok())
                .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9454))),
            rate: rate.and_then(|rate| u32::try_from(rate).ok()).unwrap_or(50),
            connections: connections.and_then(|most| usize::try_from(most).ok()).unwrap_or(32),
            library,
            places: Places {
                state: host(state, "/var/lib/gpuslice"),
                regions: run.join("slots"),
                cdi: host(cdi, "/var/run/cdi"),
            },
            socket: run.join("agent.sock"),
            group,
            discover: said.discover.unwrap_or(true),
            log: log.unwrap_or(tracing::Level::INFO),
            slices,
        })
    }
}

/// The message of the TOML reader, with the key that stands on the line.
fn told_of_key(text: &str, at: usize, what: &str) -> String {
    let begin = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end.saturating_add(1));
    let line = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() && !what.contains("unknown field") => {
            format!("{}: {what}", key.trim())
        }
        _ => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Vec<String>> {
        let told = |mistakes: Vec<Mistake>| mistakes.iter().map(Mistake::to_string).collect();
        Config::parse(Path::new("agent.toml"), text, Path::new("/")).map_err(told)
    }

    #[test]
    fn an_empty_file_is_a_configuration_without_slices() {
        let config = parse("").unwrap();
        assert_eq!(config.listen.to_string(), LISTEN);
        assert!(config.listen.ip().is_loopback());
        assert_eq!(config.socket, Path::new("/run/gpuslice/agent.sock"));
        assert_eq!(config.places.state, Path::new("/var/lib/gpuslice"));
        assert!(config.slices.is_empty() && config.group.is_none());
    }

    #[test]
    fn the_example_is_right_and_has_every_key() {
        let text = include_str!("../../../examples/agent/agent.toml");
        let config = parse(text).unwrap();
        assert_eq!(config.slices.len(), 2);
        // A comment `# key = value` counts as well.
        for key in [
            "log",
            "library",
            "discover",
            "listen",
            "requests_per_second",
            "connections",
            "group",
            "state",
            "run",
            "cdi",
            "name",
            "gpu",
            "memory",
            "cores",
            "policy",
            "weight",
            "priority",
        ] {
            let is_set = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
            assert!(text.lines().any(is_set), "{key}");
        }
    }

    #[test]
    fn a_slice_has_what_it_says_and_else_the_defaults() {
        let config = parse(
            "[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"4GiB\"\ncores = 12.5\npolicy = \"equal\"\nweight = 300\npriority = \"high\"\n\
             [[slices]]\nname = \"b\"\ngpu = \"GPU-8932f937\"\ncores = \"30\"\n",
        )
        .unwrap();
        let [a, b] = config.slices.as_slice() else { panic!("{config:?}") };
        assert_eq!(
            (a.cores.get(), a.policy, a.weight.get(), a.priority),
            (125, CorePolicy::Equal, 300, Priority::High)
        );
        assert_eq!(a.gpu, DeviceName::Ordinal(0));
        assert_eq!((b.memory, b.cores.get(), b.policy, b.line), (None, 300, CorePolicy::Fixed, 9));
    }

    #[test]
    fn every_mistake_is_told_with_its_line_its_key_its_value_and_what_would_be_right() {
        let text = "log = \"loud\"\n[web]\nlisten = \"9454\"\nconnections = 0\n[paths]\nrun = \"run\"\n\
            [[slices]]\nname = \"a b\"\ngpu = \"zero\"\nmemory = \"4Gigs\"\ncores = 0\npolicy = \"fair\"\nweight = 0\npriority = \"urgent\"\n\
            [[slices]]\nname = \"b\"\ngpu = 0\nmemory = 4096\n";
        let mistakes = parse(text).unwrap_err();
        let expected = [
            ("agent.toml:1: log = \"loud\": ", "write error, warn"),
            ("agent.toml:3: web.listen = \"9454\": ", "127.0.0.1:9454"),
            ("agent.toml:4: web.connections = \"0\": ", "from 1 to 1024"),
            ("agent.toml:6: paths.run = \"run\": ", "absolute path"),
            ("agent.toml:8: slices[0].name = \"a b\": ", "letter or digit"),
            ("agent.toml:9: slices[0].gpu = \"zero\": ", "nvidia-smi"),
            ("agent.toml:10: slices[0].memory = \"4Gigs\": ", "4GiB"),
            ("agent.toml:11: slices[0].cores = \"0\": ", "1 to 100"),
            ("agent.toml:12: slices[0].policy = \"fair\": ", "best-effort"),
            ("agent.toml:13: slices[0].weight = \"0\": ", "1 to 1000"),
            ("agent.toml:14: slices[0].priority = \"urgent\": ", "high, normal or low"),
            ("agent.toml:18: slices[1].memory = \"4096\": ", "4096MiB"),
        ];
        assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
        for (mistake, (begins, has)) in mistakes.iter().zip(expected) {
            assert!(mistake.starts_with(begins) && mistake.contains(has), "{mistake}");
        }
    }

    #[test]
    fn what_is_no_configuration_at_all_is_told_with_its_line() {
        for (text, begins, has) in [
            ("web = 1\n", "agent.toml:1: web: ", "expected"),
            (
                "[web]\nlisten = \"x\"\nport = 1\n",
                "agent.toml:3: ",
                "unknown field `port`, expected one of `listen`",
            ),
            ("\n[[slices]]\nname = \"a\"\n", "agent.toml:2: ", "missing field `gpu`"),
            ("[[slices]]\nname = \"a\"\ngpu = true\n", "agent.toml:3: gpu: ", "a number or a text in quotes"),
            ("[web]\nlisten = \"x\"\nlisten = \"y\"\n", "agent.toml:3: ", "duplicate key"),
            ("name = \n", "agent.toml:1: ", ""),
        ] {
            let mistakes = parse(text).unwrap_err();
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
            assert!(mistakes[0].starts_with(begins) && mistakes[0].contains(has), "{mistakes:?}");
        }
    }

    #[test]
    fn keys_that_hold_until_the_end_of_an_agent_are_compared() {
        let served = parse("").unwrap();
        for same in ["discover = false\n", "[[slices]]\nname = \"a\"\ngpu = 0\n", "library = \"/x.so\"\n"] {
            assert!(served.serves_as(&parse(same).unwrap()), "{same}");
        }
        for other in [
            "log = \"debug\"\n",
            "[web]\nlisten = \"[::1]:1\"\n",
            "[web]\nconnections = 2\n",
            "[web]\nrequests_per_second = 2\n",
            "[control]\ngroup = \"x\"\n",
            "[paths]\nrun = \"/x\"\n",
        ] {
            assert!(!served.serves_as(&parse(other).unwrap()), "{other}");
        }
    }

    #[test]
    fn two_slices_of_one_name_are_told_with_the_line_of_the_first() {
        let text = "[[slices]]\nname = \"a\"\ngpu = 0\n[[slices]]\nname = \"a\"\ngpu = 1\n";
        assert_eq!(
            parse(text).unwrap_err(),
            ["agent.toml:5: slices[1].name = \"a\": line 1 has that name; choose another"]
        );
    }
}
