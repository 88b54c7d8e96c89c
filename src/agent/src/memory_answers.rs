//! Tells processes of slices the figures of NVML about their device memory.
//!
//! Each slice has a socket beside its operator's file, which its containers see. The kernel tells the agent which process has
//! connected, by its number in the agent's namespace. So a process is told no figure of another process.
//!
//! One task for each slice answers one connection after another. If a container connects all the time, it delays only its own
//! processes. A library without an answer starts NVML itself.

use gpuslice_policy::config::gpu_uuid_text;
use gpuslice_policy::memory_question::{
    MEMORY_SOCKET_FILE, MemoryAnswer, MemoryFigure, MemoryQuestion, QUESTION_BYTES,
};
use gpuslice_slices::nvml::{Nvml, Use};
use gpuslice_slices::nvml_retry::NvmlRetry;
use gpuslice_slices::slot::{Name, Places};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// Time between two looks for new slices. An engine takes longer to start a container.
const LOOK: Duration = Duration::from_millis(500);
/// Longest wait for the question of a client that has connected. The library sends it at once.
const LONGEST_QUESTION: Duration = Duration::from_millis(100);
/// Pause of a slice's task after each connection. A container that connects all the time costs the agent a few percent of a
/// processor.
const PAUSE: Duration = Duration::from_millis(1);

/// A question, its process, and the sender of the answer.
struct Asked {
    question: MemoryQuestion,
    /// The process's number in the agent's namespace.
    pid: u32,
    reply: oneshot::Sender<MemoryAnswer>,
}

/// The socket of a slice. A drop ends its task.
#[derive(Debug)]
struct SliceSocket {
    inode: u64,
    task: AbortHandle,
}

impl Drop for SliceSocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes the sockets of all slices, and answers the questions of their processes.
pub(crate) async fn serve(places: Places) {
    let (questions, asked) = channel();
    thread::spawn(move || answer_all(&asked));
    let mut sockets = BTreeMap::new();
    let mut failed = BTreeSet::new();
    loop {
        let names: BTreeSet<Name> = Name::all_in(&places.slots()).collect();
        sockets.retain(|name, _| names.contains(name));
        failed.retain(|name| names.contains(name));
        for name in names {
            let folder = places.conf(&name);
            let is_there = |socket: &SliceSocket| {
                let file = fs::symlink_metadata(folder.join(MEMORY_SOCKET_FILE));
                file.is_ok_and(|file| file.ino() == socket.inode)
            };
            if sockets.get(&name).is_some_and(is_there) {
                continue;
            }
            match SliceSocket::make(&folder, &questions) {
                Ok(socket) => {
                    sockets.insert(name, socket);
                }
                // The slice is being made or removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    if failed.insert(name.clone()) {
                        warn!(slice = %name, "its processes start NVML themselves: {MEMORY_SOCKET_FILE}: {error}");
                    }
                }
            }
        }
        sleep(LOOK).await;
    }
}

impl SliceSocket {
    /// Makes the socket in the folder of a slice's operator's file. Replaces an existing one: the agent that made it has ended.
    fn make(folder: &Path, questions: &Sender<Asked>) -> io::Result<Self> {
        let opened = File::open(folder)?;
        // A socket's path has 107 bytes at most, and the folder's path may be longer.
        let path = format!("/proc/self/fd/{}/{MEMORY_SOCKET_FILE}", opened.as_raw_fd());
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let listener = net::UnixListener::bind(&path)?;
        // All users of the containers may ask.
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        let inode = fs::symlink_metadata(&path)?.ino();
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let task = tokio::spawn(answer_slice(listener, questions.clone())).abort_handle();
        Ok(Self { inode, task })
    }
}

/// Answers the processes of a slice.
async fn answer_slice(listener: UnixListener, questions: Sender<Asked>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // A client that has gone needs no answer.
            let _failed = converse(stream, &questions).await;
        }
        sleep(PAUSE).await;
    }
}

/// Answers the question of one client.
async fn converse(mut stream: UnixStream, questions: &Sender<Asked>) -> io::Result<()> {
    // 0: the agent's namespace does not contain the process.
    let pid = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let mut message = [0; QUESTION_BYTES];
    timeout(LONGEST_QUESTION, stream.read_exact(&mut message)).await??;
    let Some(question) = MemoryQuestion::of_message(message) else { return Ok(()) };
    let answer = match pid {
        Some(pid) => {
            let (reply, answer) = oneshot::channel();
            let _thread_has_ended = questions.send(Asked { question, pid, reply });
            answer.await.unwrap_or(MemoryAnswer::Failed)
        }
        None => MemoryAnswer::Failed,
    };
    // The message fits into the socket's buffer, so this does not wait.
    stream.write_all(&answer.to_message()).await
}

/// Asks NVML the questions of all slices, in their order. NVML runs in a child of its own, so that it can hang without an effect on
/// the agent's other questions.
fn answer_all(asked: &Receiver<Asked>) {
    let mut nvml = NvmlRetry::new(|silence| warn!("{silence}"));
    // NVML starts now, and not at the first question.
    let _started = nvml.refresh();
    for Asked { question, pid, reply } in asked {
        let answer = nvml.refresh().and_then(|nvml| answer(nvml, question, pid));
        let _client_has_gone = reply.send(answer.unwrap_or(MemoryAnswer::Failed));
    }
}

/// Asks NVML one question. Returns `None` if NVML does not answer.
fn answer(nvml: &Nvml, question: MemoryQuestion, pid: u32) -> Option<MemoryAnswer> {
    let gpu = gpu_uuid_text(&question.device);
    let uuid = gpu.strip_prefix("GPU-")?;
    match question.figure {
        MemoryFigure::Free => nvml.free(uuid).map(MemoryAnswer::Bytes),
        MemoryFigure::Own => nvml.process(uuid, pid).map(|entries| sum(&entries)),
    }
}

/// Returns the bytes of all entries of a process.
fn sum(entries: &[Use]) -> MemoryAnswer {
    let bytes: Option<Vec<u64>> = entries.iter().map(|entry| entry.bytes).collect();
    match bytes {
        Some(bytes) if !bytes.is_empty() => {
            MemoryAnswer::Bytes(bytes.into_iter().fold(0, u64::saturating_add))
        }
        _ => MemoryAnswer::Unlisted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_process_are_those_of_all_its_entries() {
        let entry = |bytes| Use { pid: 7, bytes };
        assert_eq!(sum(&[entry(Some(3)), entry(Some(4))]), MemoryAnswer::Bytes(7));
        assert_eq!(sum(&[entry(Some(3)), entry(None)]), MemoryAnswer::Unlisted);
        assert_eq!(sum(&[]), MemoryAnswer::Unlisted);
    }
}
