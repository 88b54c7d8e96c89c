//! Elects a leader among processes by a Lease of the apiserver, with the rules of client-go.
//!
//! Example with the usual times: the holder A loses its connection to the apiserver at 0 s. A stops acting at 10 s, after
//! [`LeaseConfig::renew_deadline`]. Another process takes the Lease at 15 s at the earliest, after [`LeaseConfig::duration`].
//! So two processes never hold the Lease at the same time.
//!
//! No process compares the times that are written in the Lease, because the clocks of machines differ. Each process measures by
//! its own clock how long the Lease has not changed.

use crate::api::{Client, Failure, Metadata};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tracing::{info, warn};

/// Returns the time since the machine started. The time includes sleep, because a Lease expires during sleep too.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Lease, and the times of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this process. No other process has this name.
    pub identity: String,
    /// Time after which another process may take a Lease that its holder has not renewed, in whole seconds.
    pub duration: Duration,
    /// Time after which a holder that cannot renew the Lease stops acting. It is shorter than `duration`.
    pub renew_deadline: Duration,
    /// Time between two checks of the Lease.
    pub retry: Duration,
}

impl LeaseConfig {
    /// Returns settings with the usual times of Kubernetes: 15 s, 10 s and 2 s.
    #[must_use]
    pub fn usual(namespace: String, name: String, identity: String) -> Self {
        let seconds = Duration::from_secs;
        let (duration, renew_deadline, retry) = (seconds(15), seconds(10), seconds(2));
        Self { namespace, name, identity, duration, renew_deadline, retry }
    }
}

/// Lease in the form of the apiserver.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: Metadata,
    spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    acquire_time: Option<String>,
    lease_transitions: Option<u64>,
}

impl LeaseSpec {
    fn holder(&self) -> &str {
        self.holder_identity.as_deref().unwrap_or_default()
    }
}

/// State of the Lease while this process holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldLease {
    /// Number of this holder: the Lease counts the changes of its holder.
    transitions: u64,
    /// Instant at which this process got the Lease.
    begun: Instant,
    /// Time until which no other process can hold the Lease.
    until: Duration,
}

/// State of an election.
#[derive(Debug, Default)]
struct ElectionState {
    held: Option<HeldLease>,
    /// Version of the Lease, and the time since which the version has not changed.
    seen: Option<(String, Duration)>,
    /// Time at which a caller last wanted the Lease.
    wanted: Option<Duration>,
}

/// An election. This process is a candidate while it has work to do.
pub struct Election {
    client: Client,
    settings: LeaseConfig,
    state: Mutex<ElectionState>,
    /// Serialises the requests for the Lease.
    asking: tokio::sync::Mutex<()>,
    /// Each [`Term`] holds it for reading. [`Election::give_back`] locks it for writing, so it never gives the Lease back
    /// during a term.
    terms: Arc<RwLock<()>>,
}

impl fmt::Debug for Election {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Election").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A period in which this process holds the Lease.
#[derive(Debug)]
pub struct Term {
    election: Arc<Election>,
    transitions: u64,
    begun: Instant,
    _part: OwnedRwLockReadGuard<()>,
}

impl Term {
    /// Returns the instant at which the process got the Lease. Before it, another holder may have changed objects that this
    /// process had already read.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Checks that no other process has the Lease now.
    ///
    /// # Errors
    /// This process did not renew the Lease in time, or another process has held it since.
    pub fn check(&self) -> Result<(), String> {
        let held = self.election.with(|state| state.held);
        let holds = held.is_some_and(|held| held.transitions == self.transitions && now() < held.until);
        holds.then_some(()).ok_or_else(|| format!("{} is not held any more", self.election.path()))
    }
}

impl Election {
    /// Makes an election. The process becomes a candidate when it calls [`hold`](Self::hold).
    #[must_use]
    pub fn new(client: Client, settings: LeaseConfig) -> Arc<Self> {
        let (state, asking, terms) = (Mutex::default(), tokio::sync::Mutex::default(), Arc::default());
        Arc::new(Self { client, settings, state, asking, terms })
    }

    fn with<T>(&self, act: impl FnOnce(&mut ElectionState) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn path(&self) -> String {
        let LeaseConfig { namespace, name, .. } = &self.settings;
        format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
    }

    /// Takes the Lease if it is free, and returns a term. If `keeps` is true, the process keeps the Lease beyond the term,
    /// because it expects more work.
    ///
    /// # Errors
    /// Another process has the Lease, or the apiserver does not answer.
    pub async fn hold(self: &Arc<Self>, keeps: bool) -> Result<Term, String> {
        let part = Arc::clone(&self.terms).read_owned().await;
        if keeps {
            self.with(|state| state.wanted = Some(now()));
        }
        let held = match self.with(|state| state.held.filter(|held| now() < held.until)) {
            Some(held) => held,
            None => self.take().await?,
        };
        let HeldLease { transitions, begun, .. } = held;
        Ok(Term { election: Arc::clone(self), transitions, begun, _part: part })
    }

    /// Keeps the election going until the future is dropped.
    ///
    /// Renews the Lease while callers want it or a term exists. Gives it back if no caller has wanted it for its duration.
    /// Without the Lease, reads it regularly, so that the process knows how long the Lease has not changed.
    ///
    /// Of several schedulers, only the leader asks its extender. So the Lease follows the leading scheduler.
    pub async fn run(&self) {
        loop {
            let wanted = self.with(|state| state.wanted);
            let is_wanted = wanted.is_some_and(|at| now().saturating_sub(at) < self.settings.duration);
            let has_term = self.terms.try_write().is_err();
            let told = match self.with(|state| state.held) {
                Some(_) if is_wanted || has_term => self.take().await.map(drop),
                Some(_) => self.give_back().await,
                None => self.look().await.map(drop).map_err(|failure| failure.to_string()),
            };
            if let Err(why) = told {
                warn!("{}: {why}", self.path());
            }
            tokio::time::sleep(self.settings.retry).await;
        }
    }

    /// Reads the Lease; none if it does not exist yet.
    async fn look(&self) -> Result<Option<Lease>, Failure> {
        let lease = self.client.get::<Lease>(&self.path()).await?;
        let version = lease.as_ref().map(|lease| lease.metadata.resource_version.clone());
        self.with(|state| match (&mut state.seen, version) {
            (Some((seen, _)), Some(version)) if *seen == version => {}
            (seen, version) => *seen = version.map(|version| (version, now())),
        });
        Ok(lease)
    }

    /// Takes the Lease, or renews it.
    ///
    /// Several tasks may call this function at the same time. One of them sends the request. The others wait, and use its
    /// result if the renewal began after their own call.
    ///
    /// The new end counts from the instant before the request. The apiserver handles the request later, so other processes also
    /// see the renewal later. So this process stops before another one may begin. After a failure, the process keeps the Lease
    /// until the end that it already knows, because no other process can take it before that.
    async fn take(&self) -> Result<HeldLease, String> {
        let called = now();
        let _one_at_a_time = self.asking.lock().await;
        let was_taken = |held: &HeldLease| held.until >= called.saturating_add(self.settings.renew_deadline);
        if let Some(held) = self.with(|state| state.held.filter(was_taken)) {
            return Ok(held);
        }
        let asked = now();
        match self.try_take(asked).await {
            Ok(transitions) => Ok(self.with(|state| {
                let before = state.held.filter(|held| held.transitions == transitions);
                let begun = before.map_or_else(Instant::now, |held| held.begun);
                let until = asked.saturating_add(self.settings.renew_deadline);
                if before.is_none() {
                    info!(lease = self.path(), transitions, "is held");
                }
                let held = HeldLease { transitions, begun, until };
                state.held = Some(held);
                held
            })),
            Err(why) => {
                self.with(|state| state.held = state.held.filter(|held| now() < held.until));
                Err(why)
            }
        }
    }

    /// Sends one request for the Lease, and returns the number of this holder.
    ///
    /// The request names the version of the Lease that this process has read. If two processes want an expired Lease, the
    /// apiserver refuses the second write.
    async fn try_take(&self, asked: Duration) -> Result<u64, String> {
        let told = |failure: Failure| failure.to_string();
        let LeaseConfig { namespace, name, identity, duration, .. } = &self.settings;
        let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let mut spec = json!({"holderIdentity": identity, "leaseDurationSeconds": duration.as_secs(),
            "renewTime": time, "acquireTime": time, "leaseTransitions": 0});
        let Some(Lease { metadata, spec: is }) = self.look().await.map_err(told)? else {
            let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"namespace": namespace, "name": name}, "spec": spec});
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
            return self.client.post(&path, &object).await.map(|()| 0).map_err(told);
        };
        let since = self.with(|state| state.seen.as_ref().map_or(asked, |(_, since)| *since));
        let lasts = Duration::from_secs(is.lease_duration_seconds.unwrap_or(0));
        let holder = is.holder();
        if !holder.is_empty() && holder != identity && now().saturating_sub(since) < lasts {
            self.with(|state| state.held = None);
            return Err(format!("{holder} has the lease"));
        }
        let mut transitions = is.lease_transitions.unwrap_or(0);
        if holder == identity {
            // The holder is the same, so the time of the acquisition stays.
            if let Some((time, since)) = spec.get_mut("acquireTime").zip(is.acquire_time) {
                *time = Value::String(since);
            }
        } else {
            transitions = transitions.saturating_add(1);
        }
        if let Some(count) = spec.get_mut("leaseTransitions") {
            *count = json!(transitions);
        }
        self.write(&metadata, &spec).await.map_err(told)?;
        Ok(transitions)
    }

    /// Writes the Lease. Fails if another process has written it since this process read it.
    async fn write(&self, read: &Metadata, spec: &Value) -> Result<(), Failure> {
        let patch =
            json!({"metadata": {"uid": read.uid, "resourceVersion": read.resource_version}, "spec": spec});
        self.client.patch(&self.path(), &patch).await.map(drop)
    }

    /// Gives the Lease back, so that another process can take it at once. Does nothing while a [`Term`] exists.
    ///
    /// This process forgets the Lease before it writes. If the write fails, the process does not use the Lease, and another one
    /// can take it after its duration. A new term waits until the write is done.
    ///
    /// # Errors
    /// The apiserver does not answer. Other processes can take the Lease when it expires.
    pub async fn give_back(&self) -> Result<(), String> {
        let Ok(_no_term) = self.terms.try_write() else { return Ok(()) };
        let _one_at_a_time = self.asking.lock().await;
        if self.with(|state| state.held.take()).is_none() {
            return Ok(());
        }
        let told = |failure: Failure| failure.to_string();
        let Some(Lease { metadata, spec }) = self.look().await.map_err(told)? else { return Ok(()) };
        if spec.holder() != self.settings.identity {
            return Ok(());
        }
        self.write(&metadata, &json!({"holderIdentity": "", "leaseDurationSeconds": 1}))
            .await
            .map_err(told)?;
        info!(lease = self.path(), "was given back");
        Ok(())
    }
}
