//! Follows the apiserver's nodes, pods and disruption budgets, and keeps the ledger up to date.

use super::Extender;
use crate::api::{Change, Client, Failure, List, Metadata, Node, Pod};
use crate::objects::Budget;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::{Duration, Instant};
use tracing::warn;

/// Time from the end or the refusal of a watch to the next request.
const WATCH_RETRY_PERIOD: Duration = Duration::from_secs(1);
/// Objects on a page of a list. `kubectl` asks for the same number.
const PAGE: u32 = 500;
/// Time after which the apiserver ends a watch.
const WATCH: Duration = Duration::from_secs(300);
/// Time after which the extender treats a watch as ended, even if the apiserver has not ended it.
const SILENT: Duration = Duration::from_secs(330);

/// A kind of objects, and the functions that update the ledger with them.
struct Kind<T> {
    path: &'static str,
    begin: fn(&Extender, Vec<T>, Instant),
    put: fn(&Extender, &T),
    gone: fn(&Extender, &T),
    /// True if the extender may demand a new list during a watch.
    is_asked_for: bool,
}

const NODES: Kind<Node> = Kind {
    path: "/api/v1/nodes",
    begin: |extender, nodes, _| {
        extender.with(|state| {
            state.ledger.keep_nodes(&nodes);
            nodes.iter().for_each(|node| state.ledger.node(node));
            state.has_nodes = true;
        });
    },
    put: |extender, node| {
        extender.with(|state| state.ledger.node(node));
        changed(extender, &node.metadata.name);
    },
    gone: |extender, node| extender.with(|state| state.ledger.node_gone(&node.metadata.name)),
    is_asked_for: false,
};

const PODS: Kind<Pod> = Kind {
    path: "/api/v1/pods",
    begin: |extender, pods, asked| {
        extender.with(|state| {
            state.ledger.keep_only(&pods, asked);
            state.wishes.keep_only(&pods);
            for pod in &pods {
                state.ledger.pod(pod);
                state.wishes.pod(pod);
            }
            state.listed = Some(asked);
        });
        extender.wish.notify_one();
        extender.listed.send_replace(Some(asked));
    },
    put: take_pod,
    gone: |extender, pod| {
        let has_wish = extender.with(|state| {
            state.ledger.pod_gone(&pod.metadata.uid);
            state.wishes.pod_gone(&pod.metadata.uid)
        });
        if has_wish {
            extender.wish.notify_one();
        }
        pod.spec.node_name.iter().for_each(|node| changed(extender, node));
    },
    is_asked_for: true,
};

/// The extender does not wait for the list of budgets. Budgets influence only the choice of the pods to evict.
const BUDGETS: Kind<Budget> = Kind {
    path: "/apis/policy/v1/poddisruptionbudgets",
    begin: |extender, budgets, _| {
        extender.with(|state| {
            state.ledger.keep_budgets(&budgets);
            budgets.iter().for_each(|budget| state.ledger.budget(budget));
        });
    },
    put: |extender, budget| extender.with(|state| state.ledger.budget(budget)),
    gone: |extender, budget| extender.with(|state| state.ledger.budget_gone(budget)),
    is_asked_for: false,
};

fn take_pod(extender: &Extender, pod: &Pod) {
    let has_wish = extender.with(|state| {
        state.ledger.pod(pod);
        state.wishes.pod(pod)
    });
    if has_wish {
        extender.wish.notify_one();
    }
    pod.spec.node_name.iter().for_each(|node| changed(extender, node));
}

/// Records that a node has changed. If pods wait for room, starts the search for those that fit now.
fn changed(extender: &Extender, node: &str) {
    if extender.with(|state| state.waiting.change(node)) {
        extender.freed.notify_one();
    }
}

/// Follows nodes, pods and budgets until the future is dropped.
pub(super) async fn follow(extender: &Extender) {
    tokio::join!(kind(extender, NODES), kind(extender, PODS), kind(extender, BUDGETS));
}

/// Lists all objects once, and follows the changes after that.
///
/// After the end of a watch, the next watch continues at the last version, so no change is lost. If the apiserver has forgotten
/// that version, the function lists all objects again. The ledger then forgets the objects that are missing in the list.
async fn kind<T: DeserializeOwned>(extender: &Extender, kind: Kind<T>) {
    let mut version = None;
    loop {
        match once(extender, &kind, &mut version).await {
            Ok(Ended::ByApiserver) => tokio::time::sleep(WATCH_RETRY_PERIOD).await,
            Ok(Ended::ForAList) => version = None,
            Err(failure) => {
                warn!("{}: {failure}", kind.path);
                // Either the extender does not understand the answer, or the apiserver has forgotten the version (410).
                if !matches!(failure, Failure::Silent(_)) {
                    version = None;
                }
                tokio::time::sleep(WATCH_RETRY_PERIOD).await;
            }
        }
    }
}

/// Reason why a watch ended.
enum Ended {
    ByApiserver,
    /// The extender needs a new list.
    ForAList,
}

/// Follows the changes after a version. Without a version, lists all objects first.
///
/// Returns when the watch ends, when it is silent for too long, or when the extender needs a new list. `version` always has the
/// version of the last change, so that the next call continues after it.
async fn once<T: DeserializeOwned>(
    extender: &Extender,
    kind: &Kind<T>,
    version: &mut Option<String>,
) -> Result<Ended, Failure> {
    let from = if let Some(from) = version.clone() {
        from
    } else {
        let asked = Instant::now();
        let (items, listed) = list(&extender.client, kind.path).await?;
        (kind.begin)(extender, items, asked);
        listed
    };
    *version = Some(from.clone());
    let seconds = WATCH.as_secs();
    let query =
        format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={from}");
    let mut changes = extender.client.changes(&format!("{}?{query}", kind.path)).await?;
    let silent = tokio::time::sleep(SILENT);
    tokio::pin!(silent);
    loop {
        let change = tokio::select! {
            change = changes.next::<Value>() => change?,
            () = extender.again.notified(), if kind.is_asked_for => return Ok(Ended::ForAList),
            () = &mut silent => None,
        };
        let Some(change) = change else { return Ok(Ended::ByApiserver) };
        *version = Some(take(extender, kind, change)?);
    }
}

/// Lists all objects, page by page, and returns them with the version of the list. If the apiserver has forgotten the list
/// before its last page, asks for all objects on one page.
async fn list<T: DeserializeOwned>(client: &Client, path: &str) -> Result<(Vec<T>, String), Failure> {
    let page = |query: String| async move {
        let listed = client.get::<List<T>>(&format!("{path}{query}")).await?;
        listed.ok_or_else(|| Failure::Silent("there is no list".to_owned()))
    };
    let mut items = Vec::new();
    let mut query = format!("?limit={PAGE}");
    loop {
        let List { metadata, items: more } = match page(query).await {
            Err(Failure::Refused(410, _)) => {
                items.clear();
                page(String::new()).await?
            }
            listed => listed?,
        };
        items.extend(more);
        match metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => query = format!("?limit={PAGE}&continue={next}"),
            None => return Ok((items, metadata.resource_version)),
        }
    }
}

/// The version of an object of any kind.
#[derive(Deserialize)]
struct Versioned {
    metadata: Metadata,
}

/// Applies a change to the ledger, and returns its version.
fn take<T: DeserializeOwned>(
    extender: &Extender,
    kind: &Kind<T>,
    change: Change<Value>,
) -> Result<String, Failure> {
    let Change { kind: change, object } = change;
    if change == "ERROR" {
        let code = object.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        return Err(Failure::Refused(code.unwrap_or(500), format!("the watch ends with {object}")));
    }
    let unread =
        |error: serde_json::Error| Failure::Refused(500, format!("a change cannot be read: {error}"));
    let version = Versioned::deserialize(&object).map_err(unread)?.metadata.resource_version;
    match change.as_str() {
        "ADDED" | "MODIFIED" => (kind.put)(extender, &T::deserialize(object).map_err(unread)?),
        "DELETED" => (kind.gone)(extender, &T::deserialize(object).map_err(unread)?),
        // A BOOKMARK brings only a version.
        _ => {}
    }
    Ok(version)
}
