//! Serves a kubelet beside the rest of the agent, if the configuration has a cluster.

use crate::config::{Cluster, Config, Mode};
use crate::gpus::{Gpu, Gpus, Obstacle};
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::metrics::PreStartMetrics;
use gpuslice_kubernetes::objects::{self, Inventory};
use gpuslice_kubernetes::{dra, plugin};
use gpuslice_slices::installed;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{error, warn};

/// The time of a GPU, in percent.
const WHOLE: u32 = 100;
/// Time after which the agent starts again to serve the kubelet, if that failed.
const AGAIN: Duration = Duration::from_secs(10);
/// Longest wait for the apiserver's answer whether a claim exists.
const LONGEST_CLAIM_ANSWER: Duration = Duration::from_secs(5);

/// Serves the kubelet until the sender of `alive` is dropped, and counts its calls in `calls`. After a failure, the function
/// starts again. The slices of the configuration do not depend on it.
pub(crate) async fn serve(config: Config, gpus: Gpus, calls: PreStartMetrics, alive: watch::Receiver<()>) {
    let Some(cluster) = config.cluster.clone() else { return };
    let part = match cluster.mode {
        Mode::DevicePlugin => "the device plugin",
        Mode::Dra => "the driver of claims",
    };
    while let Err(why) = try_serve(&config, cluster.clone(), gpus.clone(), calls.clone(), alive.clone()).await
    {
        error!("{part}: {why}");
        if tokio::time::timeout(AGAIN, end(alive.clone())).await.is_ok() {
            return;
        }
    }
}

async fn end(mut alive: watch::Receiver<()>) {
    while alive.changed().await.is_ok() {}
}

/// Serves the kubelet in the configuration's mode. First removes the files of the other mode. Fails while pods of this node use
/// the other mode, because this mode would give away their memory again.
async fn try_serve(
    config: &Config,
    cluster: Cluster,
    gpus: Gpus,
    calls: PreStartMetrics,
    alive: watch::Receiver<()>,
) -> Result<(), String> {
    let places = config.places.clone();
    let library: PathBuf = config.library.clone().map_or_else(installed::library, Ok)?;
    let client = Client::at(cluster.apiserver.as_deref())?;
    let obstacles = Obstacles::default();
    let gpus = Arc::new(move || {
        let all = gpus.all();
        obstacles.tell(&all);
        inventory(gpus.driver(), &all)
    });
    let Cluster { node, kubelet, .. } = cluster;
    match cluster.mode {
        Mode::DevicePlugin => {
            dra::sweep::clear(&places, &client, &node, LONGEST_CLAIM_ANSWER).await?;
            let mut plugin = plugin::PluginConfig::usual(node, kubelet, places, library);
            (plugin.slots_per_gpu, plugin.auto_alloc) = (cluster.slots_per_gpu, cluster.auto_alloc);
            plugin.resize = cluster.resize;
            plugin::serve(plugin, client, gpus, calls, end(alive))
                .await
                .map_err(|problem| problem.to_string())
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

/// Reasons why slices cannot share GPUs, by UUID. The agent has logged these reasons.
#[derive(Debug, Default)]
struct Obstacles(Mutex<BTreeMap<String, Obstacle>>);

impl Obstacles {
    /// Logs each new reason, and returns how many it has logged.
    fn tell(&self, gpus: &[Gpu]) -> usize {
        let found: BTreeMap<String, Obstacle> =
            gpus.iter().filter_map(|gpu| Some((gpu.uuid.clone(), gpu.obstacle?))).collect();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = found.iter().filter(|(uuid, why)| known.get(*uuid) != Some(*why));
        let told =
            new.map(|(uuid, why)| warn!(gpu = %uuid, "no slice is placed on it: {}", why.text())).count();
        *known = found;
        told
    }
}

fn inventory(driver: Option<String>, gpus: &[Gpu]) -> Inventory {
    Inventory { v: objects::ANNOTATION_VERSION, driver: driver.unwrap_or_default(), gpus: listed(gpus) }
}

/// Returns GPUs as the cluster sees them.
fn listed(gpus: &[Gpu]) -> Vec<objects::Gpu> {
    let position = |uuid: &String| gpus.iter().position(|gpu| gpu.uuid == *uuid);
    let listed = |gpu: &Gpu| objects::Gpu {
        uuid: gpu.uuid.clone(),
        model: gpu.model.clone().unwrap_or_default(),
        mem_mib: gpu.memory_for_slices() >> 20,
        core: WHOLE,
        healthy: gpu.is_shared(),
        why: gpu.obstacle.map(|why| why.text().to_owned()),
        nvlink: gpu.nvlink.iter().filter_map(position).collect(),
        ..objects::Gpu::default()
    };
    gpus.iter().map(listed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_slices_cannot_share_has_the_reason_and_it_is_logged_once() {
        let gpu = |uuid: &str, obstacle| Gpu {
            uuid: uuid.to_owned(),
            healthy: true,
            memory_total: Some(1 << 30),
            obstacle,
            ..Gpu::default()
        };
        let whole = [gpu("GPU-a", None), gpu("GPU-b", None)];
        let divided = [gpu("GPU-a", None), gpu("GPU-b", Some(Obstacle::Divided))];
        let told: Vec<_> = listed(&divided).into_iter().map(|gpu| (gpu.healthy, gpu.why)).collect();
        assert_eq!(told, [(true, None), (false, Some(Obstacle::Divided.text().to_owned()))]);
        let obstacles = Obstacles::default();
        let logged = [&whole, &divided, &divided, &whole, &divided].map(|gpus| obstacles.tell(gpus));
        assert_eq!(logged, [0, 1, 0, 0, 1]);
    }

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
