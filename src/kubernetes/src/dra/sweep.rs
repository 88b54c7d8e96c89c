//! Removes the files of claims that do not exist any more. Usually the kubelet asks the driver to remove them. A kubelet that
//! has lost its checkpoint does not ask.

use super::claims::{Claims, Record};
use super::{Driver, find, with_claims};
use crate::api::Client;
use gpuslice_slices::slot::Places;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tracing::{info, warn};

/// Sweeps until the future is dropped.
pub(super) async fn watch(driver: &Driver) {
    let config = &driver.config;
    loop {
        if let Err(why) = sweep(&driver.claims, &driver.client, &config.node, config.patience).await {
            warn!("files of claims that are gone stay: {why}");
        }
        tokio::time::sleep(config.sweep).await;
    }
}

/// Removes the files of claims that do not exist in the apiserver, or are not allocated on this node.
///
/// The function holds the lock from the question to the removal. Otherwise the kubelet could prepare the claim in between, and
/// the function would then remove the new files. If the apiserver does not answer, the remaining files stay.
async fn sweep(
    claims: &Arc<Mutex<Claims>>,
    client: &Client,
    pool: &str,
    patience: Duration,
) -> Result<(), String> {
    for record in with_claims(claims, Claims::records).await? {
        let Record { namespace, name, uid, .. } = record;
        let held = Arc::clone(claims).lock_owned().await;
        let found = find(client, patience, &namespace, &name).await.map_err(|failure| failure.to_string())?;
        if found.is_some_and(|claim| claim.metadata.uid == uid && !claim.devices(pool).is_empty()) {
            continue;
        }
        let removed = tokio::task::spawn_blocking(move || held.unprepare(&uid)).await;
        match removed.map_err(|error| error.to_string())? {
            Ok(()) => info!(claim = %format!("{namespace}/{name}"), "removed its files"),
            Err(why) => warn!("the claim {namespace}/{name} is gone: {why}"),
        }
    }
    Ok(())
}

/// Makes room for the device plugin: removes the files of claims that do not exist any more.
///
/// # Errors
/// Claims of this node still exist, or the apiserver does not answer. Without the error, the device plugin would give the
/// memory of these claims away again.
pub async fn clear(places: &Places, client: &Client, node: &str, patience: Duration) -> Result<(), String> {
    let claims = Arc::new(Mutex::new(Claims::open(places.clone(), PathBuf::new())));
    sweep(&claims, client, node, patience).await?;
    let left = with_claims(&claims, Claims::records).await?;
    let names: Vec<String> =
        left.iter().map(|record| format!("{}/{}", record.namespace, record.name)).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(format!(
        "this node has the claims {} of the mode \"dra\"; drain it before you change the mode",
        names.join(", ")
    ))
}
