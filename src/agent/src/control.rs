//! Changes limits while slices run. Clients send lines of JSON to a unix socket, to which root and one group may write.
//!
//! Example: `{"op":"set","slice":"a","memMiB":8192,"core":40}`. The answer is `{"ok":true,"gen":2}` or
//! `{"ok":false,"error":"…"}`.

use crate::request::{MOST_REQUEST_BYTES, parse};
use crate::watch::Watch;
use serde::Serialize;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{info, warn};

/// Most connections that are open at a time.
const CONNECTIONS: usize = 16;
/// Longest wait for a line of the client, and longest time for writing an answer.
const LONGEST_LINE_WAIT: Duration = Duration::from_secs(30);

/// The answer to a request.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Answer {
    Done {
        ok: bool,
        /// Number of changes of the slice's limits so far.
        #[serde(rename = "gen")]
        generation: u64,
    },
    Failed {
        ok: bool,
        error: String,
    },
}

/// Takes the lock by which only one agent at a time uses a folder. The lock ends when the returned file is closed.
pub(crate) fn lock(run: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(run.join("agent.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another agent has it; end that one, or set paths.run",
        )),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Binds the socket. Removes an existing file first: the caller has the [`lock`], so the agent that made the file has ended.
/// During the bind, the umask lets only the owner connect. Otherwise any user could connect before the group is set.
pub(crate) fn listen(path: &Path, group: Option<&str>) -> io::Result<net::UnixListener> {
    let _none_there = std::fs::remove_file(path);
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = net::UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    if let Some(group) = group {
        let number = group_number(group).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("control.group = {group:?} is no group of /etc/group; make it with groupadd"),
            )
        })?;
        std::os::unix::fs::chown(path, None, Some(number))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    }
    Ok(listener)
}

fn group_number(name: &str) -> Option<u32> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

/// Answers all clients, [`CONNECTIONS`] at a time.
pub(crate) async fn serve(listener: UnixListener, watch: Arc<Mutex<Watch>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let watch = Arc::clone(&watch);
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, watch).await {
                        info!("control: {error}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!("control: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Answers the lines of one client, until the client closes the connection.
async fn converse(mut stream: UnixStream, watch: Arc<Mutex<Watch>>) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no line came in time");
        let mut limited = (&mut read).take(MOST_REQUEST_BYTES);
        let count =
            timeout(LONGEST_LINE_WAIT, limited.read_until(b'\n', &mut line)).await.map_err(late)??;
        if count == 0 {
            return Ok(());
        }
        let is_whole = line.ends_with(b"\n");
        let watch = Arc::clone(&watch);
        let answer = tokio::task::spawn_blocking(move || answer(&line, is_whole, user, &watch));
        let answer = answer.await.map_err(io::Error::other)?;
        let text = format!("{}\n", serde_json::to_string(&answer)?);
        timeout(LONGEST_LINE_WAIT, write.write_all(text.as_bytes())).await.map_err(late)??;
        if !is_whole {
            return Ok(());
        }
    }
}

fn answer(line: &[u8], is_whole: bool, user: u32, watch: &Mutex<Watch>) -> Answer {
    match parse(line, is_whole).and_then(|(slice, change)| {
        let generation = watch.lock().unwrap_or_else(PoisonError::into_inner).change(&slice, change)?;
        info!(
            slice,
            user,
            generation,
            memory = change.memory,
            share = change.share.map(|share| share.to_string()),
            "limits changed"
        );
        Ok(generation)
    }) {
        Ok(generation) => Answer::Done { ok: true, generation },
        Err(error) => Answer::Failed { ok: false, error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_at_a_time_has_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).unwrap_err().to_string().contains("another agent has it"));
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }
}
