//! Lists the containers that have slots, from the kubelet, and the pods of the node, from the apiserver.

use crate::api::{Client, Failure, List, Pod};
use crate::grpc::pod_resources::ListPodResourcesResponse;
use crate::grpc::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use crate::objects::SLICE;
use std::path::Path;
use std::time::Duration;
use tonic::transport::Endpoint;

/// Most bytes of the kubelet's answer. The answer names every device of every container of the node.
const MOST_OWNERS_BYTES: usize = 64 << 20;
/// Longest wait for the kubelet's answer, which takes 1 to 18 ms.
const LONGEST_OWNERS_ANSWER: Duration = Duration::from_secs(5);

/// A container, with its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    /// Slots, sorted.
    pub(crate) slots: Vec<String>,
}

/// Asks the kubelet at this socket for all containers with slots.
pub(crate) async fn holders(socket: &Path) -> Result<Vec<Holder>, String> {
    let told = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("the kubelet's list of devices ({}): {error}{cause}", socket.display())
    };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let endpoint = endpoint
        .map_err(|error| told(&error))?
        .connect_timeout(LONGEST_OWNERS_ANSWER)
        .timeout(LONGEST_OWNERS_ANSWER);
    let channel = endpoint.connect().await.map_err(|error| told(&error))?;
    let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(MOST_OWNERS_BYTES);
    let listed = client.list(crate::grpc::pod_resources::ListPodResourcesRequest {}).await;
    Ok(read(listed.map_err(|error| told(&error))?.into_inner()))
}

/// Asks the apiserver for the pods of a node. The kubelet's list is not enough: a kubelet that has just started lists no pod,
/// and old kubelets also list the slots of ended pods.
pub(super) async fn pods(client: &Client, node: &str) -> Result<Vec<Pod>, Failure> {
    let pods = client.get::<List<Pod>>(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")).await?;
    let pods = pods.ok_or_else(|| Failure::Silent("there is no list".to_owned()))?;
    Ok(pods.items)
}

/// Returns the containers with slots. A kubelet may list all devices of a resource in one entry, or one device in each entry.
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
