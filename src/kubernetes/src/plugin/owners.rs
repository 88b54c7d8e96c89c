//! The containers that have slots, as the kubelet lists them.

use crate::grpc::pod_resources::ListPodResourcesResponse;
use crate::grpc::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::objects::SLICE;
use std::path::Path;
use std::time::Duration;
use tonic::transport::Endpoint;

/// Bytes of the kubelet's answer at the most: it names every device of every container of the node.
const MOST_BYTES: usize = 64 << 20;
/// The time in which the kubelet answers; it takes 1 to 18 ms.
const PATIENCE: Duration = Duration::from_secs(5);

/// A container, and the slots that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    /// In order.
    pub(crate) slots: Vec<String>,
}

/// Asks the kubelet on this socket.
pub(crate) async fn holders(socket: &Path) -> Result<Vec<Holder>, String> {
    let told = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("the kubelet's list of devices ({}): {error}{cause}", socket.display())
    };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let endpoint = endpoint.map_err(|error| told(&error))?.connect_timeout(PATIENCE).timeout(PATIENCE);
    let channel = endpoint.connect().await.map_err(|error| told(&error))?;
    let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(MOST_BYTES);
    let listed = client.list(crate::grpc::pod_resources::ListPodResourcesRequest {}).await;
    Ok(read(listed.map_err(|error| told(&error))?.into_inner()))
}

/// The containers that have slots. A kubelet may list all devices of a resource together, or one by one.
fn read(listed: ListPodResourcesResponse) -> Vec<Holder> {
    let mut found = Vec::new();
    for pod in listed.pod_resources {
        for container in pod.containers {
            let ours = container.devices.into_iter().filter(|devices| devices.resource_name == SLICE);
            let mut slots: Vec<String> = ours.flat_map(|devices| devices.device_ids).collect();
            slots.sort();
            slots.dedup();
            if !slots.is_empty() {
                let (namespace, pod) = (pod.namespace.clone(), pod.name.clone());
                found.push(Holder { namespace, pod, container: container.name, slots });
            }
        }
    }
    found
}
