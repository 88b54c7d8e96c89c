//! Registers with the kubelet, and registers again after a restart of the kubelet or of the agent.

use super::Plugin;
use super::service::{OPTIONS, PluginService};
use crate::grpc::device_plugin::RegisterRequest;
use crate::grpc::device_plugin::device_plugin_server::DevicePluginServer;
use crate::grpc::device_plugin::registration_client::RegistrationClient;
use crate::grpc::socket::{identity, listen};
use crate::objects::SLICE;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::{Endpoint, Server};
use tracing::{info, warn};

/// Socket of the plugin in the kubelet's folder.
const SOCKET: &str = "gpuslice.sock";
/// Version of the interface.
const PLUGIN_VERSION: &str = "v1beta1";
/// Longest time in which the kubelet must accept a registration, and then ask for the devices.
const LONGEST_REGISTRATION: Duration = Duration::from_secs(5);

/// Serves one kubelet after another.
///
/// A starting kubelet removes all sockets of the folder, and makes its own socket. The plugin polls for both events. Unlike a
/// watch of the folder, a poll also works if the folder itself was replaced.
pub(super) async fn serve(plugin: &Arc<Plugin>) {
    let folder = plugin.config.plugins();
    let (ours, kubelets) = (folder.join(SOCKET), folder.join("kubelet.sock"));
    loop {
        if let Some(kubelet) = identity(&kubelets) {
            match begin(plugin, &ours, &kubelets).await {
                Ok((streams, server)) => {
                    let served = (identity(&ours), Some(kubelet));
                    let begun = Instant::now();
                    info!(socket = %ours.display(), "registered with the kubelet");
                    plugin.is_registered.send_replace(true);
                    let mut had_stream = false;
                    while (identity(&ours), identity(&kubelets)) == served {
                        let has_stream = Arc::strong_count(&streams) > 2;
                        if !has_stream && (had_stream || begun.elapsed() >= LONGEST_REGISTRATION) {
                            break;
                        }
                        had_stream = has_stream;
                        tokio::time::sleep(plugin.config.poll).await;
                    }
                    info!("the kubelet has gone");
                    plugin.is_registered.send_replace(false);
                    server.abort();
                }
                Err(why) => warn!("the registration: {why}"),
            }
        }
        tokio::time::sleep(plugin.config.poll).await;
    }
}

/// Starts a server and registers it with the kubelet. The server stops when the caller aborts the returned task. Each stream of
/// devices has a clone of the returned `Arc`, so the caller sees from its count whether a stream is open.
async fn begin(
    plugin: &Arc<Plugin>,
    ours: &Path,
    kubelets: &Path,
) -> Result<(Arc<()>, tokio::task::JoinHandle<()>), String> {
    let incoming = listen(ours)?;
    let streams = Arc::new(());
    let service = PluginService { plugin: Arc::clone(plugin), streams: Arc::clone(&streams) };
    // The plugin serves before it registers, because the kubelet asks for the options during the registration.
    let server = tokio::spawn(async move {
        let served = Server::builder().serve_with_incoming(DevicePluginServer::new(service), incoming);
        if let Err(error) = served.await {
            warn!("the device plugin's socket: {error}");
        }
    });
    match tokio::time::timeout(LONGEST_REGISTRATION, register(kubelets)).await {
        Ok(Ok(())) => Ok((streams, server)),
        other => {
            server.abort();
            Err(other.map_or_else(
                |_| format!("not within {LONGEST_REGISTRATION:?}"),
                |failed| failed.err().unwrap_or_default(),
            ))
        }
    }
}

async fn register(kubelets: &Path) -> Result<(), String> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", kubelets.display()));
    let channel = endpoint.map_err(|error| error.to_string())?.connect().await;
    let mut client = RegistrationClient::new(channel.map_err(|error| error.to_string())?);
    let request = RegisterRequest {
        version: PLUGIN_VERSION.to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: SLICE.to_owned(),
        options: Some(OPTIONS),
    };
    client.register(request).await.map(drop).map_err(|status| status.to_string())
}
