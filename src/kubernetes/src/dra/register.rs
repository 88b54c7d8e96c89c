//! Serves the two sockets on which the kubelet finds the driver. Makes them again if another process has removed them.

use super::service::DriverService;
use super::{Driver, device};
use crate::grpc::dra::dra_plugin_server::DraPluginServer;
use crate::grpc::dra_health::{v1, v1alpha1};
use crate::grpc::plugin_registration::registration_server::{Registration, RegistrationServer};
use crate::grpc::plugin_registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use crate::grpc::socket::{identity, listen};
use gpuslice_slices::slot::make_folder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

/// Services on the driver's socket, by the names that the kubelet uses.
const SERVICES: [&str; 3] = ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// Serves until the future is dropped. A starting kubelet finds the existing sockets, so the driver need not do anything then.
pub(super) async fn serve(driver: &Arc<Driver>) {
    let kubelet = &driver.config.kubelet;
    let ours = kubelet.join("plugins").join(device::DRIVER).join("dra.sock");
    let registration = kubelet.join("plugins_registry").join(format!("{}-reg.sock", device::DRIVER));
    loop {
        match begin(driver, &ours, &registration) {
            Ok(_ends_with_it) => {
                info!(socket = %registration.display(), "waiting for the kubelet");
                let served = [&ours, &registration].map(|path| identity(path));
                while [&ours, &registration].map(|path| identity(path)) == served {
                    tokio::time::sleep(driver.config.poll).await;
                }
                info!("another process has removed or replaced the sockets");
            }
            Err(why) => warn!("the driver's sockets: {why}"),
        }
        tokio::time::sleep(driver.config.poll).await;
    }
}

/// Starts both servers. The socket of claims listens first, because the kubelet calls it as soon as it knows the driver.
fn begin(driver: &Arc<Driver>, ours: &Path, registration: &Path) -> Result<JoinSet<()>, String> {
    for folder in [ours, registration].into_iter().filter_map(Path::parent) {
        make_folder(folder).map_err(|problem| problem.to_string())?;
    }
    let service = DriverService(Arc::clone(driver));
    let register = Register { driver: Arc::clone(driver), endpoint: ours.to_owned() };
    let (claims, registrations) = (listen(ours)?, listen(registration)?);
    let mut servers = JoinSet::new();
    servers.spawn(async move {
        let server = Server::builder()
            .add_service(DraPluginServer::new(service.clone()))
            .add_service(v1alpha1::dra_resource_health_server::DraResourceHealthServer::new(service.clone()))
            .add_service(v1::dra_resource_health_server::DraResourceHealthServer::new(service));
        if let Err(error) = server.serve_with_incoming(claims).await {
            warn!("the socket of claims: {error}");
        }
    });
    servers.spawn(async move {
        let server = Server::builder().add_service(RegistrationServer::new(register));
        if let Err(error) = server.serve_with_incoming(registrations).await {
            warn!("the socket of registrations: {error}");
        }
    });
    Ok(servers)
}

struct Register {
    driver: Arc<Driver>,
    endpoint: PathBuf,
}

#[tonic::async_trait]
impl Registration for Register {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: device::DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: SERVICES.map(str::to_owned).to_vec(),
        }))
    }

    /// Handles the kubelet's answer. A kubelet that has refused the driver asks again by itself.
    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            info!("registered with the kubelet");
            self.driver.registered.notify_one();
        } else {
            warn!("the kubelet refuses the driver: {error}");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
