//! Answers requests for figures: metrics, JSON, and a page for people.
//!
//! Every client that reaches the port may ask, and none can change anything. The agent bounds the number of requests in a
//! second. [`gpuslice_kubernetes::web`] bounds the connections, the bytes of a request, and its time.

use crate::gpus::Gpu;
use crate::history::{self, History, SeriesKey};
use crate::metrics;
use crate::page;
use crate::snapshot::{SliceSnapshot, Snapshot, Sums};
use crate::watch::Watch;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use gpuslice_kubernetes::metrics::{CONTENT_TYPE, PreStartMetrics};
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;

/// Version of the JSON. A new field keeps the version. A removed field, or a field with another meaning, increases it.
const VERSION: u32 = 1;

/// Requests whose answers the agent makes at a time. The agent has five threads for calls that may wait. So three are left for
/// the calls of the kubelet and of the control socket.
const ANSWERS: usize = 2;

/// Headers of every answer. They forbid the page to load anything from other servers, and forbid other pages to embed it.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

/// The state that handlers share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// The slices.
    pub(crate) watch: Arc<Mutex<Watch>>,
    /// The bound of the requests in a second.
    pub(crate) rate: Arc<Rate>,
    /// The bound of the answers that are made at a time.
    pub(crate) answers: Arc<Answers>,
    /// Figures of the device plugin; none if the agent serves no device plugin.
    pub(crate) plugin: Option<PreStartMetrics>,
}

/// A bound of the answers that are made at a time.
#[derive(Debug)]
pub(crate) struct Answers(Arc<Semaphore>);

impl Answers {
    /// Returns the agent's bound.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS)))
    }

    /// Calls `make` on a thread where no other client waits for it. A request that ends before its turn costs nothing.
    async fn make<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StatusCode> {
        let place = Arc::clone(&self.0).acquire_owned().await;
        let place = place.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        let made = tokio::task::spawn_blocking(move || {
            let made = make();
            drop(place);
            made
        });
        made.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// A bound of requests. It admits `per_second` requests in a second, and as many more in a burst.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: u32,
    /// The requests that the agent may answer at an instant, in thousandths, and that instant.
    left: Mutex<(u64, Instant)>,
}

impl Rate {
    /// Returns a bound that has admitted no request yet.
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, left: Mutex::new((u64::from(per_second).saturating_mul(2000), Instant::now())) }
    }

    /// Returns true if one more request is within the bound.
    fn admits(&self, now: Instant) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = u64::try_from(now.saturating_duration_since(left.1).as_millis()).unwrap_or(u64::MAX);
        let more = passed.saturating_mul(self.per_second.into());
        let (thousandths, most) =
            (left.0.saturating_add(more), u64::from(self.per_second).saturating_mul(2000));
        *left = (thousandths.min(most), if passed > 0 { now } else { left.1 });
        match left.0.checked_sub(1000) {
            Some(rest) => {
                left.0 = rest;
                true
            }
            None => false,
        }
    }
}

/// Returns the router of the paths that the agent answers.
pub(crate) fn routes(shared: Shared) -> Router {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    Router::new()
        .route("/", get(page))
        .route("/page.css", text("text/css; charset=utf-8", page::STYLE))
        .route("/page.js", text("text/javascript; charset=utf-8", page::SCRIPT))
        .route("/metrics", get(metrics))
        .route("/healthz", text("text/plain; charset=utf-8", "ok\n"))
        .route("/readyz", get(ready))
        .route("/api/v1/gpus", get(gpus))
        .route("/api/v1/slices", get(slices))
        .route("/api/v1/history", get(history))
        .layer(middleware::from_fn_with_state(shared.clone(), bounded))
        .with_state(shared)
}

/// Binds the port. Clients get no answer until [`gpuslice_kubernetes::web::serve`] runs.
pub(crate) fn listen(address: SocketAddr) -> Result<std::net::TcpListener, String> {
    let taken = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    taken.map_err(|error| format!("web.listen = \"{address}\": {error}; choose another address or port"))
}

/// Sets the headers of every answer, and refuses requests beyond the bound.
async fn bounded(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    // The bound does not apply to the health check. Otherwise many requests of other clients would make a supervisor restart
    // the agent.
    let is_free = request.uri().path() == "/healthz";
    let mut response = if is_free || shared.rate.admits(Instant::now()) {
        next.run(request).await
    } else {
        let later = [(header::RETRY_AFTER, "1")];
        (StatusCode::TOO_MANY_REQUESTS, later, "too many requests; web.requests_per_second bounds them\n")
            .into_response()
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Calls `ask` to read the state, and `write` to make the answer. Both may take a while.
async fn with<T>(
    shared: Shared,
    ask: impl FnOnce(&mut Watch) -> T + Send + 'static,
    write: impl FnOnce(T) -> Response + Send + 'static,
) -> Result<Response, StatusCode> {
    let watch = shared.watch;
    let make = move || {
        let asked = ask(&mut watch.lock().unwrap_or_else(PoisonError::into_inner));
        write(asked)
    };
    shared.answers.make(make).await
}

async fn page(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let look = |watch: &mut Watch| {
        let now = watch.look(true);
        page::render(&now, &watch.history).into_string()
    };
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    with(shared, look, move |page| (kind, page).into_response()).await
}

async fn metrics(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let kind = [(header::CONTENT_TYPE, CONTENT_TYPE)];
    let plugin = shared.plugin.clone();
    let write = move |now| match metrics::text(now, plugin.as_ref()) {
        Ok(text) => (kind, text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    with(shared, |watch| watch.look(false), write).await
}

async fn ready(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let write = |ready| match ready {
        Ok(()) => "ok\n".into_response(),
        Err(problems) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problems}\n")).into_response(),
    };
    with(shared, |watch| watch.is_ready(), write).await
}

#[derive(Debug, Serialize)]
struct GpusResponse {
    version: u32,
    driver: Option<String>,
    gpus: Vec<GpuWithSums>,
}

#[derive(Debug, Serialize)]
struct GpuWithSums {
    #[serde(flatten)]
    gpu: Gpu,
    #[serde(flatten)]
    sums: Sums,
}

async fn gpus(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let write = |now: Snapshot| {
        let gpus = now.gpus.iter().map(|gpu| GpuWithSums { gpu: gpu.clone(), sums: now.sums(gpu) });
        Json(GpusResponse { version: VERSION, driver: now.driver.clone(), gpus: gpus.collect() })
            .into_response()
    };
    with(shared, |watch| watch.look(false), write).await
}

#[derive(Debug, Serialize)]
struct SlicesResponse {
    version: u32,
    slices: Vec<SliceSnapshot>,
}

async fn slices(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let write = |now: Snapshot| Json(SlicesResponse { version: VERSION, slices: now.slices }).into_response();
    with(shared, |watch| watch.look(true), write).await
}

#[derive(Debug, Serialize)]
struct Lines {
    version: u32,
    /// Time between two points.
    interval_seconds: u64,
    lines: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    key: SeriesKey,
    points: Vec<history::Point>,
}

async fn history(State(shared): State<Shared>) -> Result<Response, StatusCode> {
    let interval_seconds = history::POINT_PERIOD.as_secs();
    let write = move |lines| Json(Lines { version: VERSION, interval_seconds, lines }).into_response();
    with(shared, |watch| lines(&watch.history), write).await
}

fn lines(history: &History) -> Vec<Line> {
    history
        .lines()
        .map(|(key, points)| Line { key: key.clone(), points: points.iter().copied().collect() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn requests_that_end_early_take_no_thread_from_other_calls() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(4).build().unwrap();
        let (answers, begun) = (Arc::new(Answers::new()), Arc::new(Mutex::new(0_usize)));
        let (end, ended) = channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        runtime.block_on(async {
            // An answer that waits for as long as another thread has the slices.
            let slow = |_: u32| {
                let (answers, begun, ended) = (Arc::clone(&answers), Arc::clone(&begun), Arc::clone(&ended));
                tokio::spawn(async move {
                    let make = move || {
                        *begun.lock().unwrap() += 1;
                        let _no_sender = ended.lock().unwrap().recv();
                    };
                    answers.make(make).await
                })
            };
            let requests: Vec<_> = (0..20).map(slow).collect();
            while *begun.lock().unwrap() < ANSWERS {
                tokio::task::yield_now().await;
            }
            requests.iter().for_each(tokio::task::JoinHandle::abort);
            for request in requests {
                assert!(request.await.unwrap_err().is_cancelled());
            }
            // Calls of the kubelet have a thread.
            let call = tokio::task::spawn_blocking(|| ());
            tokio::time::timeout(Duration::from_secs(10), call).await.expect("a thread is free").unwrap();
            drop(end);
            answers.make(|| ()).await.unwrap();
        });
        assert_eq!(*begun.lock().unwrap(), ANSWERS);
    }

    #[test]
    fn the_rate_bounds_requests_at_once_and_in_a_second() {
        let rate = Rate::new(5);
        let start = Instant::now();
        let admitted = |count, at: Duration| (0..count).filter(|_| rate.admits(start + at)).count();
        assert_eq!(admitted(20, Duration::from_millis(1)), 10);
        assert_eq!(admitted(20, Duration::from_millis(201)), 1);
        assert_eq!(admitted(20, Duration::from_millis(1001)), 4);
        assert_eq!(admitted(20, Duration::from_secs(60)), 10);
    }
}
