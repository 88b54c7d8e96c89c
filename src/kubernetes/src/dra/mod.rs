//! Driver for dynamic resource allocation (DRA) on a node.
//!
//! The scheduler chooses the GPUs, and counts their memory and time. The driver publishes the devices of the node. It makes the
//! files of claims that the scheduler has allocated on this node.

mod claim;
mod claims;
mod device;
mod health;
mod prepare;
mod publish;
mod register;
mod service;
pub mod sweep;

use crate::api::{Client, Failure};
use crate::files;
use crate::grpc::dra_health::v1alpha1::DeviceHealth;
use crate::plugin::Gpus;
use crate::topology::KnownLocations;
use claim::Claim;
use claims::Claims;
use gpuslice_slices::slot::Places;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, watch};

/// Settings of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverConfig {
    /// Name of the node in the apiserver, and of its pool of devices.
    pub node: String,
    /// Folder of the kubelet: `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// Folders of slices.
    pub places: Places,
    /// Path of the preload library.
    pub library: PathBuf,
    /// Folder that contains `proc` and `sys`: `/`.
    pub machine: PathBuf,
    /// Time between two checks of the devices in the apiserver. Also the time between two reports of an unchanged health,
    /// because the kubelet treats a health that is older than 30 s as unknown.
    pub interval: Duration,
    /// Time between two checks of the GPUs and of the sockets.
    pub poll: Duration,
    /// Time between two searches for claims that do not exist any more.
    pub sweep: Duration,
    /// Longest wait for the apiserver's answer. The kubelet waits 45 s for a claim, and this is a part of that time.
    pub patience: Duration,
}

impl DriverConfig {
    /// Returns settings with the usual times.
    #[must_use]
    pub fn usual(node: String, kubelet: PathBuf, places: Places, library: PathBuf) -> Self {
        Self {
            node,
            kubelet,
            places,
            library,
            machine: PathBuf::from("/"),
            interval: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            sweep: Duration::from_secs(60),
            patience: Duration::from_secs(5),
        }
    }
}

/// The driver.
pub struct Driver {
    config: DriverConfig,
    client: Client,
    gpus: Gpus,
    locations: KnownLocations,
    /// The lock is held while the files of a claim change.
    claims: Arc<Mutex<Claims>>,
    health: watch::Sender<Vec<DeviceHealth>>,
    /// Notified when the kubelet has accepted a registration. A starting kubelet removes the node's devices from the apiserver,
    /// so the driver must write them again.
    registered: Notify,
}

impl fmt::Debug for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Driver").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Serves the kubelet of a node, until the future is dropped.
///
/// # Errors
/// The preload library cannot be installed.
pub async fn serve(config: DriverConfig, client: Client, gpus: Gpus) -> Result<(), String> {
    let library = config.places.install(&config.library).map_err(|problem| problem.to_string())?;
    let claims = Claims::open(config.places.clone(), library);
    // It needs no lock: the parts of a claim never change.
    let held = claims.clone();
    let hold = files::hold_limits(|| hold(held.clone()));
    let driver = Arc::new(Driver {
        config,
        client,
        gpus,
        locations: KnownLocations::default(),
        claims: Arc::new(Mutex::new(claims)),
        health: watch::Sender::default(),
        registered: Notify::new(),
    });
    tokio::join!(
        register::serve(&driver),
        publish::watch(&driver),
        health::watch(&driver),
        sweep::watch(&driver),
        hold
    );
    Ok(())
}

/// Runs `act` on the claims. It runs on a blocking thread, because it writes files, and so no caller can stop it halfway.
async fn with_claims<T: Send + 'static>(
    claims: &Arc<Mutex<Claims>>,
    act: impl FnOnce(&Claims) -> T + Send + 'static,
) -> Result<T, String> {
    let held = Arc::clone(claims).lock_owned().await;
    tokio::task::spawn_blocking(move || act(&held)).await.map_err(|error| error.to_string())
}

async fn hold(claims: Claims) -> Result<Vec<String>, String> {
    tokio::task::spawn_blocking(move || claims.hold()).await.map_err(|error| error.to_string())
}

/// Reads a claim from the apiserver; none if it does not exist.
async fn find(
    client: &Client,
    patience: Duration,
    namespace: &str,
    name: &str,
) -> Result<Option<Claim>, Failure> {
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
    client.get_within(patience, &path).await
}
