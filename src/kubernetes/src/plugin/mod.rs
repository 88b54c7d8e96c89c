//! Device plugin of a node.
//!
//! The kubelet gives slots to containers. A slot does not stand for a certain GPU. When a container is about to start, the plugin
//! finds out which container has the slot. It also finds out which part of which GPU the extender has chosen for the container.

mod clear;
mod kubelet;
mod node;
mod owners;
mod resize;
mod service;
mod slots;
mod start;

use crate::api::Client;
use crate::files;
use crate::grpc::device_plugin::Device;
use crate::metrics::PreStartMetrics;
use crate::objects::Inventory;
use crate::topology::KnownLocations;
pub use clear::clear;
use gpuslice_slices::slot::{Places, Problem, SLOT};
use slots::Slots;
pub use slots::{Owner, owner_of};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Slots of each GPU, unless the operator sets another number. Guessed: GPUs usually have fewer slices.
pub const SLOTS_PER_GPU: u32 = 16;

/// Time between the removal of the node's list of GPUs and the end of the plugin. In this time, the plugin still admits pods
/// that the extender bound just before. The kubelet calls `Allocate` less than a second after the binding.
const LINGER: Duration = Duration::from_secs(1);

/// Function that returns the present GPUs of the node.
pub type Gpus = Arc<dyn Fn() -> Inventory + Send + Sync>;

/// Settings of a device plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginConfig {
    /// Name of the node in the apiserver.
    pub node: String,
    /// Folder of the kubelet: `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// Folders of slots.
    pub places: Places,
    /// Path of the preload library.
    pub library: PathBuf,
    /// Folder that contains `proc` and `sys`: `/`.
    pub machine: PathBuf,
    /// Slots of each GPU; at least 1.
    pub slots_per_gpu: u32,
    /// True if containers without the extender's annotation get the amounts for which they ask. Only for nodes with one GPU.
    pub auto_alloc: bool,
    /// True if admission policies let only the extender write the annotation of a pod's parts. Then later generations may
    /// differ from the pod's request, and running containers get their amounts.
    pub resize: bool,
    /// Time between two checks of the node and of the kubelet's list.
    pub interval: Duration,
    /// Time between two checks of the kubelet's sockets.
    pub poll: Duration,
    /// Time for which both the kubelet's and the apiserver's lists must lack a pod, before the plugin releases its slots.
    pub grace: Duration,
    /// Longest wait for the apiserver's answer. The kubelet waits 30 s for a container's files, and this is a part of that
    /// time.
    pub patience: Duration,
}

impl PluginConfig {
    /// Returns settings with the usual times.
    #[must_use]
    pub fn usual(node: String, kubelet: PathBuf, places: Places, library: PathBuf) -> Self {
        Self {
            node,
            kubelet,
            places,
            library,
            machine: PathBuf::from("/"),
            slots_per_gpu: SLOTS_PER_GPU,
            auto_alloc: false,
            resize: false,
            interval: Duration::from_secs(10),
            poll: Duration::from_millis(200),
            grace: Duration::from_secs(30),
            patience: Duration::from_secs(5),
        }
    }

    fn pod_resources(&self) -> PathBuf {
        self.kubelet.join("pod-resources/kubelet.sock")
    }

    fn plugins(&self) -> PathBuf {
        self.kubelet.join("device-plugins")
    }
}

/// The device plugin.
pub struct Plugin {
    config: PluginConfig,
    client: Client,
    gpus: Gpus,
    locations: KnownLocations,
    metrics: PreStartMetrics,
    slots: Arc<Mutex<Slots>>,
    devices: watch::Sender<Vec<Device>>,
    /// True while the kubelet knows the plugin.
    is_registered: watch::Sender<bool>,
    /// True from the moment at which the plugin is asked to end.
    is_leaving: watch::Sender<bool>,
    /// Resource by which another device plugin gives away the GPUs of the node; none if there is no such plugin.
    foreign: watch::Sender<Option<String>>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Plugin").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Serves the kubelet of a node until `ends` is done, and then removes the list of GPUs from the node. Without the list, an
/// extender places no pod on the node. The kubelet would end such a pod permanently.
///
/// # Errors
/// The preload library cannot be installed.
pub async fn serve(
    config: PluginConfig,
    client: Client,
    gpus: Gpus,
    metrics: PreStartMetrics,
    ends: impl Future<Output = ()> + Send,
) -> Result<(), Problem> {
    let library = config.places.install(&config.library)?;
    let slots = Arc::new(Mutex::new(Slots::open(config.places.clone(), library)));
    let (devices, is_registered) = (watch::Sender::default(), watch::Sender::default());
    let (is_leaving, foreign) = (watch::Sender::default(), watch::Sender::default());
    let plugin = Arc::new(Plugin {
        config,
        client,
        gpus,
        locations: KnownLocations::default(),
        metrics,
        slots,
        devices,
        is_registered,
        is_leaving,
        foreign,
    });
    plugin.show_devices().await;
    let leave = async {
        ends.await;
        plugin.is_leaving.send_replace(true);
        node::advertise_or_tell(&plugin).await;
        tokio::time::sleep(LINGER).await;
    };
    let hold = files::hold_limits(|| plugin.with_slots(|slots| slots.hold()));
    tokio::select! {
        () = leave => {}
        ((), (), ()) = async { tokio::join!(kubelet::serve(&plugin), node::watch(&plugin), hold) } => {}
    }
    Ok(())
}

impl Plugin {
    /// Runs `act` on the slots. It runs on a blocking thread, because it writes files, and must not block the runtime.
    async fn with_slots<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Slots) -> T + Send + 'static,
    ) -> Result<T, String> {
        let slots = Arc::clone(&self.slots);
        let act = move || act(&mut slots.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(act).await.map_err(|error| error.to_string())
    }

    /// Returns true while the plugin admits pods that come to the node.
    fn is_served(&self) -> bool {
        *self.is_registered.borrow() && !*self.is_leaving.borrow()
    }

    /// Sends the kubelet the list of slots, if it has changed.
    async fn show_devices(&self) {
        let taken =
            self.with_slots(|slots| slots.known().flat_map(|known| known.owner.slots.clone()).collect());
        let Ok(taken) = taken.await else { return };
        let now = devices(&(self.gpus)(), self.config.slots_per_gpu, &taken);
        self.devices.send_if_modified(|shown| {
            let is_new = *shown != now;
            *shown = now;
            is_new
        });
    }
}

/// Returns the slots of a node. Some are unhealthy: as many as the lost GPUs of the node have. Slots without an owner become
/// unhealthy first, because a container cannot start again with an unhealthy slot.
fn devices(inventory: &Inventory, slots_per_gpu: u32, taken: &BTreeSet<String>) -> Vec<Device> {
    let slots = |gpus: usize| u32::try_from(gpus).unwrap_or(u32::MAX).saturating_mul(slots_per_gpu);
    let lost = inventory.gpus.iter().filter(|gpu| !gpu.healthy).count();
    let mut ids: Vec<String> =
        (0..slots(inventory.gpus.len())).map(|number| format!("{SLOT}{number}")).collect();
    ids.sort_by_key(|id| !taken.contains(id));
    let healthy = slots(inventory.gpus.len().saturating_sub(lost));
    let device = |(at, id)| {
        let is_healthy = u32::try_from(at).is_ok_and(|at: u32| at < healthy);
        Device { id, health: if is_healthy { "Healthy" } else { "Unhealthy" }.to_owned() }
    };
    let mut devices: Vec<Device> = ids.into_iter().enumerate().map(device).collect();
    devices.sort_by(|one, other| one.id.cmp(&other.id));
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Gpu;
    use prost::Message as _;
    use std::sync::mpsc::channel;
    use std::thread;

    fn inventory(gpus: u32, healthy: u32) -> Inventory {
        let gpu = |number| Gpu {
            uuid: format!("GPU-{number}"),
            mem_mib: 143_771,
            core: 100,
            healthy: number < healthy,
            ..Gpu::default()
        };
        Inventory { v: 1, driver: String::new(), gpus: (0..gpus).map(gpu).collect() }
    }

    #[tokio::test]
    async fn a_removal_that_takes_long_does_not_stop_the_other_tasks_of_the_agent() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let slots = Slots::open(places.clone(), root.path().join("library"));
        let plugin = Plugin {
            config: PluginConfig::usual("n1".to_owned(), root.path().into(), places, root.path().into()),
            client: Client::at(Some("http://127.0.0.1:1")).unwrap(),
            gpus: Arc::new(|| inventory(1, 1)),
            locations: KnownLocations::default(),
            metrics: PreStartMetrics::default(),
            slots: Arc::new(Mutex::new(slots)),
            devices: watch::Sender::default(),
            is_registered: watch::Sender::default(),
            is_leaving: watch::Sender::default(),
            foreign: watch::Sender::default(),
        };
        let (slots, (began, begun), (end, ended)) = (Arc::clone(&plugin.slots), channel(), channel::<()>());
        let removal = thread::spawn(move || {
            let _held = slots.lock().unwrap();
            began.send(()).unwrap();
            // A failed test ends, too.
            let _no_sender = ended.recv_timeout(Duration::from_secs(10));
        });
        begun.recv().unwrap();
        let mut shown = Box::pin(plugin.show_devices());
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut shown).await.is_err());
        drop(end);
        shown.await;
        assert_eq!(plugin.devices.borrow().len(), 16);
        removal.join().unwrap();
    }

    /// Checks the size of the list. A kubelet drops a plugin whose list has more than 4 MiB. A list with one device for each
    /// MiB of an H200 would exceed this limit.
    #[test]
    fn the_list_of_the_largest_node_is_far_below_the_limit_of_the_kubelet() {
        let devices = devices(&inventory(16, 16), 256, &BTreeSet::new());
        assert_eq!(devices.len(), 4096);
        // The name of a slot does not tell a GPU: the kubelet chooses the slots, and the extender chooses the GPUs.
        let is_opaque = |device: &Device| {
            device.id.strip_prefix(SLOT).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        assert!(devices.iter().all(is_opaque), "{devices:?}");
        let list = crate::grpc::device_plugin::ListAndWatchResponse { devices };
        assert!(list.encoded_len() < 256 << 10, "{}", list.encoded_len());
    }

    #[test]
    fn slots_without_an_owner_become_unhealthy_first() {
        let taken = BTreeSet::from(["slot-3".to_owned(), "slot-2".to_owned()]);
        let listed = devices(&inventory(2, 1), 2, &taken);
        let healthy: Vec<&str> = listed
            .iter()
            .filter(|device| device.health == "Healthy")
            .map(|device| device.id.as_str())
            .collect();
        assert_eq!((listed.len(), healthy), (4, vec!["slot-2", "slot-3"]));
    }
}
