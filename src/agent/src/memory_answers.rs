//! Tells processes of slices the figures of NVML about their device memory.
//!
//! Each slice has a socket beside its operator's file, which its containers see. The kernel tells the agent which process has
//! connected, by its number in the agent's namespace. So a process is told no figure of another process.
//!
//! One task for each slice answers one connection after another. If a container connects all the time, it delays only its own
//! processes. A library without an answer starts NVML itself.

use gpuslice_policy::memory_question::{
    MEMORY_SOCKET_FILE, MemoryAnswer, MemoryFigure, MemoryQuestion, QUESTION_BYTES,
};
use gpuslice_region::{FIRST_PID_NAMESPACE, Uuid, own_pid_namespace};
use gpuslice_slices::nvml::{Nvml, Use};
use gpuslice_slices::slot::{Name, Places};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// Time between two looks for new slices. An engine takes longer to start a container.
const SOCKET_LOOK: Duration = Duration::from_millis(500);
/// Longest wait for the question of a client that has connected. The library sends it at once.
const LONGEST_QUESTION: Duration = Duration::from_secs(1);
/// Pause of a slice's task after each connection. So connections without a question take a few percent of a processor at most.
const CONNECTION_PAUSE: Duration = Duration::from_millis(1);
/// Time that the answers to a slice may take at once. 64 processes that start together need 1.3 s: 10 ms for look-ups, and two
/// lists of NVML for a context.
const ANSWER_BURST: Duration = Duration::from_secs(2);
/// Divisor of the time that further answers to a slice may take. All processes of the machine share NVML's lock. Each process asks
/// for a twentieth of the time at most, so five busy processes need this much.
const ANSWER_PART: u32 = 4;
/// First series of drivers that name processes rightly in every namespace.
const RIGHT_EVERYWHERE: u32 = 565;

/// A question, its process, and the sender of the answer.
pub(crate) struct Asked {
    question: MemoryQuestion,
    /// The process's number in the agent's namespace.
    pid: u32,
    reply: oneshot::Sender<Told>,
}

/// An answer, and the time that NVML took for it.
type Told = (MemoryAnswer, Duration);

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
pub(crate) async fn serve(places: Places, questions: Sender<Asked>) {
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
                    failed.remove(&name);
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
        sleep(SOCKET_LOOK).await;
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

/// Answers the processes of a slice. Beyond [`ANSWER_BURST`], the answers take one part in [`ANSWER_PART`] of the time.
async fn answer_slice(listener: UnixListener, questions: Sender<Asked>) {
    // The instant at which the time spent until now is one part in `ANSWER_PART` of all time.
    let mut paid_at = Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let began = Instant::now();
            let took = converse(stream, &questions).await.unwrap_or(Duration::ZERO);
            paid_at = paid_at.max(began) + took * ANSWER_PART;
        }
        let debt = paid_at.saturating_duration_since(Instant::now() + ANSWER_BURST * ANSWER_PART);
        sleep(debt.max(CONNECTION_PAUSE)).await;
    }
}

/// Answers the question of one client. Returns the time that NVML took. An error means that there was no question.
async fn converse(mut stream: UnixStream, questions: &Sender<Asked>) -> io::Result<Duration> {
    // 0: the agent's namespace does not contain the process.
    let pid = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let mut message = [0; QUESTION_BYTES];
    timeout(LONGEST_QUESTION, stream.read_exact(&mut message)).await??;
    let Some(question) = MemoryQuestion::of_message(message) else { return Ok(Duration::ZERO) };
    let (answer, took) = match pid {
        Some(pid) => {
            let (reply, told) = oneshot::channel();
            let _thread_has_ended = questions.send(Asked { question, pid, reply });
            told.await.unwrap_or((MemoryAnswer::Failed, Duration::ZERO))
        }
        None => (MemoryAnswer::Failed, Duration::ZERO),
    };
    // The message fits into the socket's buffer, so this does not wait. The question counts although the client has gone.
    let _client_has_gone = stream.write_all(&answer.to_message()).await;
    Ok(took)
}

/// Answers the questions of processes for a time, in their order. Without NVML, all answers are [`MemoryAnswer::Failed`]. Returns
/// false if all senders of questions are gone.
pub(crate) fn answer_for(span: Duration, questions: &Receiver<Asked>, nvml: Option<&Nvml>) -> bool {
    let end = Instant::now() + span;
    loop {
        // The channel gives a waiting question even after the time. So the time is looked at first.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        match questions.recv_timeout(left) {
            Ok(Asked { question, pid, reply }) => {
                let began = Instant::now();
                let answer = nvml.map_or(MemoryAnswer::Failed, |nvml| answer(nvml, question, pid));
                let _task_has_ended = reply.send((answer, began.elapsed()));
            }
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Returns true if NVML of this driver version names processes to the agent by the numbers by which the kernel names them. In the
/// host's namespace every driver does. In another one, drivers from 535.113 to 560 tell the bytes of other processes, and drivers
/// before them the host's numbers.
pub(crate) fn names_rightly(driver: Option<&str>) -> bool {
    names_rightly_in(own_pid_namespace(), driver)
}

fn names_rightly_in(namespace: u64, driver: Option<&str>) -> bool {
    let series = driver.and_then(|version| version.split('.').next()?.parse().ok());
    namespace == FIRST_PID_NAMESPACE || series.is_some_and(|series: u32| series >= RIGHT_EVERYWHERE)
}

/// Asks NVML one question.
fn answer(nvml: &Nvml, question: MemoryQuestion, pid: u32) -> MemoryAnswer {
    let uuid = Uuid(question.device).to_string();
    let told = match question.figure {
        MemoryFigure::Free => nvml.free(&uuid).map(MemoryAnswer::Bytes),
        MemoryFigure::Own => nvml.process(&uuid, pid).map(|entries| sum(&entries)),
    };
    told.unwrap_or(MemoryAnswer::Failed)
}

/// Returns the bytes of all entries of a process.
fn sum(entries: &[Use]) -> MemoryAnswer {
    match entries.iter().try_fold(0_u64, |sum, entry| Some(sum.saturating_add(entry.bytes?))) {
        Some(bytes) if !entries.is_empty() => MemoryAnswer::Bytes(bytes),
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

    #[test]
    fn drivers_before_565_name_processes_rightly_only_on_the_host() {
        for (driver, elsewhere) in [(None, false), (Some("560.35.03"), false), (Some("565.57.01"), true)] {
            assert!(names_rightly_in(FIRST_PID_NAMESPACE, driver), "{driver:?}");
            assert_eq!(names_rightly_in(FIRST_PID_NAMESPACE - 1, driver), elsewhere, "{driver:?}");
        }
    }

    #[test]
    fn questions_without_nvml_fail_and_the_end_of_their_senders_ends_the_thread() {
        let (questions, asked) = std::sync::mpsc::channel();
        let (reply, mut answer) = oneshot::channel();
        let question = MemoryQuestion { figure: MemoryFigure::Own, device: [0; 16] };
        questions.send(Asked { question, pid: 1, reply }).unwrap();
        assert!(answer_for(Duration::ZERO, &asked, None), "no question is answered after the time");
        assert!(answer.try_recv().is_err());
        drop(questions);
        assert!(!answer_for(Duration::from_secs(3600), &asked, None));
        assert_eq!(answer.try_recv().unwrap().0, MemoryAnswer::Failed);
    }
}
