//! An extender of the scheduler: says which nodes have room, which of them are best, and binds pods to them.
//!
//! One process serves one scheduler. *filter* and *prioritize* write nothing. Where there are several, one binds: the one that has the
//! Lease, after it has listed the pods that the one before it has bound.

mod bind;
mod follow;
mod ledger;
mod resize;
mod wire;
mod wishes;

pub use ledger::Ledger;
pub use wire::{Arguments, Binding, Bound, Filtered, Score};

use crate::api::Client;
use crate::lease::{self, Election, Term};
use crate::objects::requests;
use crate::placement::Order;
use axum::extract::{DefaultBodyLimit, State as Shared};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::warn;
use wishes::Wishes;

/// Bytes of a request at the most: 10,000 whole nodes.
const MOST_BYTES: usize = 256 << 20;

/// Time in which the pods are listed anew: a part of the 5 s that a scheduler waits.
const PATIENCE: Duration = Duration::from_secs(3);
const UNLISTED: &str = "the nodes and pods of the cluster are not listed yet";

/// The state of an extender, which follows the cluster.
#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    wishes: Wishes,
    /// True once all nodes were listed: before that, a node with room is not known.
    has_nodes: bool,
    /// When the list of all pods was asked for that the ledger goes on from. Without one, GPUs look emptier than they are.
    listed: Option<Instant>,
}

impl State {
    /// The state, once all nodes and pods of the cluster were listed.
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
    state: Mutex<State>,
    /// None where it is the only one.
    election: Option<Arc<Election>>,
    /// The pods are to be listed anew.
    again: Notify,
    /// A pod is to have another size.
    wish: Notify,
    /// The time of the list that the ledger goes on from.
    listed: watch::Sender<Option<Instant>>,
}

/// The settings of an extender.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Which GPUs are filled first.
    pub order: Order,
    /// The Lease of those that have it may bind; none: it is the only one.
    pub lease: Option<lease::Settings>,
}

/// Serves a scheduler until a future is done, and then ends the bindings that have begun. `health` serves no more than the state, to
/// all who reach the pod.
///
/// # Errors
/// The port cannot be served.
pub async fn serve(
    listener: TcpListener,
    health: Option<TcpListener>,
    client: Client,
    settings: Settings,
    until: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let Settings { order, lease } = settings;
    let election = lease.map(|lease| Election::new(client.clone(), lease));
    let extender = Arc::new(Extender {
        client,
        order,
        state: Mutex::default(),
        election: election.clone(),
        again: Notify::new(),
        wish: Notify::new(),
        listed: watch::Sender::default(),
    });
    let state = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready));
    let routes = Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/bind", post(bind::bind))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .merge(state.clone())
        .with_state(Arc::clone(&extender));
    let state = state.with_state(Arc::clone(&extender));
    let mut beside = JoinSet::new();
    beside.spawn(async move {
        tokio::join!(follow::follow(&extender), resize::serve(&extender));
    });
    if let Some(election) = election.clone() {
        beside.spawn(async move { election.run().await });
    }
    if let Some(health) = health {
        beside.spawn(async move { drop(axum::serve(health, state).await) });
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
    /// Says that this extender may bind, and that its ledger has what another one has bound before; none where it is the only one.
    /// `is_asked`: by its scheduler.
    async fn lead(&self, is_asked: bool) -> Result<Option<Term>, String> {
        let Some(election) = &self.election else { return Ok(None) };
        let term = election.hold(is_asked).await?;
        let is_new = |listed: &Option<Instant>| listed.is_some_and(|listed| listed >= term.begun());
        let mut listed = self.listed.subscribe();
        if !is_new(&listed.borrow()) {
            self.again.notify_one();
            let waited = tokio::time::timeout(PATIENCE, listed.wait_for(is_new)).await;
            waited.map_err(|_| UNLISTED)?.map_err(|error| error.to_string())?;
        }
        Ok(Some(term))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn ready(Shared(extender): Shared<Arc<Extender>>) -> StatusCode {
    if extender.with(|state| state.complete().is_ok()) {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

async fn filter(Shared(extender): Shared<Arc<Extender>>, Json(said): Json<Arguments>) -> Json<Filtered> {
    let filtered = extender.with(|state| refused(&state.complete()?.ledger, &said, extender.order));
    Json(match filtered {
        Ok(failed) => said.answer(failed),
        Err(error) => Filtered { error, ..Filtered::default() },
    })
}

/// The nodes that have no room for a pod, each with the reason.
///
/// # Errors
/// The scheduler names no nodes.
fn refused(ledger: &Ledger, said: &Arguments, order: Order) -> Result<BTreeMap<String, String>, String> {
    let names = said.names()?;
    let requests = requests(&said.pod);
    if requests.as_ref().is_ok_and(Vec::is_empty) {
        return Ok(BTreeMap::new());
    }
    let reason = |node: &String| {
        let requests = requests.as_ref().map_err(Clone::clone)?;
        ledger.place(node, &said.pod.metadata.uid, requests, order).map(drop)
    };
    Ok(names.into_iter().filter_map(|node| reason(&node).err().map(|why| (node, why))).collect())
}

async fn prioritize(
    Shared(extender): Shared<Arc<Extender>>,
    Json(said): Json<Arguments>,
) -> Json<Vec<Score>> {
    let (names, requests) = (said.names().unwrap_or_default(), requests(&said.pod).unwrap_or_default());
    let order = extender.order;
    let uid = &said.pod.metadata.uid;
    Json(extender.with(|state| {
        let score = |host: String| Score { score: state.ledger.score(&host, uid, &requests, order), host };
        names.into_iter().map(score).collect()
    }))
}
