//! Runs an extender of a Kubernetes scheduler until a signal ends it.

use crate::arguments::{Extender, Order};
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::extender::{self, ExtenderConfig};
use gpuslice_kubernetes::{lease, placement};
use std::net::SocketAddr;
use std::{env, fs, io};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// Serves a scheduler.
pub(crate) fn serve(wish: &Extender) -> Result<(), String> {
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(until_ended(wish))
}

async fn until_ended(wish: &Extender) -> Result<(), String> {
    let client = Client::at(wish.apiserver.as_deref())?;
    let order = match wish.order {
        Order::Binpack => placement::Order::Binpack,
        Order::Spread => placement::Order::Spread,
    };
    let lease = wish.lease.as_ref().map(|lease| {
        let identity = identity()?;
        Ok::<_, String>(lease::LeaseConfig::usual(lease.namespace.clone(), lease.name.clone(), identity))
    });
    let listener = listen(wish.listen).await?;
    let health = match wish.health {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    info!(%address, "serving a scheduler");
    let on = |kind| signal(kind).map_err(|error| error.to_string());
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let until = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let settings = ExtenderConfig { order, lease: lease.transpose()? };
    extender::serve(listener, health, client, settings, until).await.map_err(|error| error.to_string())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))
}

/// Returns a name that no other process has. It consists of the host's name, which in a pod is the pod's name, and a random
/// UUID.
fn identity() -> Result<String, String> {
    let number = fs::read_to_string("/proc/sys/kernel/random/uuid");
    let number = number.map_err(|error| format!("/proc/sys/kernel/random/uuid: {error}"))?;
    let host = env::var("HOSTNAME").unwrap_or_default();
    Ok(format!("{host}_{}", number.trim()))
}
