//! A node with a simulated GPU, an agent, and containers.

use crate::openmetrics::Metrics;
use crate::support::artefacts;
use crate::support::bench::Bench;
use crate::support::command::{Ended, PROGRAM, end, gpuslice};
use crate::support::container;
use crate::support::living::{Living, send};
use crate::support::other_user::OtherUser;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time within which an expected state is reached, on a machine that has other things to do.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Writes a line to a socket, and prints the answer.
const TALK: &str = "my $socket = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die \"$!\\n\"; \
                    print $socket \"$ARGV[1]\\n\"; print scalar <$socket>";

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A node: a simulated GPU, an agent, and a root folder.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) bench: Bench,
    root: TempDir,
    agent: Option<Child>,
    address: Option<SocketAddr>,
    /// Words of a command that starts the agent; none to start it directly.
    before: Vec<String>,
}

impl Node {
    /// Starts a node with a configuration, and waits until its agent serves.
    pub(crate) fn start(slices: &str) -> Self {
        Self::start_on(Bench::simulated_without_contexts(), slices)
    }

    pub(crate) fn start_on(bench: Bench, slices: &str) -> Self {
        Self::start_under(&[], bench, slices)
    }

    /// Starts a node like [`start_on`](Self::start_on), whose agent is started by a command.
    pub(crate) fn start_under(before: &[&str], bench: Bench, slices: &str) -> Self {
        let root = TempDir::new_in("/dev/shm").expect("a folder can be made");
        let before = before.iter().map(|word| (*word).to_owned()).collect();
        let mut node = Self { bench, root, agent: None, address: None, before };
        node.configure(slices);
        node.begin();
        node
    }

    /// Writes the configuration, with a port that the system chooses. The agent looks for other slices of this machine only if
    /// the configuration says so. The GPUs of two simulated machines have the same UUIDs.
    pub(crate) fn configure(&self, slices: &str) {
        let discover = if slices.contains("discover = ") { "" } else { "discover = false\n" };
        fs::create_dir_all(self.at("/etc/gpuslice")).expect("a folder can be made");
        let web = if slices.contains("[web]") { "" } else { "[web]\nlisten = \"127.0.0.1:0\"\n" };
        fs::write(self.at("/etc/gpuslice/agent.toml"), format!("{discover}{slices}{web}"))
            .expect("it can be written");
    }

    /// Returns a path of the node as a path of this machine.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Returns the region of a slice that the agent made.
    pub(crate) fn region(&self, slice: &str) -> PathBuf {
        self.at(&format!("/run/gpuslice/slots/{slice}/region"))
    }

    pub(crate) fn bench_folder(&self) -> PathBuf {
        self.bench.folder()
    }

    /// Prepares the agent's command.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let words: Vec<_> = self.before.iter().map(PathBuf::from).chain([artefacts::agent()]).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments).arg("--root").arg(self.root.path()).env_clear();
        command
            .env("LD_LIBRARY_PATH", artefacts::simulated_driver())
            .env("GPUSLICE_LIB", artefacts::library());
        command.env("SIMGPU_STATE", self.bench_folder().join("state")).stdin(Stdio::null());
        // Nearly all tests here start an agent, and NVML would delay each start by 300 ms. The bench may
        // set another delay.
        command.env("SIMGPU_NVML_INIT_MS", "0").envs(self.bench.variables());
        command
    }

    /// Starts the agent, and waits until it serves.
    pub(crate) fn begin(&mut self) {
        self.launch();
        self.serves();
    }

    /// Starts the agent.
    pub(crate) fn launch(&mut self) {
        let log = File::create(self.at("/log")).expect("a file can be made");
        let agent = self.command(&["run"]).stderr(log).spawn().expect("the agent can be started");
        self.agent = Some(agent);
    }

    /// Waits until the agent serves.
    pub(crate) fn serves(&mut self) {
        let address = self.until("it serves", |node| {
            let log = node.log();
            let agent = node.agent.as_mut().expect("it was started");
            assert_eq!(agent.try_wait().expect("it is our child"), None, "the agent has ended: {log}");
            log.split_once("address=")?.1.split_ascii_whitespace().next()?.parse().ok()
        });
        self.address = Some(address);
    }

    /// Returns the agent's standard error.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.at("/log")).unwrap_or_default()
    }

    /// Waits until `answer` returns a value.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, mut answer: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(answer) = answer(self) {
                return answer;
            }
            assert!(Instant::now() < end, "{what}: not within {TIMEOUT:?}; the agent said: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.agent.as_ref().expect("it was started").id()
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        send(self.pid(), signal);
    }

    /// Ends the agent by a signal.
    pub(crate) fn end(&mut self, signal: libc::c_int) -> ExitStatus {
        self.signal(signal);
        let mut agent = self.agent.take().expect("it was started");
        agent.wait().expect("it is our child")
    }

    /// Returns the agent's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.expect("it serves")
    }

    /// Connects to the agent.
    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Sends a request to the agent unchanged, and reads the answer to its end.
    pub(crate) fn request(&self, text: &str) -> Answer {
        request(self.address(), text)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"))
    }

    #[track_caller]
    pub(crate) fn scrape(&self) -> Metrics {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
            "{answer:?}"
        );
        Metrics::read(&answer.body).unwrap_or_else(|why| panic!("{why}\n{}", answer.body))
    }

    #[track_caller]
    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert!(answer.status == 200 && answer.head.contains("content-type: application/json"), "{answer:?}");
        serde_json::from_str(&answer.body).expect("this is JSON")
    }

    /// Returns a slice of the agent's JSON, if it is there.
    pub(crate) fn slice(&self, is_it: impl Fn(&Value) -> bool) -> Option<Value> {
        self.json("/api/v1/slices")["slices"].as_array()?.iter().find(|slice| is_it(slice)).cloned()
    }

    /// Sends a line to the agent's socket. Returns the answer.
    pub(crate) fn control(&self, line: &str) -> Value {
        let mut stream = UnixStream::connect(self.at("/run/gpuslice/agent.sock")).expect("the agent listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time can be set");
        writeln!(stream, "{line}").expect("the agent hears");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("the agent answers");
        serde_json::from_str(&answer).expect("this is JSON")
    }

    /// Returns the specification of a slice.
    pub(crate) fn spec(&self, slice: &str) -> Value {
        let text = fs::read(self.at(&format!("/var/run/cdi/gpuslice-{slice}.json"))).expect("there is one");
        serde_json::from_slice(&text).expect("this is JSON")
    }

    /// Runs `gpuslice` on the node.
    pub(crate) fn gpuslice(&self, arguments: &[&str]) -> Ended {
        self.on_the_node(&[&[PROGRAM], arguments].concat())
    }

    /// Runs `gpuslice` on the node as a user without rights.
    pub(crate) fn gpuslice_as(&self, other: &OtherUser, arguments: &[&str]) -> Ended {
        let user = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let program = other.path("gpuslice");
        self.on_the_node(&[&user, &[program.as_str()][..], arguments].concat())
    }

    /// Sends a line to the agent's socket as a user without rights that belongs to `groups`, numbers with commas between.
    pub(crate) fn control_as(&self, groups: &str, line: &str) -> Ended {
        let groups =
            if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") };
        let user = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", &groups];
        let talk = ["perl", "-MIO::Socket::UNIX", "-e", TALK, "/run/gpuslice/agent.sock", line];
        self.on_the_node(&[&user[..], &talk].concat())
    }

    /// Runs a command with the node's `/run` and `/var` in the places of this machine's.
    fn on_the_node(&self, words: &[&str]) -> Ended {
        let place = "mount --bind \"$0/run\" /run; mount --bind \"$0/var\" /var; exec \"$@\"";
        let asked = gpuslice(&[]);
        let mut command = Command::new("/usr/bin/unshare");
        command.args(["--mount", "sh", "-ec", place]).arg(self.root.path()).args(words);
        command.env_clear().envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))));
        end(&mut command)
    }

    /// Starts a program in a container that has the slice, by the slice's specification.
    pub(crate) fn in_slice(&self, slice: &str, program: &Path, arguments: &[&str]) -> Living {
        self.in_slice_with(slice, &[], program, arguments)
    }

    /// Starts a program like [`in_slice`](Self::in_slice), with more variables.
    pub(crate) fn in_slice_with(
        &self,
        slice: &str,
        variables: &[String],
        program: &Path,
        arguments: &[&str],
    ) -> Living {
        let edits = &self.spec(slice)["devices"][0]["containerEdits"];
        let texts = |key: &str| edits[key].as_array().expect("it has them").clone();
        let mounts: Vec<String> = texts("mounts")
            .iter()
            .map(|mount| format!("{} {}", text(&mount["hostPath"]), text(&mount["containerPath"])))
            .collect();
        let mut environment = texts("env").iter().map(|item| text(item).to_owned()).collect::<Vec<_>>();
        // The variable stands for /etc/ld.so.preload, which this file system may not have.
        environment.push("LD_PRELOAD=/usr/local/lib/gpuslice/libgpuslice.so".to_owned());
        environment.extend_from_slice(variables);
        self.contained(&mounts, &environment, program, arguments)
    }

    /// Starts a program in a container that is not prepared for slices.
    pub(crate) fn contained(
        &self,
        mounts: &[String],
        environment: &[String],
        program: &Path,
        arguments: &[&str],
    ) -> Living {
        container::start(&self.bench, mounts, environment, program, arguments)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ended = agent.kill();
            let _waited_for = agent.wait();
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time can be set");
    stream
}

/// Sends a request to a server unchanged, and reads the answer to its end.
pub(crate) fn request(address: SocketAddr, text: &str) -> Answer {
    let mut stream = connect(address);
    // The server may answer a request that is too long before it has read all of it.
    let _may_be_closed = stream.write_all(text.as_bytes());
    let mut answer = Vec::new();
    let _reset_behind_the_answer = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Answer {
        status: status.unwrap_or_else(|| panic!("{text:?}")),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("this is text")
}
