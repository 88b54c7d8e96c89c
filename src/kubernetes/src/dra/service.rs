//! Calls of the kubelet about claims.

use super::Driver;
use crate::grpc::dra::dra_plugin_server::DraPlugin;
use crate::grpc::dra::{
    NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

/// Service that answers the kubelet.
#[derive(Debug, Clone)]
pub(super) struct DriverService(pub(super) Arc<Driver>);

#[tonic::async_trait]
impl DraPlugin for DriverService {
    /// Prepares all claims at the same time, so that a silent apiserver delays the answer only by the wait for one claim. The
    /// answer has an entry for each claim: its devices, or its error.
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut asked = JoinSet::new();
        for claim in request.into_inner().claims {
            let driver = Arc::clone(&self.0);
            asked.spawn(async move {
                let prepared = driver.prepare(&claim).await;
                (claim, prepared)
            });
        }
        let mut claims = HashMap::new();
        while let Some(answered) = asked.join_next().await {
            let (claim, prepared) = answered.map_err(|error| Status::internal(error.to_string()))?;
            let (devices, error) = match prepared {
                Ok(devices) => {
                    info!(claim = %format!("{}/{}", claim.namespace, claim.name), "prepared");
                    (devices, String::new())
                }
                Err(why) => {
                    warn!("pods wait for the claim {}/{}: {why}", claim.namespace, claim.name);
                    (Vec::new(), why)
                }
            };
            claims.insert(claim.uid, NodePrepareResourceResponse { devices, error });
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let error = self.0.unprepare(&claim).await.err().unwrap_or_default();
            claims.insert(claim.uid, NodeUnprepareResourceResponse { error });
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
