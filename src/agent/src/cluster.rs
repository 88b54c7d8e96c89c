//! Runs the device plugin beside the rest of the agent, where the configuration has a cluster.

use crate::config::Config;
use crate::gpus::{Gpu, Gpus};
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::objects::{self, Inventory};
use gpuslice_kubernetes::plugin;
use gpuslice_slices::installed;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::error;

/// Percent of time that a GPU has.
const WHOLE: u32 = 100;
/// Time after which a plugin is started again that could not be.
const AGAIN: Duration = Duration::from_secs(10);

/// Serves the kubelet until the sender of `alive` is dropped. Slices that the configuration makes go on without it.
pub(crate) async fn serve(config: Config, gpus: Gpus, alive: watch::Receiver<()>) {
    while let Err(why) = try_serve(&config, &gpus, alive.clone()).await {
        error!("the device plugin: {why}");
        if tokio::time::timeout(AGAIN, end(alive.clone())).await.is_ok() {
            return;
        }
    }
}

async fn end(mut alive: watch::Receiver<()>) {
    while alive.changed().await.is_ok() {}
}

async fn try_serve(config: &Config, gpus: &Gpus, alive: watch::Receiver<()>) -> Result<(), String> {
    let Some(cluster) = config.cluster.clone() else { return Ok(()) };
    let library = config.library.clone().map_or_else(installed::library, Ok)?;
    let client = Client::at(cluster.apiserver.as_deref())?;
    let mut plugin = plugin::Config::usual(cluster.node, cluster.kubelet, config.places.clone(), library);
    (plugin.slots_per_gpu, plugin.auto_alloc) = (cluster.slots_per_gpu, cluster.auto_alloc);
    let gpus = gpus.clone();
    plugin::serve(plugin, client, Arc::new(move || inventory(&gpus)), end(alive))
        .await
        .map_err(|problem| problem.to_string())
}

fn inventory(gpus: &Gpus) -> Inventory {
    Inventory {
        v: objects::VERSION,
        driver: gpus.driver().unwrap_or_default(),
        gpus: gpus.all().iter().map(gpu).collect(),
    }
}

/// A GPU as the cluster sees it. The memory that the driver keeps for itself cannot be given away.
fn gpu(gpu: &Gpu) -> objects::Gpu {
    let memory = gpu.memory_total.unwrap_or(0).saturating_sub(gpu.memory_reserved.unwrap_or(0));
    objects::Gpu {
        uuid: gpu.uuid.clone(),
        model: gpu.model.clone().unwrap_or_default(),
        mem_mib: memory >> 20,
        core: WHOLE,
        healthy: gpu.healthy && memory > 0,
    }
}
