//! Runs the agent until a signal ends it.

use crate::arguments::ConfigPlace;
use crate::cluster;
use crate::config::{Config, Mode};
use crate::control;
use crate::cotenants;
use crate::gpus::Gpus;
use crate::history;
use crate::memory_answers;
use crate::watch::Watch;
use crate::web::{self, Answers, Rate, Shared};
use gpuslice_kubernetes::metrics::PreStartMetrics;
use gpuslice_slices::slot::make_folder;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info};

/// Longest wait for NVML's first answer.
const FIRST: Duration = Duration::from_secs(6);
/// Longest wait for the end of the task that serves the kubelet. The task reports to an apiserver that may not answer.
const LEAVE: Duration = Duration::from_secs(5);

/// Makes the slices, and serves figures until SIGTERM or SIGINT.
pub(crate) fn serve(place: &ConfigPlace, config: Config) -> Result<(), String> {
    tracing_subscriber::fmt().with_max_level(config.log).with_writer(io::stderr).with_ansi(false).init();
    gpuslice_slices::allow_more_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(5)
        .thread_stack_size(512 << 10)
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    // The start takes seconds if NVML is slow. Until the runtime registers the signal, SIGHUP ends the process.
    let again = {
        let _in_runtime = runtime.enter();
        on(SignalKind::hangup())?
    };
    make_folder(&config.run).map_err(|problem| problem.to_string())?;
    // Both steps come before the agent makes a slice, because a second agent must end here. They also come before any other
    // thread starts: the bind of the socket changes the umask, which all threads share.
    let _lock = control::lock(&config.run)
        .map_err(|error| format!("{}: {error}", config.run.join("agent.lock").display()))?;
    let (socket, listen) = (config.socket(), config.listen);
    let control = control::listen(&socket, config.group.as_deref())
        .map_err(|error| format!("{}: {error}", socket.display()))?;
    let served = serve_on(runtime, again, place, config, control, web::listen(listen));
    let _gone = std::fs::remove_file(&socket);
    served
}

/// Starts the agent's threads, and serves on the bound socket and port until a signal.
///
/// The thread that asks NVML starts first. This function waits for its first answer, so that the slices of the configuration
/// find their GPUs. A thread ends when the sender of its channel is dropped. At the end, the task that serves the kubelet gets
/// some seconds to leave, because it reports to the apiserver.
fn serve_on(
    runtime: Runtime,
    again: Signal,
    place: &ConfigPlace,
    config: Config,
    control: UnixListener,
    web: Result<TcpListener, String>,
) -> Result<(), String> {
    let web = web?;
    let address = web.local_addr().map_err(|error| error.to_string())?;
    let gpus = Gpus::default();
    let (questions, asked) = channel();
    let watched = gpus.clone();
    let (tell, told) = channel();
    thread::spawn(move || {
        watched.watch(&asked, || {
            let _nobody_waits_any_more = tell.send(());
        });
    });
    let _slow_or_none = told.recv_timeout(FIRST);
    let (connections, rate) = (config.connections, Arc::new(Rate::new(config.rate)));
    let socket = config.socket();
    let (is_running, alive) = watch::channel(());
    let has_plugin = config.cluster.as_ref().is_some_and(|cluster| cluster.mode == Mode::DevicePlugin);
    let calls = PreStartMetrics::default();
    let plugin = has_plugin.then(|| calls.clone());
    let cluster = cluster::serve(config.clone(), gpus.clone(), calls, alive);
    // The thread that asks NVML runs as long as this sender lives.
    let _questions = questions.clone();
    let memory_answers = memory_answers::serve(config.places.clone(), questions);
    let (places, found) = channel();
    let asked = gpus.clone();
    thread::spawn(move || cotenants::serve(&found, &asked));
    let watch = Arc::new(Mutex::new(Watch::begin(config, gpus, places)));
    let (_ticks, stop) = channel();
    let ticking = Arc::clone(&watch);
    thread::spawn(move || tick(&ticking, &stop));
    let served = runtime.block_on(async move {
        // Both listeners register with the runtime, so this code must run within it.
        let told = |error: io::Error| format!("cannot start: {error}");
        let control = tokio::net::UnixListener::from_std(control).map_err(told)?;
        let web = tokio::net::TcpListener::from_std(web).map_err(told)?;
        info!(%address, socket = %socket.display(), "serving");
        let shared = Shared { watch: Arc::clone(&watch), rate, answers: Arc::new(Answers::new()), plugin };
        let cluster = tokio::spawn(cluster);
        tokio::spawn(memory_answers);
        let web = gpuslice_kubernetes::web::serve(web, web::routes(shared), connections);
        let served = all(again, place, control, web, watch).await;
        drop(is_running);
        let _ended_or_late = tokio::time::timeout(LEAVE, cluster).await;
        served
    });
    // A drop of the runtime would wait for calls that a tenant can make long.
    runtime.shutdown_timeout(LEAVE);
    served
}

/// Once in two seconds, adds points to the history, and lowers limits that tenants have raised.
fn tick(watch: &Mutex<Watch>, stop: &Receiver<()>) {
    while stop.recv_timeout(history::POINT_PERIOD) == Err(RecvTimeoutError::Timeout) {
        watch.lock().unwrap_or_else(PoisonError::into_inner).tick();
    }
}

/// Registers a signal with the runtime in which the caller runs.
fn on(kind: SignalKind) -> Result<Signal, String> {
    signal(kind).map_err(|error| error.to_string())
}

/// Serves until SIGTERM or SIGINT ends the agent. At SIGHUP the agent reads the configuration again.
async fn all(
    mut again: Signal,
    place: &ConfigPlace,
    control: tokio::net::UnixListener,
    web: impl Future<Output = ()> + Send + 'static,
    watch: Arc<Mutex<Watch>>,
) -> Result<(), String> {
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let web = tokio::spawn(web);
    let control = tokio::spawn(control::serve(control, Arc::clone(&watch)));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = again.recv() => tokio::select! {
                // A reload can wait for a scan. The end does not wait for it.
                () = reload(place, Arc::clone(&watch)) => {}
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
            },
        }
    }
    info!("ending; slices go on");
    web.abort();
    control.abort();
    Ok(())
}

/// Reads the configuration again and applies it. If the configuration has mistakes, logs them and changes nothing.
async fn reload(place: &ConfigPlace, watch: Arc<Mutex<Watch>>) {
    match Config::read(place) {
        Ok(config) => {
            let slices = config.slices.len();
            let taken = tokio::task::spawn_blocking(move || {
                watch.lock().unwrap_or_else(PoisonError::into_inner).configure(config);
            });
            match taken.await {
                Ok(()) => info!(slices, "read the configuration again"),
                Err(error) => error!("{error}"),
            }
        }
        Err(mistakes) => {
            for mistake in mistakes {
                error!("the configuration stays as it was: {mistake}");
            }
        }
    }
}
