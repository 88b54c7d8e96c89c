//! The part of a kubelet that calls a driver of dynamic resources, with real gRPC on real sockets.

use crate::kubelet::until;
use crate::raw::call;
use gpuslice_kubernetes::grpc::dra::dra_plugin_client::DraPluginClient;
use gpuslice_kubernetes::grpc::dra::{
    Claim, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest,
};
use gpuslice_kubernetes::grpc::dra_health::v1::dra_resource_health_client::DraResourceHealthClient as V1;
use gpuslice_kubernetes::grpc::dra_health::v1alpha1::dra_resource_health_client::DraResourceHealthClient as V1Alpha1;
use gpuslice_kubernetes::grpc::dra_health::v1alpha1::{
    NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};
use gpuslice_kubernetes::grpc::plugin_registration::{InfoRequest, PluginInfo, RegistrationStatus};
use prost::Message as _;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

#[derive(Debug)]
pub(crate) struct Manager {
    folder: PathBuf,
}

impl Manager {
    pub(crate) fn new(folder: &Path) -> Self {
        std::fs::create_dir_all(folder.join("plugins_registry")).unwrap();
        Self { folder: folder.to_owned() }
    }

    pub(crate) fn registration(&self) -> PathBuf {
        self.folder.join("plugins_registry/gpuslice.dev-reg.sock")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("plugins/gpuslice.dev/dra.sock")
    }

    /// Finds the driver and confirms it, like the kubelet's watcher of sockets. It sends the path of the socket as the
    /// authority.
    pub(crate) async fn registers(&self) -> PluginInfo {
        let socket = self.registration();
        until("a socket of registrations", || UnixStream::connect(&socket).is_ok()).await;
        let asked = tokio::task::spawn_blocking(move || {
            let patience = crate::PATIENCE;
            let method = |name: &str| format!("/pluginregistration.Registration/{name}");
            let info = call(&socket, &method("GetInfo"), &InfoRequest {}.encode_to_vec(), patience);
            let status = RegistrationStatus { plugin_registered: true, error: String::new() };
            call(&socket, &method("NotifyRegistrationStatus"), &status.encode_to_vec(), patience);
            PluginInfo::decode(info.as_slice()).unwrap()
        });
        asked.await.unwrap()
    }

    async fn dial(&self) -> Result<Channel, Status> {
        let endpoint = Endpoint::from_shared(format!("unix://{}", self.socket().display())).unwrap();
        endpoint.connect().await.map_err(|error| Status::unavailable(error.to_string()))
    }

    pub(crate) async fn prepare(
        &self,
        claims: &[Claim],
    ) -> Result<HashMap<String, NodePrepareResourceResponse>, Status> {
        let request = NodePrepareResourcesRequest { claims: claims.to_vec() };
        let answer = DraPluginClient::new(self.dial().await?).node_prepare_resources(request).await?;
        let answer = answer.into_inner().claims;
        assert_eq!(answer.len(), claims.len(), "every claim has an entry");
        Ok(answer)
    }

    /// Prepares one claim, and sends the path of the socket as the authority. Returns the entry of the claim.
    pub(crate) async fn prepare_by_path(&self, claim: &Claim) -> NodePrepareResourceResponse {
        let (socket, request) = (self.socket(), NodePrepareResourcesRequest { claims: vec![claim.clone()] });
        let asked = tokio::task::spawn_blocking(move || {
            let method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources";
            let answer = call(&socket, method, &request.encode_to_vec(), crate::PATIENCE);
            NodePrepareResourcesResponse::decode(answer.as_slice()).unwrap()
        });
        asked.await.unwrap().claims.remove(&claim.uid).unwrap()
    }

    /// Tries to prepare one claim, and returns the reason of the failure.
    pub(crate) async fn refused(&self, claim: &Claim) -> String {
        let answer = self.prepare(std::slice::from_ref(claim)).await.unwrap();
        assert!(answer[&claim.uid].devices.is_empty());
        answer[&claim.uid].error.clone()
    }

    pub(crate) async fn unprepare(&self, claims: &[Claim]) -> Result<(), Status> {
        let request = NodeUnprepareResourcesRequest { claims: claims.to_vec() };
        let answer = DraPluginClient::new(self.dial().await?).node_unprepare_resources(request).await?;
        let answer = answer.into_inner().claims;
        assert_eq!(answer.len(), claims.len(), "every claim has an entry");
        let mut errors = answer.into_values().map(|answer| answer.error).filter(|error| !error.is_empty());
        errors.next().map_or(Ok(()), |error| Err(Status::aborted(error)))
    }

    /// Watches the health of devices by the service that old kubelets call.
    pub(crate) async fn watch_v1alpha1(&self) -> Streaming<NodeWatchResourcesResponse> {
        let mut client = V1Alpha1::new(self.dial().await.unwrap());
        client.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap().into_inner()
    }

    /// Watches the health of devices by the service that later kubelets call.
    pub(crate) async fn watch_v1(&self) -> Streaming<NodeWatchResourcesResponse> {
        let mut client = V1::new(self.dial().await.unwrap());
        client.node_watch_resources(NodeWatchResourcesRequest {}).await.unwrap().into_inner()
    }
}
