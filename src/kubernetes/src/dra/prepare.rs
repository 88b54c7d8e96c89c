//! Prepares a claim on the node, and removes its files again.

use super::claim::{Allocated, Claim, parts};
use super::claims::Record;
use super::{Driver, find, with_claims};
use crate::grpc::dra::{Claim as Asked, Device};

impl Driver {
    /// Makes the files of a claim, and returns its devices. The kubelet may call the function again and again, and gets the
    /// same answer. After a failure the function returns an error, and the kubelet tries again.
    pub(super) async fn prepare(&self, asked: &Asked) -> Result<Vec<Device>, String> {
        let Asked { namespace, name, uid } = asked;
        let found = find(&self.client, self.config.patience, namespace, name).await;
        let claim: Claim = found
            .map_err(|failure| failure.to_string())?
            .ok_or_else(|| format!("there is no claim {namespace}/{name}"))?;
        if claim.metadata.uid != *uid {
            let is = claim.metadata.uid;
            return Err(format!("the claim {namespace}/{name} has the uid {is:?}, and {uid:?} is asked for"));
        }
        let devices = claim.devices(&self.config.node);
        if devices.is_empty() {
            return Err(format!(
                "the claim {namespace}/{name} has no device of the node {}",
                self.config.node
            ));
        }
        let record = Record {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            parts: parts(&devices, &(self.gpus)())?,
        };
        let cdi = with_claims(&self.claims, move |claims| claims.prepare(&record)).await??;
        // Every device stands for the whole slice, because a container may name only one request of the claim.
        let device = |device: Allocated| Device {
            request_names: vec![device.request().to_owned()],
            pool_name: device.pool,
            device_name: device.device,
            cdi_device_ids: vec![cdi.clone()],
            share_id: device.share,
        };
        Ok(devices.into_iter().map(device).collect())
    }

    /// Removes the files of a claim. Does not ask the apiserver, because the claim may already be deleted there.
    pub(super) async fn unprepare(&self, asked: &Asked) -> Result<(), String> {
        let uid = asked.uid.clone();
        with_claims(&self.claims, move |claims| claims.unprepare(&uid)).await?
    }
}
