//! A cluster: an apiserver, and an extender that gets the requests of a scheduler.

use crate::apiserver::Apiserver;
use gpuslice_kubernetes::api::Client;
use gpuslice_kubernetes::placement::Order;
use gpuslice_kubernetes::{extender, lease};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) struct Cluster {
    pub(crate) apiserver: Apiserver,
    server: SocketAddr,
    pub(crate) extender: Extender,
}

/// A running extender.
pub(crate) struct Extender {
    pub(crate) address: SocketAddr,
    /// The port of the state and the metrics.
    pub(crate) health: SocketAddr,
    running: JoinHandle<()>,
    end: Option<oneshot::Sender<()>>,
}

/// Makes a pod that is not bound. `core` is its percent of time, or 0 for no limit.
pub(crate) fn pod(name: &str, slices: u32, memory: u32, core: u32) -> Value {
    let mut limits =
        json!({"gpuslice.dev/slice": slices.to_string(), "gpuslice.dev/memory-mib": memory.to_string()});
    if core > 0 {
        limits["gpuslice.dev/core-percent"] = json!(core.to_string());
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "ns", "name": name, "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"},
    })
}

impl Cluster {
    /// Starts a cluster with these nodes. The number of a node is its number of GPUs, which have 16 GiB each.
    pub(crate) async fn start(nodes: &[(&str, u32)]) -> Self {
        Self::start_in_order(nodes, Order::Binpack).await
    }

    /// Starts a cluster whose extender fills GPUs in this order.
    pub(crate) async fn start_in_order(nodes: &[(&str, u32)], order: Order) -> Self {
        let apiserver = Apiserver::default();
        for (name, gpus) in nodes {
            let gpu = |number| json!({"uuid": format!("GPU-{name}-{number}"), "model": "", "memMiB": 16_384, "core": 100, "healthy": true});
            let gpus: Vec<Value> = (0..*gpus).map(gpu).collect();
            let inventory = json!({"v": 1, "driver": "", "gpus": gpus}).to_string();
            apiserver.add_node(name);
            apiserver.change_node(name, |node| {
                node["metadata"]["annotations"] = json!({"gpuslice.dev/inventory": inventory});
            });
        }
        Self::of(apiserver, order).await
    }

    /// Starts an extender of this apiserver.
    pub(crate) async fn of(apiserver: Apiserver, order: Order) -> Self {
        let server = apiserver.serve().await;
        let extender = Extender::begin(server, order, None).await;
        extender.until_ready().await;
        Self { apiserver, server, extender }
    }

    /// Ends the extender, and starts another one.
    pub(crate) async fn restart(&mut self) {
        self.restart_unready().await;
        self.extender.until_ready().await;
    }

    /// Ends the extender, and starts another one. Does not wait until the new extender is ready.
    pub(crate) async fn restart_unready(&mut self) {
        self.extender = Extender::begin(self.server, Order::Binpack, None).await;
    }

    /// Waits until the extender knows all nodes and pods.
    pub(crate) async fn until_ready(&self) {
        self.extender.until_ready().await;
    }

    /// Starts another extender, which is a candidate in an election.
    pub(crate) async fn elected(&self, identity: &str) -> Extender {
        let extender = Extender::begin(self.server, Order::Binpack, Some(settings(identity))).await;
        extender.until_ready().await;
        extender
    }

    pub(crate) async fn filter(&self, pod: &Value, nodes: &[&str]) -> Value {
        let answer = self.answer_of_filter(pod, nodes).await;
        assert_eq!(answer["Error"], "", "{answer}");
        answer
    }

    pub(crate) async fn answer_of_filter(&self, pod: &Value, nodes: &[&str]) -> Value {
        post(self.extender.address, "/filter", &json!({"Pod": pod, "Nodes": null, "NodeNames": nodes})).await
    }

    pub(crate) async fn prioritize(&self, pod: &Value, nodes: &[&str]) -> HashMap<String, u64> {
        let said = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes});
        let answer = post(self.extender.address, "/prioritize", &said).await;
        let score =
            |score: &Value| (score["Host"].as_str().unwrap().to_owned(), score["Score"].as_u64().unwrap());
        answer.as_array().unwrap().iter().map(score).collect()
    }

    /// Asks the extender which pods to evict for a pod. `victims` is the scheduler's choice by node. Returns the UIDs by node.
    /// Checks that no added pod violates a disruption budget.
    pub(crate) async fn preempt(&self, pod: &Value, victims: &Value) -> HashMap<String, Vec<String>> {
        let evicted = self.evict(pod, victims).await.into_iter();
        let uids = |(node, (uids, violations))| {
            assert_eq!(violations, 1, "{node}: {uids:?}");
            (node, uids)
        };
        evicted.map(uids).collect()
    }

    /// Asks the extender as `preempt` does, and also returns the number of violated budgets. The scheduler has counted one
    /// violation.
    pub(crate) async fn evict(&self, pod: &Value, victims: &Value) -> HashMap<String, (Vec<String>, i64)> {
        let of = |pods: &Value| {
            let uids = pods
                .as_array()
                .unwrap()
                .iter()
                .map(|name| json!({"UID": format!("uid-{}", name.as_str().unwrap())}));
            json!({"Pods": uids.collect::<Vec<_>>(), "NumPDBViolations": 1})
        };
        let named: serde_json::Map<String, Value> =
            victims.as_object().unwrap().iter().map(|(node, pods)| (node.clone(), of(pods))).collect();
        let said = json!({"Pod": pod, "NodeNameToVictims": null, "NodeNameToMetaVictims": named});
        let answer = post(self.extender.address, "/preempt", &said).await;
        let uids = |victims: &Value| {
            let pods = victims["Pods"].as_array().unwrap();
            let uids = pods.iter().map(|pod| pod["UID"].as_str().unwrap().to_owned()).collect();
            (uids, victims["NumPDBViolations"].as_i64().unwrap())
        };
        let nodes = answer["NodeNameToMetaVictims"].as_object().unwrap();
        nodes.iter().map(|(node, victims)| (node.clone(), uids(victims))).collect()
    }

    /// Binds a pod, and returns the error.
    pub(crate) async fn bind(&self, name: &str, node: &str) -> String {
        self.extender.bind(name, node).await
    }

    /// Returns the lines of the extender's metrics.
    pub(crate) async fn metrics(&self) -> Vec<String> {
        let answer = said(self.extender.address, "GET", "/metrics", "").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
        body.lines().map(str::to_owned).collect()
    }

    /// Returns the parts in a pod's annotation.
    pub(crate) fn alloc(&self, name: &str) -> Option<Value> {
        let pod = self.apiserver.pod(&format!("ns/{name}"));
        let text = pod["metadata"]["annotations"]["gpuslice.dev/alloc"].as_str()?;
        let alloc: Value = serde_json::from_str(text).unwrap();
        assert_eq!(alloc["uid"], pod["metadata"]["uid"]);
        Some(alloc)
    }

    /// Waits until a node has room for a pod.
    pub(crate) async fn until_it_fits(&self, name: &str, node: &str) {
        let pod = self.apiserver.pod(&format!("ns/{name}"));
        let end = Instant::now() + crate::PATIENCE;
        while self.filter(&pod, &[node]).await["NodeNames"] != json!([node]) {
            assert!(Instant::now() < end, "{name} does not fit on {node}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Extender {
    /// Starts an extender of the apiserver at this address.
    async fn begin(server: SocketAddr, order: Order, lease: Option<lease::LeaseConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let health = health_listener.local_addr().unwrap();
        let client = Client::new(&format!("http://{server}"), None, None).unwrap();
        let settings = extender::ExtenderConfig { order, lease };
        let (end, ended) = oneshot::channel();
        let until = async { drop(ended.await) };
        let running = tokio::spawn(async move {
            extender::serve(listener, Some(health_listener), client, settings, until).await.unwrap();
        });
        Self { address, health, running, end: Some(end) }
    }

    async fn until_ready(&self) {
        let end = Instant::now() + crate::PATIENCE;
        while !said(self.address, "GET", "/readyz", "").await.starts_with("HTTP/1.1 200") {
            assert!(Instant::now() < end, "it is not ready");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Binds a pod, and returns the error.
    pub(crate) async fn bind(&self, name: &str, node: &str) -> String {
        let said =
            json!({"PodName": name, "PodNamespace": "ns", "PodUID": format!("uid-{name}"), "Node": node});
        post(self.address, "/bind", &said).await["Error"].as_str().unwrap().to_owned()
    }

    /// Ends the extender as SIGTERM does.
    pub(crate) async fn end(mut self) {
        drop(self.end.take());
        (&mut self.running).await.unwrap();
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Returns settings of an election whose times are short enough for a test.
pub(crate) fn settings(identity: &str) -> lease::LeaseConfig {
    let [duration, renew_deadline, retry] = [2000, 1200, 100].map(Duration::from_millis);
    let usual = lease::LeaseConfig::usual("gpuslice".to_owned(), "extender".to_owned(), identity.to_owned());
    lease::LeaseConfig { duration, renew_deadline, retry, ..usual }
}

async fn post(address: SocketAddr, path: &str, body: &Value) -> Value {
    let answer = said(address, "POST", path, &body.to_string()).await;
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

pub(crate) async fn said(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Waits until `look` finds something, and returns it.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + crate::PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
