//! Extender of the scheduler: finds nodes with room, scores them, chooses pods to evict, and binds pods.
//!
//! One process serves one scheduler. *filter*, *prioritize* and *preempt* write nothing. If there are several extenders, only
//! the holder of the Lease binds pods. Before its first binding, it lists all pods, because the former holder may have bound
//! some.

mod bind;
mod budgets;
mod follow;
mod ledger;
mod pod_changes;
mod refusal;
mod resize;
mod waiting;
mod wake;
mod wire;

pub use ledger::{Evictions, Ledger, Pending};
pub use refusal::Refusal;
pub use wire::{Arguments, Binding, Bound, Filtered, Preempted, Preemption, Score, Uid, Victims};

use crate::api::{Client, Pod};
use crate::lease::{self, Election, Term};
use crate::metrics::{CONTENT_TYPE, ExtenderMetrics, Rejection, Verb};
use crate::objects::{Request, requests};
use crate::placement::Order;
use crate::web;
use axum::extract::{DefaultBodyLimit, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pod_changes::PodChanges;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::warn;
use waiting::Waiting;

/// Most bytes of a request: 10,000 whole nodes need as much.
const MOST_BODY_BYTES: usize = 256 << 20;

/// Most connections at the same time to the port of the state and the metrics.
const MOST_CONNECTIONS: usize = 32;

/// Longest wait for a new list of pods. A scheduler waits 5 s for the extender's answer, and this is a part of that time.
const LONGEST_LIST_WAIT: Duration = Duration::from_secs(3);
const UNLISTED: &str = "the nodes and pods of the cluster are not listed yet";

/// State of an extender that follows the cluster.
#[derive(Debug, Default)]
struct ExtenderState {
    ledger: Ledger,
    wishes: PodChanges,
    waiting: Waiting,
    /// True once the extender has listed all nodes. Before that, nodes with room may be missing.
    has_nodes: bool,
    /// Instant at which the extender requested the list of pods from which the ledger was made. Without a list, GPUs look
    /// emptier than they are.
    listed: Option<Instant>,
}

impl ExtenderState {
    /// Returns the state, or an error before the extender has listed all nodes and pods of the cluster.
    fn complete(&mut self) -> Result<&mut Self, String> {
        if self.has_nodes && self.listed.is_some() {
            return Ok(self);
        }
        Err(UNLISTED.to_owned())
    }
}

/// The extender.
#[derive(Debug)]
struct Extender {
    client: Client,
    order: Order,
    state: Mutex<ExtenderState>,
    metrics: ExtenderMetrics,
    /// None if this is the only extender.
    election: Option<Arc<Election>>,
    /// Notified when the extender needs a new list of the pods.
    again: Notify,
    /// Notified when a pod's user wants other amounts.
    wish: Notify,
    /// Notified when a node has changed while pods wait.
    freed: Notify,
    /// Instant at which the extender requested the list from which the ledger was made.
    listed: watch::Sender<Option<Instant>>,
}

/// Settings of an extender.
#[derive(Debug, Clone, Default)]
pub struct ExtenderConfig {
    /// Order in which GPUs are filled.
    pub order: Order,
    /// Lease whose holder may bind; none if this is the only extender.
    pub lease: Option<lease::LeaseConfig>,
}

/// Serves a scheduler until `until` is done, and then finishes the bindings that have begun. The port `health` serves only the
/// state and the metrics, to every client that reaches the pod.
///
/// # Errors
/// The port cannot be served.
pub async fn serve(
    listener: TcpListener,
    health: Option<TcpListener>,
    client: Client,
    settings: ExtenderConfig,
    until: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let ExtenderConfig { order, lease } = settings;
    let election = lease.map(|lease| Election::new(client.clone(), lease));
    let extender = Arc::new(Extender {
        client,
        order,
        state: Mutex::default(),
        metrics: ExtenderMetrics::default(),
        election: election.clone(),
        again: Notify::new(),
        wish: Notify::new(),
        freed: Notify::new(),
        listed: watch::Sender::default(),
    });
    let state = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics));
    let routes = Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/preempt", post(preempt))
        .route("/bind", post(bind::bind))
        .layer(DefaultBodyLimit::max(MOST_BODY_BYTES))
        .merge(state.clone())
        .with_state(Arc::clone(&extender));
    let state = state.with_state(Arc::clone(&extender));
    let mut beside = JoinSet::new();
    beside.spawn(async move {
        tokio::join!(follow::follow(&extender), resize::serve(&extender), wake::serve(&extender));
    });
    if let Some(election) = election.clone() {
        beside.spawn(async move { election.run().await });
    }
    if let Some(health) = health {
        beside.spawn(web::serve(health, state, MOST_CONNECTIONS));
    }
    let served = axum::serve(listener, routes).with_graceful_shutdown(until).await;
    beside.shutdown().await;
    if let Some(election) = election
        && let Err(why) = election.give_back().await
    {
        warn!("the lease: {why}");
    }
    served
}

impl Extender {
    /// Ensures that this extender may bind pods, and that its ledger has the bindings of the former holder of the Lease.
    /// Returns none if this is the only extender. If `is_asked` is true, the call serves a request of the scheduler, and the
    /// extender keeps the Lease for more requests.
    ///
    /// A list from before the term may lack the last bindings of the former holder, and the extender would give their memory
    /// away again. So it requests a new list of pods and waits for it. If the list does not come in time, the call fails, and
    /// the scheduler tries again.
    async fn lead(&self, is_asked: bool) -> Result<Option<Term>, String> {
        let Some(election) = &self.election else { return Ok(None) };
        let term = election.hold(is_asked).await?;
        let is_new = |listed: &Option<Instant>| listed.is_some_and(|listed| listed >= term.begun());
        let mut listed = self.listed.subscribe();
        if !is_new(&listed.borrow()) {
            self.again.notify_one();
            let waited = tokio::time::timeout(LONGEST_LIST_WAIT, listed.wait_for(is_new)).await;
            waited.map_err(|_| UNLISTED)?.map_err(|error| error.to_string())?;
        }
        Ok(Some(term))
    }

    fn with<T>(&self, act: impl FnOnce(&mut ExtenderState) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers a request from the state, and counts its duration and its failure.
    fn serve<T>(
        &self,
        verb: Verb,
        act: impl FnOnce(&mut ExtenderState) -> Result<T, String>,
    ) -> Result<T, String> {
        let begun = Instant::now();
        let served = self.with(act);
        self.metrics.count(verb, begun.elapsed(), served.is_err());
        served
    }
}

async fn ready(Shared(extender): Shared<Arc<Extender>>) -> StatusCode {
    if extender.with(|state| state.complete().is_ok()) {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

async fn metrics(Shared(extender): Shared<Arc<Extender>>) -> Response {
    let nodes = extender.with(|state| state.ledger.memory());
    match extender.metrics.text(&nodes) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn filter(Shared(extender): Shared<Arc<Extender>>, Json(said): Json<Arguments>) -> Json<Filtered> {
    let filtered = extender.serve(Verb::Filter, |state| {
        let state = state.complete()?;
        let failed = refused(&state.ledger, &said, extender.order)?;
        state.waiting.note(&said, &failed);
        Ok(failed)
    });
    Json(match filtered {
        Ok(failed) => {
            failed.values().for_each(|refusal| extender.metrics.reject(refusal.reason));
            said.answer(failed)
        }
        Err(error) => Filtered { error, ..Filtered::default() },
    })
}

/// Returns the nodes without room for a pod, each with the reason.
///
/// # Errors
/// The scheduler names no nodes.
fn refused(ledger: &Ledger, said: &Arguments, order: Order) -> Result<BTreeMap<String, Refusal>, String> {
    let names = said.names()?;
    let requests = requests(&said.pod).map_err(|why| Refusal { why, reason: Rejection::Request });
    if requests.as_ref().is_ok_and(Vec::is_empty) {
        return Ok(BTreeMap::new());
    }
    let refusal = |node: &String| {
        let requests = requests.as_ref().map_err(Clone::clone)?;
        ledger.place(node, pending(&said.pod, requests), order).map(drop)
    };
    Ok(names.into_iter().filter_map(|node| refusal(&node).err().map(|refusal| (node, refusal))).collect())
}

fn pending<'a>(pod: &'a Pod, requests: &'a [Request]) -> Pending<'a> {
    Pending { uid: &pod.metadata.uid, priority: pod.spec.priority, requests }
}

async fn prioritize(
    Shared(extender): Shared<Arc<Extender>>,
    Json(said): Json<Arguments>,
) -> Json<Vec<Score>> {
    let scored = extender.serve(Verb::Prioritize, |state| {
        let (names, requests) = (said.names()?, requests(&said.pod)?);
        let pod = pending(&said.pod, &requests);
        let score = |host: String| Score { score: state.ledger.score(&host, pod, extender.order), host };
        Ok(names.into_iter().map(score).collect())
    });
    Json(scored.unwrap_or_default())
}

/// Chooses the pods to evict on each node where evictions make room for a pod. The scheduler knows only the sums of a node. So
/// it may choose pods of several GPUs, and none of these GPUs then has the room that one slice needs.
///
/// Before the extender has listed the cluster, it names no node, and the scheduler evicts nothing.
async fn preempt(Shared(extender): Shared<Arc<Extender>>, Json(said): Json<Preemption>) -> Json<Preempted> {
    let victims = extender.serve(Verb::Preempt, |state| {
        let (requests, order) = (requests(&said.pod)?, extender.order);
        let (pod, ledger) = (pending(&said.pod, &requests), &state.complete()?.ledger);
        let on = |(node, (victims, violations)): (String, (Vec<String>, i64))| {
            let evicted = ledger.evict(&node, pod, &victims, order)?;
            let pods = evicted.uids.into_iter().map(|uid| Uid { uid }).collect();
            let violations = violations.saturating_add(evicted.violations);
            Some((node, Victims { pods: Some(pods), violations }))
        };
        Ok(said.victims().into_iter().filter_map(on).collect())
    });
    Json(Preempted { victims: victims.unwrap_or_default() })
}
