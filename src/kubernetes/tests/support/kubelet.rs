//! The part of a kubelet that calls a device plugin, with real gRPC on real sockets.

use gpuslice_kubernetes::grpc::device_plugin as api;
use gpuslice_kubernetes::grpc::pod_resources as resources;
use gpuslice_kubernetes::objects::SLICE;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

/// Time after which the kubelet repeats a failed `PreStartContainer`. A real kubelet waits 12 s.
const AGAIN: Duration = Duration::from_millis(100);

/// A container: its namespace, pod and name.
pub(crate) type Container = (String, String, String);

pub(crate) fn container(pod: &str) -> Container {
    ("ns".to_owned(), pod.to_owned(), "main".to_owned())
}

/// The kubelet's checkpoint, and the state that it loses when it ends.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) allocated: BTreeMap<Container, Vec<String>>,
    /// The names that `Allocate` returned.
    pub(crate) named: BTreeMap<Container, Vec<String>>,
    /// Containers that the list does not show: init containers.
    pub(crate) hidden: BTreeSet<Container>,
    /// Healthy devices in the plugin's last list; none if no stream is open.
    pub(crate) healthy: Option<Vec<String>>,
    pub(crate) endpoint: Option<PathBuf>,
    pub(crate) registrations: u32,
    /// True if one entry of the list has all devices of a container, as in Kubernetes 1.20.
    pub(crate) is_grouped: bool,
    /// Number of devices of another resource that each container has too.
    pub(crate) others: u32,
    /// Tasks that read the plugin's streams.
    streams: Vec<JoinHandle<()>>,
    seed: u64,
}

/// The kubelet.
#[derive(Debug)]
pub(crate) struct Kubelet {
    folder: PathBuf,
    pub(crate) state: Arc<Mutex<State>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Kubelet {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), state: Arc::default(), tasks: Vec::new() }
    }

    /// Starts like a real kubelet: removes every socket of the folder of plugins.
    pub(crate) fn begin(&mut self) {
        let plugins = self.folder.join("device-plugins");
        fs::create_dir_all(&plugins).unwrap();
        fs::create_dir_all(self.folder.join("pod-resources")).unwrap();
        for entry in fs::read_dir(&plugins).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let _none = fs::remove_file(self.folder.join("pod-resources/kubelet.sock"));
        let listen = |name| UnixListenerStream::new(UnixListener::bind(self.folder.join(name)).unwrap());
        let (registry, lister) =
            (listen("device-plugins/kubelet.sock"), listen("pod-resources/kubelet.sock"));
        let registered = Registry { plugins, state: Arc::clone(&self.state) };
        let listed = Lister(Arc::clone(&self.state));
        self.tasks.push(tokio::spawn(async move {
            let service = api::registration_server::RegistrationServer::new(registered);
            Server::builder().serve_with_incoming(service, registry).await.unwrap();
        }));
        self.tasks.push(tokio::spawn(async move {
            let service = resources::pod_resources_lister_server::PodResourcesListerServer::new(listed);
            Server::builder().serve_with_incoming(service, lister).await.unwrap();
        }));
    }

    /// Ends the kubelet. Its checkpoint stays.
    pub(crate) fn end(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
        let mut state = self.state.lock().unwrap();
        state.streams.drain(..).for_each(|stream| stream.abort());
        (state.healthy, state.endpoint) = (None, None);
    }

    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap())
    }

    /// Waits until the plugin has registered and has listed this many healthy devices.
    pub(crate) async fn sees(&self, devices: usize) {
        let has = || self.with(|state| state.healthy.as_ref().map(Vec::len)) == Some(devices);
        until(&format!("{devices} devices"), has).await;
    }

    async fn client(&self) -> Result<api::device_plugin_client::DevicePluginClient<Channel>, Status> {
        let endpoint = self.with(|state| state.endpoint.clone());
        let endpoint = endpoint.ok_or_else(|| Status::unavailable("no plugin"))?;
        dial(&endpoint).await.map(api::device_plugin_client::DevicePluginClient::new)
    }

    /// Admits a container: chooses devices at random, and asks the plugin to allocate them. An error ends the pod permanently.
    pub(crate) async fn admit(&self, container: &Container, count: usize) -> Result<(), Status> {
        let chosen = self.with(|state| {
            let taken: BTreeSet<String> = state.allocated.values().flatten().cloned().collect();
            let mut free: Vec<String> = state.healthy.iter().flatten().cloned().collect();
            free.retain(|id| !taken.contains(id));
            let mut chosen = Vec::new();
            while chosen.len() < count && !free.is_empty() {
                state.seed = state.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = usize::try_from(state.seed >> 33).unwrap() % free.len();
                chosen.push(free.swap_remove(at));
            }
            chosen
        });
        assert_eq!(chosen.len(), count, "there are not enough devices");
        self.admit_with(container, chosen).await
    }

    /// Admits a container with these devices.
    pub(crate) async fn admit_with(&self, container: &Container, chosen: Vec<String>) -> Result<(), Status> {
        let one = api::ContainerAllocateRequest { devices_ids: chosen.clone() };
        let request = api::AllocateRequest { container_requests: vec![one] };
        let answer = self.client().await?.allocate(request).await?.into_inner();
        let [answer] = answer.container_responses.as_slice() else { panic!("{answer:?}") };
        let named = answer.cdi_devices.iter().map(|device| device.name.clone()).collect();
        self.with(|state| {
            state.allocated.insert(container.clone(), chosen);
            state.named.insert(container.clone(), named);
        });
        Ok(())
    }

    /// Asks the plugin which of the healthy devices it prefers for a container. A real kubelet asks only a plugin that offers
    /// advice.
    pub(crate) async fn preferred(&self, count: i32) -> Result<Vec<String>, Status> {
        let one = api::ContainerPreferredAllocationRequest {
            available_device_i_ds: self.with(|state| state.healthy.clone()).unwrap_or_default(),
            must_include_device_i_ds: Vec::new(),
            allocation_size: count,
        };
        let request = api::PreferredAllocationRequest { container_requests: vec![one] };
        let answer = self.client().await?.get_preferred_allocation(request).await?.into_inner();
        Ok(answer.container_responses.into_iter().flat_map(|response| response.device_i_ds).collect())
    }

    /// Asks the plugin once whether a container may start.
    pub(crate) async fn pre_start(&self, container: &Container) -> Result<(), Status> {
        let devices_ids = self.with(|state| state.allocated[container].clone());
        let request = api::PreStartContainerRequest { devices_ids };
        self.client().await?.pre_start_container(request).await.map(drop)
    }

    /// Starts a container as soon as the plugin allows it.
    pub(crate) async fn start(&self, container: &Container) {
        let end = Instant::now() + super::PATIENCE;
        while let Err(status) = self.pre_start(container).await {
            assert!(Instant::now() < end, "{container:?} does not start: {status}");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Admits a container and starts it. The plugin must allow both at the first request.
    pub(crate) async fn run(&self, container: &Container, count: usize) {
        self.admit(container, count).await.unwrap_or_else(|why| panic!("{container:?} is refused: {why}"));
        self.pre_start(container).await.unwrap_or_else(|why| panic!("{container:?} does not start: {why}"));
    }

    /// Forgets a deleted pod.
    pub(crate) fn forget(&self, container: &Container) {
        self.with(|state| {
            state.allocated.remove(container);
            state.named.remove(container);
        });
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + super::PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn dial(socket: &Path) -> Result<Channel, Status> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    endpoint.connect().await.map_err(|error| Status::unavailable(error.to_string()))
}

struct Registry {
    plugins: PathBuf,
    state: Arc<Mutex<State>>,
}

#[tonic::async_trait]
impl api::registration_server::Registration for Registry {
    async fn register(&self, request: Request<api::RegisterRequest>) -> Result<Response<api::Empty>, Status> {
        let request = request.into_inner();
        assert_eq!((request.version.as_str(), request.resource_name.as_str()), ("v1beta1", SLICE));
        let endpoint = self.plugins.join(&request.endpoint);
        let mut client = api::device_plugin_client::DevicePluginClient::new(dial(&endpoint).await?);
        let options = client.get_device_plugin_options(api::Empty {}).await?.into_inner();
        assert_eq!(Some(options), request.options, "old kubelets take the options from the request");
        let state = Arc::clone(&self.state);
        let mut devices = client.list_and_watch(api::Empty {}).await?.into_inner();
        let mine = {
            let mut state = state.lock().unwrap();
            state.endpoint = Some(endpoint);
            state.registrations += 1;
            state.registrations
        };
        let stream = tokio::spawn(async move {
            while let Ok(Some(list)) = devices.message().await {
                let healthy = list.devices.into_iter().filter(|device| device.health == "Healthy");
                let healthy = healthy.map(|device| device.id).collect();
                let mut state = state.lock().unwrap();
                if state.registrations == mine {
                    state.healthy = Some(healthy);
                }
            }
            let mut state = state.lock().unwrap();
            if state.registrations == mine {
                (state.healthy, state.endpoint) = (None, None);
            }
        });
        self.state.lock().unwrap().streams.push(stream);
        Ok(Response::new(api::Empty {}))
    }
}

struct Lister(Arc<Mutex<State>>);

#[tonic::async_trait]
impl resources::pod_resources_lister_server::PodResourcesLister for Lister {
    async fn list(
        &self,
        _: Request<resources::ListPodResourcesRequest>,
    ) -> Result<Response<resources::ListPodResourcesResponse>, Status> {
        let state = self.0.lock().unwrap();
        let listed = state.allocated.iter().filter(|(container, _)| !state.hidden.contains(container));
        let pod = |((namespace, pod, container), ids): (&Container, &Vec<String>)| {
            let entry =
                |device_ids| resources::ContainerDevices { resource_name: SLICE.to_owned(), device_ids };
            let other = resources::ContainerDevices {
                resource_name: "example.com/other".to_owned(),
                device_ids: (0..=state.others).map(|number| format!("slot-{number}")).collect(),
            };
            let mut devices = vec![other];
            if state.is_grouped {
                devices.push(entry(ids.clone()));
            } else {
                devices.extend(ids.iter().map(|id| entry(vec![id.clone()])));
            }
            let container = resources::ContainerResources { name: container.clone(), devices };
            resources::PodResources {
                name: pod.clone(),
                namespace: namespace.clone(),
                containers: vec![container],
            }
        };
        Ok(Response::new(resources::ListPodResourcesResponse { pod_resources: listed.map(pod).collect() }))
    }
}
