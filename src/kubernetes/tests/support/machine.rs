//! The machine of a node: its files, its GPUs, its apiserver, and a process that is a part of the agent.

use crate::apiserver::Apiserver;
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::objects::{Gpu, Inventory};
use gpuslice_kubernetes::plugin::Gpus;
use gpuslice_slices::slot::Places;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Name of the node in the apiserver.
pub(crate) const NODE: &str = "n1";
/// Variable that tells the process of a machine the machine's folder.
const ROOT: &str = "GPUSLICE_TEST_NODE";

pub(crate) struct Machine {
    root: TempDir,
    pub(crate) apiserver: Apiserver,
    pub(crate) address: SocketAddr,
    process: Mutex<Option<Child>>,
}

impl Machine {
    /// Makes a machine without a process.
    pub(crate) async fn new() -> Self {
        let root = TempDir::new_in("/dev/shm").unwrap();
        fs::write(root.path().join("libgpuslice.so"), "library").unwrap();
        let apiserver = Apiserver::default();
        apiserver.add_node(NODE);
        let address = apiserver.serve().await;
        Self { root, apiserver, address, process: Mutex::default() }
    }

    /// Returns the root folder of the machine's files.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn places(&self) -> Places {
        Places::usual(self.root())
    }

    /// Gives the machine GPUs of 16 GiB with these UUIDs. The first `healthy` of them work.
    pub(crate) fn has(&self, driver: &str, uuids: impl Iterator<Item = String>, healthy: u32) {
        let gpu = |(number, uuid)| Gpu {
            uuid,
            model: "Test".to_owned(),
            mem_mib: 16_384,
            core: 100,
            healthy: number < healthy,
            ..Gpu::default()
        };
        let inventory =
            Inventory { v: 1, driver: driver.to_owned(), gpus: (0..).zip(uuids).map(gpu).collect() };
        let path = self.root().join("inventory");
        fs::write(path.with_extension("new"), serde_json::to_vec(&inventory).unwrap()).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    /// Starts a test of this program as the machine's process.
    pub(crate) fn run(&self, test: &str, variables: &[(&str, String)]) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.root().join("log")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(ROOT, self.root());
        command.env("APISERVER", format!("http://{}", self.address)).envs(variables.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
        *self.process.lock().unwrap() = Some(command.spawn().unwrap());
    }

    /// Ends the process by SIGKILL.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().unwrap().take().expect("it was started");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Closes the input of the process.
    pub(crate) fn close_input(&self) {
        self.process.lock().unwrap().as_mut().expect("it was started").stdin = None;
    }

    /// Returns the exit status of the process, if it has ended.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.process.lock().unwrap().as_mut().expect("it was started").try_wait().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.root().join("log")).unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            let _ended = process.kill();
            let _waited_for = process.wait();
        }
        if std::thread::panicking() {
            println!("the process said: {}", self.log());
        }
    }
}

/// A machine, as its own process sees it.
pub(crate) struct Inside {
    pub(crate) root: PathBuf,
    pub(crate) client: Client,
    pub(crate) gpus: Gpus,
    pub(crate) library: PathBuf,
}

/// Returns the machine if this process is the process of one, and starts its log. Returns none if the program runs as usual.
pub(crate) fn inside() -> Option<Inside> {
    let root = PathBuf::from(std::env::var_os(ROOT)?);
    let client = Client::new(&std::env::var("APISERVER").unwrap(), None, None).unwrap();
    let inventory = root.join("inventory");
    let gpus = Arc::new(move || serde_json::from_slice(&fs::read(&inventory).unwrap()).unwrap());
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).try_init().unwrap();
    let library = root.join("libgpuslice.so");
    Some(Inside { root, client, gpus, library })
}
