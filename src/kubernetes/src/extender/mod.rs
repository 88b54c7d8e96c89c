//! An extender of the scheduler: says which nodes have room, which of them are best, and binds pods to them.
//!
//! One process serves one scheduler. *filter* and *prioritize* write nothing.

mod bind;
mod follow;
mod ledger;
mod wire;

pub use ledger::Ledger;
pub use wire::{Arguments, Binding, Bound, Filtered, Score};

use crate::api::Client;
use crate::objects::requests;
use crate::placement::Order;
use axum::extract::{DefaultBodyLimit, State as Shared};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;

/// Bytes of a request at the most: 10,000 whole nodes.
const MOST_BYTES: usize = 256 << 20;

/// The state of an extender, which follows the cluster.
#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    /// True once all nodes were listed: before that, a node with room is not known.
    has_nodes: bool,
    /// True once all pods were listed: before that, GPUs look emptier than they are.
    has_pods: bool,
}

impl State {
    /// The state, once all nodes and pods of the cluster were listed.
    fn complete(&mut self) -> Result<&mut Self, String> {
        if self.has_nodes && self.has_pods {
            return Ok(self);
        }
        Err("the nodes and pods of the cluster are not listed yet".to_owned())
    }
}

/// The extender.
#[derive(Debug)]
struct Extender {
    client: Client,
    order: Order,
    state: Mutex<State>,
}

/// Serves a scheduler until it is dropped.
///
/// # Errors
/// The port cannot be served.
pub async fn serve(listener: TcpListener, client: Client, order: Order) -> io::Result<()> {
    let extender = Arc::new(Extender { client, order, state: Mutex::default() });
    let followed = Arc::clone(&extender);
    let _ends_with_the_process = tokio::spawn(async move { follow::follow(&followed).await });
    let routes = Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/bind", post(bind::bind))
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(extender);
    axum::serve(listener, routes).await
}

impl Extender {
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
