//! Processes of slices ask the agent for NVML's figures about their memory.

use crate::MIB;
use crate::node::Node;
use crate::support::bench::Bench;
use crate::support::compiler;
use crate::support::container::may_have_containers;
use crate::support::living::Living;
use gpuslice_region::{Monitor, Trust};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Bytes of a context.
const CONTEXT: u64 = 500 * MIB;
/// Bytes of the code of a module.
const CODE: u64 = 6 * MIB;
/// Two slices with room for two contexts each.
const SLICES: &str = "[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"1200MiB\"\n\
    [[slices]]\nname = \"b\"\ngpu = 0\nmemory = \"1200MiB\"\n";
/// Views of NVML within a container: of drivers from 570 on, of drivers 535.113 to 560, and of drivers before those.
const VIEWS: [&[&str]; 3] = [
    &[],
    &["SIMGPU_NVML_PIDS=mixed", "SIMGPU_NVML_BYTES=0", "SIMGPU_CUDA_VERSION=12040"],
    &["SIMGPU_NVML_PIDS=offset"],
];
/// Opens connections to a socket and sends nothing. Says so, and then connects again and again.
const FLOOD: &str = "use IO::Socket::UNIX; my @kept; \
    for (1..40) { push @kept, IO::Socket::UNIX->new(Peer => $ARGV[0]) } \
    $| = 1; print \"floods\\n\"; for (;;) { IO::Socket::UNIX->new(Peer => $ARGV[0]) }";

/// A node whose containers tell whether they call NVML.
struct Asking {
    node: Node,
}

impl Asking {
    /// Starts a node, and waits until its slices have their sockets. Returns `None` if this machine has no containers.
    fn start() -> Option<Self> {
        if !may_have_containers() {
            return None;
        }
        let bench = Bench::simulated_without_contexts()
            .with("SIMGPU_MEMORY", "16GiB")
            .with("SIMGPU_CONTEXT_BYTES", "500MiB")
            .with("SIMGPU_MODULE_BYTES", "6MiB");
        let mut asking = Self { node: Node::start_on(bench, SLICES) };
        asking.has_sockets();
        Some(asking)
    }

    /// Waits until the agent accepts at the sockets. A socket of an ended agent may still be there.
    fn has_sockets(&mut self) {
        for slice in ["a", "b"] {
            let socket = self.node.at(&socket_of(slice));
            self.node.until("the slice has a socket", |_| UnixStream::connect(&socket).is_ok().then_some(()));
        }
    }

    /// Starts a program that makes a context and loads code on order. Its calls of NVML are in the file `calls`.
    fn program(&self, slice: &str, calls: &str, view: &[&str]) -> Living {
        let mut variables: Vec<String> = view.iter().map(|&variable| variable.to_owned()).collect();
        variables.push(format!("SIMGPU_NVML_CALLS=/run/bench/{calls}"));
        let program = self.node.in_slice_with(slice, &variables, &compiler::plain("modules"), &["dlsym"]);
        assert_eq!(program.hear().as_deref(), Some("init 0"));
        program
    }

    fn starts_nvml(&self, calls: &str) -> bool {
        let lines = fs::read_to_string(self.node.bench_folder().join(calls)).unwrap_or_default();
        lines.contains("nvmlInit")
    }

    /// Returns the bytes that a slice is charged for.
    fn charged(&self, slice: &str) -> u64 {
        let region = Monitor::open(&self.node.region(slice), Trust::AnyOwner).unwrap().expect("it was made");
        region.held(region.devices()[0].device)
    }
}

fn socket_of(slice: &str) -> String {
    format!("/var/lib/gpuslice/slots/{slice}/conf/memory.sock")
}

#[track_caller]
fn does(program: &mut Living, orders: &[&str]) {
    orders.iter().for_each(|order| assert_eq!(program.numbers(order).first(), Some(&0), "{order}"));
}

#[test]
fn a_process_of_a_slice_counts_exactly_and_never_starts_nvml() {
    let Some(asking) = Asking::start() else { return };
    for (number, view) in VIEWS.into_iter().enumerate() {
        let calls = format!("calls-{number}");
        let mut program = asking.program("a", &calls, view);
        // A program of the other slice takes memory and gives it back meanwhile, so that free memory tells nothing.
        let mut beside = asking.program("b", "calls-beside", &[]);
        does(&mut beside, &["retain", "current primary"]);
        program.order("retain");
        for _ in 0..20 {
            does(&mut beside, &["alloc 100000000", "free"]);
        }
        assert!(program.hear().is_some_and(|answer| answer.starts_with("0 ")));
        assert_eq!(asking.charged("a"), CONTEXT, "{view:?}");
        does(&mut program, &["current primary", "load data 4194304", "use function", "wait"]);
        assert_eq!(asking.charged("a"), CONTEXT + 4 * MIB + CODE, "{view:?}");
        assert!(!asking.starts_nvml(&calls), "{view:?}");
        program.end();
        beside.end();
    }
    assert!(!asking.node.log().contains("WARN"), "{}", asking.node.log());
}

#[test]
fn a_new_process_without_the_agent_starts_nvml_and_an_old_one_goes_on() {
    let Some(mut asking) = Asking::start() else { return };
    let mut old = asking.program("a", "calls-old", &[]);
    does(&mut old, &["retain", "current primary"]);
    asking.node.end(libc::SIGKILL);
    let mut new = asking.program("b", "calls-new", &[]);
    does(&mut new, &["retain"]);
    assert_eq!(asking.charged("b"), CONTEXT);
    assert!(asking.starts_nvml("calls-new"));
    does(&mut old, &["load data 4194304", "use function", "wait"]);
    assert_eq!(asking.charged("a"), CONTEXT + 4 * MIB + CODE);
    assert!(!asking.starts_nvml("calls-old"), "its figures are those of the agent");
    asking.node.begin();
    asking.has_sockets();
    let mut later = asking.program("b", "calls-later", &[]);
    does(&mut later, &["retain"]);
    assert_eq!(asking.charged("b"), 2 * CONTEXT);
    assert!(!asking.starts_nvml("calls-later"));
    for program in [old, new, later] {
        program.end();
    }
}

#[test]
fn a_context_during_whose_making_the_agent_returns_or_goes_has_its_own_size() {
    let Some(mut asking) = Asking::start() else { return };
    for returns in [true, false] {
        // The driver takes long for a context, so that the agent starts or ends meanwhile.
        let mut program = asking.program("a", "calls", &["SIMGPU_FAULTS=cuCtxCreate_v2=delay:3s"]);
        does(&mut program, &["retain", "current primary", "load data 4194304"]);
        if returns {
            asking.node.end(libc::SIGKILL);
        }
        program.order("context plain");
        asking.node.until("the context is being made", |node| {
            let region = Monitor::open(&node.region("a"), Trust::AnyOwner).unwrap().expect("it was made");
            (region.held(region.devices()[0].device) > CONTEXT + 4 * MIB).then_some(())
        });
        if returns {
            asking.node.begin();
            asking.has_sockets();
        } else {
            asking.node.end(libc::SIGKILL);
        }
        assert!(program.hear().is_some_and(|answer| answer.starts_with("0 ")));
        assert_eq!(asking.charged("a"), 2 * CONTEXT + 4 * MIB, "returns: {returns}");
        if !returns {
            asking.node.begin();
            asking.has_sockets();
        }
        // NVML still counts for the process: code that a neighbour hides from free memory is charged.
        does(&mut program, &["use function", "wait"]);
        assert_eq!(asking.charged("a"), 2 * CONTEXT + 4 * MIB + CODE, "returns: {returns}");
        program.end();
    }
}

#[test]
fn an_agent_that_does_not_answer_delays_no_process_for_long() {
    let Some(asking) = Asking::start() else { return };
    asking.node.signal(libc::SIGSTOP);
    let mut program = asking.program("a", "calls", &[]);
    does(&mut program, &["retain"]);
    asking.node.signal(libc::SIGCONT);
    assert_eq!(asking.charged("a"), CONTEXT);
    assert!(asking.starts_nvml("calls"));
    program.end();
}

/// Starts a program that connects to the socket of a slice all the time, and waits until it does.
fn flood(socket: &Path) -> Child {
    let mut command = Command::new("perl");
    command.args(["-e", FLOOD]).arg(socket).stdout(Stdio::piped());
    let mut child = command.spawn().expect("perl can be started");
    let mut line = String::new();
    let output = child.stdout.take().expect("it is a pipe");
    BufReader::new(output).read_line(&mut line).expect("it can be read");
    assert_eq!(line, "floods\n");
    child
}

#[test]
fn a_slice_that_connects_all_the_time_takes_no_answer_from_another() {
    let Some(asking) = Asking::start() else { return };
    let mut flood = flood(&asking.node.at(&socket_of("b")));
    let mut program = asking.program("a", "calls", &[]);
    does(&mut program, &["retain"]);
    assert!(!asking.starts_nvml("calls"));
    assert_eq!(asking.charged("a"), CONTEXT);
    flood.kill().unwrap();
    flood.wait().unwrap();
    program.end();
}
