//! Runs an extender of a Kubernetes scheduler until a signal ends it.

use crate::arguments::{Extender, Order};
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::{extender, placement};
use std::io;
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
    let told = |error: io::Error| format!("{}: {error}", wish.listen);
    let listener = TcpListener::bind(wish.listen).await.map_err(told)?;
    let address = listener.local_addr().map_err(told)?;
    info!(%address, "serving a scheduler");
    let on = |kind| signal(kind).map_err(|error| error.to_string());
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        served = extender::serve(listener, client, order) => served.map_err(|error| error.to_string()),
    }
}
