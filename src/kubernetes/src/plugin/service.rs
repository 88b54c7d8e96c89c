//! The five calls of the kubelet to a device plugin.

use super::Plugin;
use super::slots::name;
use super::start::Wait;
use crate::grpc::device_plugin::device_plugin_server::DevicePlugin;
use crate::grpc::device_plugin::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest, ContainerAllocateResponse,
    DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use gpuslice_slices::cdi::KIND;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

/// Options of the plugin. The kubelet gets them at the registration, and again when it asks.
pub(super) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: false };

/// Service that answers the kubelet.
#[derive(Debug)]
pub(super) struct PluginService {
    pub(super) plugin: Arc<Plugin>,
    /// Each open stream of devices has a clone.
    pub(super) streams: Arc<()>,
}

#[tonic::async_trait]
impl DevicePlugin for PluginService {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let open = Arc::clone(&self.streams);
        let devices = WatchStream::new(self.plugin.devices.subscribe()).map(move |devices| {
            let _lives_as_long_as_the_stream = &open;
            Ok(ListAndWatchResponse { devices })
        });
        Ok(Response::new(Box::pin(devices)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Ok(Response::new(PreferredAllocationResponse::default()))
    }

    /// Takes the slots from their former owners, and answers with their names. The call never fails, because the kubelet ends
    /// the pod of a call that fails.
    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        let slots: Vec<String> = requests.iter().flat_map(|request| &request.devices_ids).cloned().collect();
        self.plugin
            .with_slots(move |known| slots.iter().for_each(|slot| known.release(slot)))
            .await
            .unwrap_or_else(|error| tracing::error!("slots were not cleared: {error}"));
        let container_responses = requests.iter().map(allocated).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    /// Makes the files of a container. An error only delays the container, because the kubelet tries again.
    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<Empty>, Status> {
        let (slots, begun) = (request.into_inner().devices_ids, Instant::now());
        let started = self.plugin.start(&slots).await;
        self.plugin.metrics.count(begun.elapsed(), started.as_ref().err().map(|wait| wait.cause));
        match started {
            Ok(()) => Ok(Response::new(Empty {})),
            Err(Wait { why, .. }) => {
                tracing::warn!("a container waits for {}: {why}", slots.join(", "));
                Err(Status::failed_precondition(why))
            }
        }
    }
}

/// Returns the name under which the container's files will lie, once the plugin knows the container. This is the name of its
/// first slot.
fn allocated(request: &ContainerAllocateRequest) -> ContainerAllocateResponse {
    let first = request.devices_ids.iter().filter_map(|slot| name(slot)).min();
    let named = first.map(|slot| CdiDevice { name: format!("{KIND}={slot}") });
    ContainerAllocateResponse { cdi_devices: named.into_iter().collect() }
}
