//! Serves HTTP on a port that every program of the network can reach, at a bounded cost.
//!
//! A program can open connections and send nothing. So the server accepts every connection, and closes an old one if there are
//! too many. The probe of a supervisor is a new connection, so it always gets its answer.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tracing::warn;

/// Most bytes of a request line with its headers.
const MOST_HEADER_BYTES: usize = 16 << 10;
/// Longest time in which a client must send the headers of its request.
const SENDING: Duration = Duration::from_secs(10);
/// Longest time of a connection. Until then, a client may send further requests on it.
const CONNECTION: Duration = Duration::from_secs(120);

/// Serves until the future is dropped. `most` is the highest number of connections at the same time.
pub async fn serve(listener: TcpListener, routes: Router, most: usize) {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(SENDING)
        .max_buf_size(MOST_HEADER_BYTES)
        .keep_alive(true);
    let (mut tasks, mut connections) = (JoinSet::new(), Connections::default());
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let service = TowerToHyperService::new(routes.clone());
                let connection = server.serve_connection(TokioIo::new(stream), service);
                // A failed connection concerns only its client.
                let task = tasks.spawn(async move {
                    let _ended = tokio::time::timeout(CONNECTION, connection).await;
                });
                connections.add(address.ip().to_canonical(), task, most);
            }
            Err(error) => {
                warn!("web: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// The open connections, with the oldest first.
#[derive(Debug, Default)]
struct Connections(Vec<(IpAddr, AbortHandle)>);

impl Connections {
    /// Adds a connection. If there are more than `most` then, closes the oldest connection of the address with the most
    /// connections. So a client with many connections takes none from other clients.
    fn add(&mut self, address: IpAddr, task: AbortHandle, most: usize) {
        self.0.retain(|(_, task)| !task.is_finished());
        self.0.push((address, task));
        if self.0.len() <= most {
            return;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (address, _) in &self.0 {
            let count = counts.entry(*address).or_default();
            *count = count.saturating_add(1);
        }
        let count = |address: &IpAddr| counts.get(address).copied().unwrap_or_default();
        let largest = counts.values().copied().max().unwrap_or_default();
        if let Some(oldest) = self.0.iter().position(|(address, _)| count(address) == largest) {
            self.0.remove(oldest).1.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::thread;

    const MOST: usize = 32;

    /// Serves in a thread, until the test's process ends.
    fn served() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let routes = Router::new().route("/healthz", get(|| async { "ok\n" }));
            runtime.block_on(async { serve(TcpListener::from_std(listener).unwrap(), routes, MOST).await });
        });
        address
    }

    /// Asks for `/healthz`. Returns true if the answer comes within seconds.
    fn answers(mut connection: &TcpStream) -> bool {
        connection.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut answer = [0; 512];
        connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").is_ok()
            && connection.read(&mut answer).is_ok_and(|read| answer[..read].starts_with(b"HTTP/1.1 200"))
    }

    #[test]
    fn a_probe_gets_its_answer_beside_hundreds_of_connections_that_send_nothing() {
        let address = served();
        let idle: Vec<_> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
        for _ in 0..4 {
            assert!(answers(&TcpStream::connect(address).unwrap()));
        }
        // The server has closed the oldest connections.
        idle[0].set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!((&idle[0]).read(&mut [0]).unwrap(), 0);
        assert!(answers(&idle[299]));
    }

    #[test]
    fn an_address_with_many_connections_takes_none_from_the_others() {
        let task = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let [quiet, loud] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let mut connections = Connections::default();
        (0..2).for_each(|_| connections.add(quiet, task(), 4));
        (0..9).for_each(|_| connections.add(loud, task(), 4));
        let of = |address| connections.0.iter().filter(|(known, _)| *known == address).count();
        assert_eq!((of(quiet), of(loud)), (2, 2));
    }
}
