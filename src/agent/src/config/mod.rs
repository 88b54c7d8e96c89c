//! Reads the configuration, and names its mistakes.
//!
//! A message names the file, the line, the key, the value, and a right value. Three mistakes end the reading at once: a file
//! that is no TOML, an unknown key, and a value of another kind. All other mistakes are reported together.

mod cluster;
mod file;
mod reading;
mod slices;

use crate::arguments::{ConfigPlace, below};
use file::File;
use gpuslice_slices::slot::Places;
use reading::Reading;
use slices::slices;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use toml::Spanned;

pub(crate) use cluster::{Cluster, Mode};
pub(crate) use reading::Mistake;
pub(crate) use slices::SliceConfig;

/// Most bytes of a configuration.
const MOST_CONFIG_BYTES: u64 = 1 << 20;
/// Address at which the agent serves figures, unless the file has another one.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9454);

/// A configuration without mistakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Address at which the agent serves figures.
    pub(crate) listen: SocketAddr,
    /// Most requests of all clients together that the agent answers in a second.
    pub(crate) rate: u32,
    /// Most connections that are open at a time.
    pub(crate) connections: usize,
    /// True if the agent shows the arguments of commands.
    pub(crate) arguments: bool,
    /// The preload library that slices get. `None`: the library that was installed beside this program.
    pub(crate) library: Option<PathBuf>,
    /// The folders in which the agent makes slices.
    pub(crate) places: Places,
    /// The folder of the control socket and of the lock.
    pub(crate) run: PathBuf,
    /// The group whose members may change limits. Root may change them too.
    pub(crate) group: Option<String>,
    /// Most slices of other programs that the agent shows. If the value is 0, the agent does not look for them.
    pub(crate) discover: usize,
    /// The level of the log.
    pub(crate) log: tracing::Level,
    /// The cluster that the node belongs to; `None` if the agent serves no kubelet.
    pub(crate) cluster: Option<Cluster>,
    /// The slices.
    pub(crate) slices: Vec<SliceConfig>,
}

impl Config {
    /// Reads the configuration at a place.
    ///
    /// # Errors
    /// All mistakes. There is at least one.
    pub(crate) fn read(place: &ConfigPlace) -> Result<Self, Vec<Mistake>> {
        let file = place.config();
        let unreadable = |what: String| vec![Mistake::of(&file, what)];
        let mut text = String::new();
        std::fs::File::open(&file)
            .and_then(|opened| opened.take(MOST_CONFIG_BYTES.saturating_add(1)).read_to_string(&mut text))
            .map_err(|error| {
                unreadable(format!("cannot be read: {error}; write it, or name another with --config"))
            })?;
        if u64::try_from(text.len()).is_ok_and(|bytes| bytes > MOST_CONFIG_BYTES) {
            return Err(unreadable(format!(
                "is larger than {MOST_CONFIG_BYTES} bytes; name a configuration with --config"
            )));
        }
        Self::parse(&file, &text, &place.root)
    }

    /// Returns true if another configuration has the same values of the keys that the agent applies only at its start.
    pub(crate) fn serves_as(&self, other: &Self) -> bool {
        let of = |config: &Self| {
            let Self { listen, rate, connections, arguments, places, run, group, log, cluster, .. } =
                config.clone();
            (listen, rate, connections, arguments, places, run, group, log, cluster)
        };
        of(self) == of(other)
    }

    /// Returns the path of the socket by which clients change limits.
    pub(crate) fn socket(&self) -> PathBuf {
        self.run.join("agent.sock")
    }

    fn parse(file: &Path, text: &str, root: &Path) -> Result<Self, Vec<Mistake>> {
        let mut reading = Reading::of(file, text);
        let config = reading.file().map(|said| Self::of(&mut reading, &said, root));
        match config {
            Some(config) if reading.mistakes.is_empty() => Ok(config),
            _ => Err(reading.mistakes),
        }
    }

    /// Returns the configuration of a file. The caller must not use it if `reading` has mistakes after the call.
    fn of(reading: &mut Reading<'_>, said: &File, root: &Path) -> Self {
        let log = reading.value("log", said.log.as_ref(), |text| {
            text.parse().map_err(|_| "write error, warn, info, debug or trace".to_owned())
        });
        let listen = reading.value("web.listen", said.web.listen.as_ref(), |text| {
            text.parse().map_err(|_| format!("write an address and a port, like {LISTEN} or [::1]:9454"))
        });
        let rate = reading.number("web.requests_per_second", said.web.requests_per_second.as_ref(), 10_000);
        let connections = reading.number("web.connections", said.web.connections.as_ref(), 1024);
        let found = reading.number("discover_limit", said.discover_limit.as_ref(), 1024);
        let group = reading.value("control.group", said.control.group.as_ref(), |text| match text {
            "" => Err("write the name of a group, or leave the key out for root alone".to_owned()),
            name => Ok(name.to_owned()),
        });
        let mut host = |key, said: Option<&Spanned<PathBuf>>, usual: &str| {
            below(root, &reading.path(key, said).unwrap_or_else(|| usual.into()))
        };
        let run = host("paths.run", said.paths.run.as_ref(), "/run/gpuslice");
        let places = Places {
            state: host("paths.state", said.paths.state.as_ref(), "/var/lib/gpuslice"),
            regions: run.join("slots"),
            cdi: host("paths.cdi", said.paths.cdi.as_ref(), "/var/run/cdi"),
        };
        let cluster = said.kubernetes.as_ref().and_then(|said| cluster::cluster(reading, said, root));
        let slices = slices(reading, &said.slices);
        if cluster.is_some() {
            cluster::refuse_slots(reading, &said.slices, &slices);
        }
        let discovers = said.discover.unwrap_or(true);
        Self {
            listen: listen.unwrap_or(LISTEN),
            rate: rate.unwrap_or(50),
            connections: size(connections.unwrap_or(32)),
            arguments: said.web.arguments.unwrap_or(false),
            library: reading.path("library", said.library.as_ref()),
            places,
            run,
            group,
            discover: if discovers { size(found.unwrap_or(256)) } else { 0 },
            log: log.unwrap_or(tracing::Level::INFO),
            cluster,
            slices,
        }
    }
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_policy::config::{CorePolicy, DeviceName, Priority};

    fn parse(text: &str) -> Result<Config, Vec<String>> {
        let told = |mistakes: Vec<Mistake>| mistakes.iter().map(Mistake::to_string).collect();
        Config::parse(Path::new("agent.toml"), text, Path::new("/")).map_err(told)
    }

    #[test]
    fn an_empty_file_is_a_configuration_without_slices() {
        let config = parse("").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:9454");
        assert_eq!(config.socket(), Path::new("/run/gpuslice/agent.sock"));
        assert_eq!(config.places.state, Path::new("/var/lib/gpuslice"));
        assert!(config.slices.is_empty() && config.group.is_none());
        assert_eq!((config.discover, config.arguments), (256, false));
    }

    #[test]
    fn slices_of_others_are_looked_for_up_to_a_limit_or_not_at_all() {
        let limit = |text: &str| parse(text).unwrap().discover;
        assert_eq!(limit("discover_limit = 500\n"), 500);
        assert_eq!(limit("discover_limit = 500\ndiscover = false\n"), 0);
        assert!(parse("discover_limit = 0\n").unwrap_err()[0].contains("from 1 to 1024"));
    }

    #[test]
    fn the_example_is_right_and_has_every_key() {
        let text = include_str!("../../../../examples/agent/agent.toml");
        let config = parse(text).unwrap();
        assert_eq!(config.slices.len(), 2);
        // The commented keys `# key = value` of the example count too.
        for key in [
            "log",
            "library",
            "discover",
            "discover_limit",
            "listen",
            "requests_per_second",
            "connections",
            "arguments",
            "group",
            "node",
            "apiserver",
            "kubelet",
            "slots_per_gpu",
            "auto_alloc",
            "resize",
            "mode",
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
    fn a_slice_has_its_own_values_and_defaults_for_the_others() {
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
    fn every_mistake_has_its_line_its_key_its_value_and_a_right_value() {
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
    fn a_mistake_of_form_has_its_line() {
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
        for same in [
            "discover = false\n",
            "[[slices]]\nname = \"a\"\ngpu = 0\n",
            "library = \"/x.so\"\n",
            "discover_limit = 9\n",
        ] {
            assert!(served.serves_as(&parse(same).unwrap()), "{same}");
        }
        for other in [
            "log = \"debug\"\n",
            "[web]\nlisten = \"[::1]:1\"\n",
            "[web]\nconnections = 2\n",
            "[web]\nrequests_per_second = 2\n",
            "[web]\narguments = true\n",
            "[control]\ngroup = \"x\"\n",
            "[kubernetes]\nnode = \"x\"\n",
            "[paths]\nrun = \"/x\"\n",
        ] {
            assert!(!served.serves_as(&parse(other).unwrap()), "{other}");
        }
    }

    #[test]
    fn a_node_of_a_cluster_has_a_name_and_its_slots_are_the_kubelets() {
        let cluster = parse("[kubernetes]\nnode = \"n1\"\nauto_alloc = true\n").unwrap().cluster.unwrap();
        assert_eq!((cluster.node.as_str(), cluster.slots_per_gpu, cluster.auto_alloc), ("n1", 16, true));
        assert!(!cluster.resize, "the agent cannot know whether a cluster has the policies");
        let resizing = parse("[kubernetes]\nnode = \"n1\"\nresize = true\n").unwrap().cluster.unwrap();
        assert!(resizing.resize);
        assert_eq!((cluster.apiserver, cluster.kubelet), (None, PathBuf::from("/var/lib/kubelet")));
        assert_eq!(cluster.mode, Mode::DevicePlugin);
        let dra = parse("[kubernetes]\nnode = \"n1\"\nmode = \"dra\"\n").unwrap().cluster.unwrap();
        assert_eq!(dra.mode, Mode::Dra);
        assert_eq!(parse("").unwrap().cluster, None);
        let slice = "[[slices]]\nname = \"slot-3\"\ngpu = 0\n";
        assert!(parse(slice).is_ok());
        for (text, has) in [
            ("[kubernetes]\nnode = \"\"\n", "NODE_NAME"),
            ("[kubernetes]\nnode = \"n\"\nslots_per_gpu = 0\n", "from 1 to 256"),
            ("[kubernetes]\nnode = \"n\"\napiserver = \"https://x\"\n", "http://127.0.0.1:8001"),
            ("[kubernetes]\nnode = \"n\"\nkubelet = \"x\"\n", "absolute path"),
            ("[kubernetes]\nnode = \"n\"\nmode = \"both\"\n", "write device-plugin or dra"),
            (
                "[kubernetes]\nnode = \"n\"\nmode = \"dra\"\nauto_alloc = true\n",
                "agent.toml:4: kubernetes.auto_alloc: belongs to the mode device-plugin",
            ),
            (
                "[kubernetes]\nnode = \"n\"\nmode = \"dra\"\nresize = true\n",
                "agent.toml:4: kubernetes.resize: belongs to the mode device-plugin",
            ),
            (
                "[kubernetes]\nnode = \"n\"\n[[slices]]\nname = \"claim-a\"\ngpu = 0\n",
                "slices[0].name = \"claim-a\": the kubelet's slots and claims",
            ),
            (
                &format!("[kubernetes]\nnode = \"n\"\n{slice}"),
                "slices[0].name = \"slot-3\": the kubelet's slots",
            ),
        ] {
            let mistakes = parse(text).unwrap_err();
            assert!(mistakes.len() == 1 && mistakes[0].contains(has), "{mistakes:?}");
        }
    }

    #[test]
    fn a_second_slice_of_a_name_is_a_mistake_with_the_line_of_the_first() {
        let text = "[[slices]]\nname = \"a\"\ngpu = 0\n[[slices]]\nname = \"a\"\ngpu = 1\n";
        assert_eq!(
            parse(text).unwrap_err(),
            ["agent.toml:5: slices[1].name = \"a\": line 1 has that name; choose another"]
        );
    }
}
