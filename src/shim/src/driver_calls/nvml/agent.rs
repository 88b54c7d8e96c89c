//! Asks the agent of the node for figures of NVML.
//!
//! The agent has NVML open, so that a process need not start it. It also knows the process by its number on the host. In a
//! container that an agent does not serve, the socket is missing or no agent accepts, and a question ends at once. If an agent
//! accepts and does not answer, the process asks it no more for a while.

use crate::os::clock::now;
use crate::os::time_word::TimeWord;
use core::ptr;
use gpuslice_policy::memory_question::{
    ANSWER_BYTES, MEMORY_SOCKET, MemoryAnswer, MemoryFigure, MemoryQuestion, QUESTION_BYTES,
};
use gpuslice_policy::time::{Monotonic, WallTime};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Longest wait for an answer. NVML takes some milliseconds for one, and the agent answers the processes of a slice one after
/// another. Dozens of processes that start at once wait some tenths of a second.
const AGENT_PATIENCE: WallTime = WallTime::from_millis(2_000);
/// Time for which the process does not ask after a wait without an answer. A call of the program asks several questions, and it
/// must not wait for each.
const AGENT_SILENCE: WallTime = WallTime::from_millis(10_000);

/// Instant until which the process does not ask.
static SILENT_UNTIL: TimeWord<Monotonic> = TimeWord::zero();

/// Asks for a figure of a device.
pub(crate) fn ask(figure: MemoryFigure, device: &[u8; 16]) -> MemoryAnswer {
    if now() < SILENT_UNTIL.get() {
        return MemoryAnswer::Failed;
    }
    let question = MemoryQuestion { figure, device: *device }.to_message();
    exchange(&question).and_then(MemoryAnswer::of_message).unwrap_or(MemoryAnswer::Failed)
}

/// Sends a question over a new connection, and returns the answer.
fn exchange(question: &[u8; QUESTION_BYTES]) -> Option<[u8; ANSWER_BYTES]> {
    let until = now().saturating_add(AGENT_PATIENCE);
    let socket = connect()?;
    // SAFETY: `send` requires a buffer of the given length: `question` has it.
    let sent = unsafe {
        libc::send(socket.as_raw_fd(), question.as_ptr().cast(), question.len(), libc::MSG_NOSIGNAL)
    };
    if usize::try_from(sent) != Ok(question.len()) {
        return None;
    }
    let mut answer = [0; ANSWER_BYTES];
    let mut received = 0;
    while received < answer.len() {
        let left = until.since(now()).nanos() / 1_000_000;
        let mut ready = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` requires one structure for each counted descriptor: `ready` is one.
        let polled = unsafe { libc::poll(&raw mut ready, 1, i32::try_from(left).unwrap_or(i32::MAX)) };
        // A handler of the program may interrupt the wait. The next round waits for the rest of the time.
        if polled == 0 || (polled < 0 && left == 0) {
            SILENT_UNTIL.set(now().saturating_add(AGENT_SILENCE));
            return None;
        }
        let room = answer.get_mut(received..)?;
        // SAFETY: `recv` requires a buffer of the given length that is valid for writes: `room` has it.
        let got = unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
        match usize::try_from(got) {
            Ok(0) => return None,
            Ok(got) => received = received.saturating_add(got),
            Err(_) if is_temporary() => {}
            Err(_) => return None,
        }
    }
    Some(answer)
}

/// Returns true if the last call on the socket failed only because it was interrupted, or because there is no data yet.
fn is_temporary() -> bool {
    let error = std::io::Error::last_os_error().raw_os_error();
    matches!(error, Some(libc::EINTR | libc::EAGAIN))
}

/// Connects without a wait. If many clients wait for the agent, the connection fails at once.
fn connect() -> Option<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `socket` takes values only.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    // SAFETY: `from_raw_fd` requires a descriptor that nothing else owns: the call above made it.
    let socket = (socket >= 0).then(|| unsafe { OwnedFd::from_raw_fd(socket) })?;
    // SAFETY: zeroed bytes are a valid address: its fields are numbers.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).ok()?;
    let path = MEMORY_SOCKET.as_bytes();
    // The last byte stays zero.
    for (to, byte) in address.sun_path.iter_mut().zip(path) {
        *to = core::ffi::c_char::from_ne_bytes([*byte]);
    }
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).ok()?;
    // SAFETY: `connect` requires an address of the given length: `address` has it.
    let code = unsafe { libc::connect(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length) };
    (code == 0).then_some(socket)
}

const _: () = assert!(MEMORY_SOCKET.len() < 108, "a socket's path has 107 bytes at most");
