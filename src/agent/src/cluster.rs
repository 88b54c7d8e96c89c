//! Serves a kubelet beside the rest of the agent, where the configuration has a cluster.

use crate::config::{Cluster, Config, Mode};
use crate::gpus::{Gpu, Gpus};
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::objects::{self, Inventory};
use gpuslice_kubernetes::{dra, plugin};
use gpuslice_slices::installed;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::error;

/// Percent of time that a GPU has.
const WHOLE: u32 = 100;
/// Time after which a part that could not be started is started again.
const AGAIN: Duration = Duration::from_secs(10);
/// Longest wait for the apiserver's answer whether a claim is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves the kubelet until the sender of `alive` is dropped. Slices that the configuration makes go on without it.
pub(crate) async fn serve(config: Config, gpus: Gpus, alive: watch::Receiver<()>) {
    let Some(cluster) = config.cluster.clone() else { return };
    let part = match cluster.mode {
        Mode::DevicePlugin => "the device plugin",
        Mode::Dra => "the driver of claims",
    };
    while let Err(why) = try_serve(&config, cluster.clone(), gpus.clone(), alive.clone()).await {
        error!("{part}: {why}");
        if tokio::time::timeout(AGAIN, end(alive.clone())).await.is_ok() {
            return;
        }
    }
}

async fn end(mut alive: watch::Receiver<()>) {
    while alive.changed().await.is_ok() {}
}

/// Serves in one mode, once nothing of the other mode is left on the node.
async fn try_serve(
    config: &Config,
    cluster: Cluster,
    gpus: Gpus,
    alive: watch::Receiver<()>,
) -> Result<(), String> {
    let places = config.places.clone();
    let library: PathBuf = config.library.clone().map_or_else(installed::library, Ok)?;
    let client = Client::at(cluster.apiserver.as_deref())?;
    let gpus = Arc::new(move || inventory(&gpus));
    let Cluster { node, kubelet, .. } = cluster;
    match cluster.mode {
        Mode::DevicePlugin => {
            dra::sweep::clear(&places, &client, &node, PATIENCE).await?;
            let mut plugin = plugin::PluginConfig::usual(node, kubelet, places, library);
            (plugin.slots_per_gpu, plugin.auto_alloc) = (cluster.slots_per_gpu, cluster.auto_alloc);
            plugin.resize = cluster.resize;
            plugin::serve(plugin, client, gpus, end(alive)).await.map_err(|problem| problem.to_string())
        }
        Mode::Dra => {
            plugin::clear(&places, &kubelet, &client, &node).await?;
            tokio::select! {
                served = dra::serve(dra::DriverConfig::usual(node, kubelet, places, library), client, gpus) => served,
                () = end(alive) => Ok(()),
            }
        }
    }
}

fn inventory(gpus: &Gpus) -> Inventory {
    Inventory { v: objects::VERSION, driver: gpus.driver().unwrap_or_default(), gpus: listed(&gpus.all()) }
}

/// Returns GPUs as the cluster sees them. The memory that the driver keeps for itself cannot be given away.
fn listed(gpus: &[Gpu]) -> Vec<objects::Gpu> {
    let position = |uuid: &String| gpus.iter().position(|gpu| gpu.uuid == *uuid);
    let listed = |gpu: &Gpu| {
        let memory = gpu.memory_total.unwrap_or(0).saturating_sub(gpu.memory_reserved.unwrap_or(0));
        objects::Gpu {
            uuid: gpu.uuid.clone(),
            model: gpu.model.clone().unwrap_or_default(),
            mem_mib: memory >> 20,
            core: WHOLE,
            healthy: gpu.healthy && memory > 0,
            nvlink: gpu.nvlink.iter().filter_map(position).collect(),
            ..objects::Gpu::default()
        }
    };
    gpus.iter().map(listed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_has_its_links_by_position() {
        let gpu = |uuid: &str, linked: &[&str]| Gpu {
            uuid: uuid.to_owned(),
            nvlink: linked.iter().map(|uuid| (*uuid).to_owned()).collect(),
            ..Gpu::default()
        };
        let gpus = [gpu("GPU-a", &["GPU-c", "GPU-lost"]), gpu("GPU-b", &[]), gpu("GPU-c", &["GPU-a"])];
        let links: Vec<_> = listed(&gpus).into_iter().map(|gpu| gpu.nvlink).collect();
        assert_eq!(links, [vec![2], vec![], vec![0]]);
    }
}
