//! The driver of dynamically allocated resources of a node.
//!
//! The scheduler chooses the GPUs, and counts their memory and time. The driver says which there are, and makes the files of
//! claims that the scheduler has put here.

mod claim;
mod claims;
mod device;
mod health;
mod prepare;
mod publish;
mod register;
mod service;
pub mod sweep;
mod topology;

use crate::api::{Client, Failure};
use crate::grpc::dra_health::v1alpha1::DeviceHealth;
use crate::plugin::Gpus;
use claim::Claim;
use claims::Claims;
pub use claims::is_claim;
use gpuslice_slices::slot::Places;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, watch};

/// The settings of a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The node's name in the apiserver, and that of its pool of devices.
    pub node: String,
    /// The kubelet's folder: `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// The folders of slices.
    pub places: Places,
    /// The preload library.
    pub library: PathBuf,
    /// The folder of `proc` and `sys`: `/`.
    pub machine: PathBuf,
    /// Time between two looks at what the apiserver has, and between two messages of the same health. The kubelet takes a
    /// health that is older than 30 s as unknown.
    pub interval: Duration,
    /// Time between two looks at the GPUs and at the sockets.
    pub poll: Duration,
    /// Time between two looks for claims that are gone.
    pub sweep: Duration,
    /// Time in which the apiserver answers: a part of the 45 s that the kubelet waits for a claim.
    pub patience: Duration,
}

impl Config {
    /// The usual times.
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
    config: Config,
    client: Client,
    gpus: Gpus,
    /// Held while the files of a claim change.
    claims: Arc<Mutex<Claims>>,
    health: watch::Sender<Vec<DeviceHealth>>,
    /// Told when the kubelet has taken a registration: it removes the devices of the node when it starts.
    registered: Notify,
}

impl fmt::Debug for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Driver").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Serves the kubelet of a node, until it is dropped.
///
/// # Errors
/// The preload library cannot be installed.
pub async fn serve(config: Config, client: Client, gpus: Gpus) -> Result<(), String> {
    let library = config.places.install(&config.library).map_err(|problem| problem.to_string())?;
    let claims = Claims::open(config.places.clone(), library);
    let driver = Arc::new(Driver {
        config,
        client,
        gpus,
        claims: Arc::new(Mutex::new(claims)),
        health: watch::Sender::default(),
        registered: Notify::new(),
    });
    tokio::join!(
        register::serve(&driver),
        publish::watch(&driver),
        health::watch(&driver),
        sweep::watch(&driver)
    );
    Ok(())
}

/// Does something with the claims. It writes files, and so has a thread of its own; nobody can stop it halfway.
async fn with_claims<T: Send + 'static>(
    claims: &Arc<Mutex<Claims>>,
    act: impl FnOnce(&Claims) -> T + Send + 'static,
) -> Result<T, String> {
    let held = Arc::clone(claims).lock_owned().await;
    tokio::task::spawn_blocking(move || act(&held)).await.map_err(|error| error.to_string())
}

/// A claim, as the apiserver has it; none where there is none.
async fn find(
    client: &Client,
    patience: Duration,
    namespace: &str,
    name: &str,
) -> Result<Option<Claim>, Failure> {
    let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
    client.get_within(patience, &path).await
}
