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

/// A file, and not another one that has its name later. File systems use numbers again, and so the time counts too.
pub(crate) type Identity = (u64, u64, i64, i64);

/// The file that has this name now.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec()))
}

/// The connections to a new socket, as a server is to see them. A socket that an ended agent has left gives way.
pub(crate) fn listen(
    path: &Path,
) -> Result<impl Stream<Item = io::Result<DuplexStream>> + Send + use<>, String> {
    let _of_an_agent_that_ended = fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(UnixListenerStream::new(listener).map(|client| client.map(relay::through)))
}
