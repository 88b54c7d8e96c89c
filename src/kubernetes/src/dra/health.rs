//! Reports the health of devices to the kubelet. The kubelet writes it into the status of the pods that use the devices.

use super::service::DriverService;
use super::{Driver, device};
use crate::grpc::dra_health::v1::dra_resource_health_server::DraResourceHealth as V1;
use crate::grpc::dra_health::v1alpha1::dra_resource_health_server::DraResourceHealth as V1Alpha1;
use crate::grpc::dra_health::v1alpha1::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};
use crate::objects::{Gpu, Inventory};
use std::pin::Pin;
use std::time::{Instant, SystemTime};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

/// Seconds after which the kubelet treats a health as unknown. This is the kubelet's own default.
const TIMEOUT: i64 = 30;

/// Reports changes at once, and the health at each interval, until the future is dropped.
pub(super) async fn watch(driver: &Driver) {
    let (mut told, mut at) = (None, Instant::now());
    loop {
        let inventory = (driver.gpus)();
        if told.as_ref() != Some(&inventory) || at.elapsed() >= driver.config.interval {
            driver.health.send_replace(healths(&inventory, &driver.config.node, now()));
            (told, at) = (Some(inventory), Instant::now());
        }
        tokio::time::sleep(driver.config.poll).await;
    }
}

/// Returns the seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn healths(inventory: &Inventory, pool: &str, now: i64) -> Vec<DeviceHealth> {
    let health = |gpu: &Gpu| {
        let (health, message) = if gpu.healthy {
            (HealthStatus::Healthy, "")
        } else {
            (HealthStatus::Unhealthy, gpu.why.as_deref().unwrap_or("NVML does not answer for this GPU"))
        };
        DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: pool.to_owned(), device_name: device::name(gpu) }),
            health: health.into(),
            last_updated_time: now,
            health_check_timeout_seconds: TIMEOUT,
            message: message.to_owned(),
        }
    };
    inventory.gpus.iter().map(health).collect()
}

type Healths = Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

impl DriverService {
    fn healths(&self) -> Response<Healths> {
        let told = WatchStream::new(self.0.health.subscribe());
        Response::new(Box::pin(told.map(|devices| Ok(NodeWatchResourcesResponse { devices }))))
    }
}

#[tonic::async_trait]
impl V1Alpha1 for DriverService {
    type NodeWatchResourcesStream = Healths;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Healths>, Status> {
        Ok(self.healths())
    }
}

#[tonic::async_trait]
impl V1 for DriverService {
    type NodeWatchResourcesStream = Healths;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Healths>, Status> {
        Ok(self.healths())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unhealthy_device_has_its_reason() {
        let message = |why: Option<&str>| {
            let gpu = Gpu { uuid: "GPU-a".to_owned(), why: why.map(str::to_owned), ..Gpu::default() };
            let inventory = Inventory { v: 1, driver: String::new(), gpus: vec![gpu] };
            healths(&inventory, "n1", 0).remove(0).message
        };
        assert_eq!(message(None), "NVML does not answer for this GPU");
        assert_eq!(message(Some("MIG is enabled")), "MIG is enabled");
    }
}
