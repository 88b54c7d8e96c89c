//! Sockets on which the kubelet finds a server.

use super::relay;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use tokio::io::DuplexStream;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt as _};

/// Identity of a file, whatever its name. File systems reuse inode numbers, so the time of the last change is part of it.
pub(crate) type Identity = (u64, u64, i64, i64);

/// Returns the identity of the file that has this name at present.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

/// Listens on a new socket, and returns the relayed connections. First removes the socket that an ended agent has left.
pub(crate) fn listen(
    path: &Path,
) -> Result<impl Stream<Item = io::Result<DuplexStream>> + Send + use<>, String> {
    let _of_an_agent_that_ended = fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(UnixListenerStream::new(listener).map(|client| client.map(relay::through)))
}
