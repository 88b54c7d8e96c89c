//! An apiserver behind TLS. A certificate authority of the test has signed its certificate.

use crate::apiserver::Apiserver;
use axum::Json;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse as _;
use axum::serve::Listener;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns the settings of a server with a certificate for this name.
    fn config(&self, name: &str) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap()
    }
}

/// An apiserver that accepts one token.
pub(crate) struct Server {
    address: SocketAddr,
    token: Arc<Mutex<String>>,
    requests: Arc<Mutex<usize>>,
}

impl Server {
    /// Starts the server. `name` is the name in its certificate.
    pub(crate) async fn begin(apiserver: &Apiserver, authority: &Authority, name: &str, token: &str) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(authority.config(name)));
        let server =
            Self { address, token: Arc::new(Mutex::new(token.to_owned())), requests: Arc::default() };
        let (taken, requests) = (Arc::clone(&server.token), Arc::clone(&server.requests));
        let check = move |request: Request, next: Next| {
            *requests.lock().unwrap() += 1;
            let wanted = format!("Bearer {}", taken.lock().unwrap());
            let has_it = request.headers().get(header::AUTHORIZATION).is_some_and(|said| *said == *wanted);
            async move {
                if has_it {
                    return next.run(request).await;
                }
                (StatusCode::UNAUTHORIZED, Json(json!({"kind": "Status", "message": "Unauthorized"})))
                    .into_response()
            }
        };
        let routes = apiserver.routes().layer(middleware::from_fn(check));
        tokio::spawn(axum::serve(Tls { tcp, acceptor }, routes).into_future());
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// Makes the server accept only this token.
    pub(crate) fn takes(&self, token: &str) {
        *self.token.lock().unwrap() = token.to_owned();
    }

    /// Returns the number of requests that have come through TLS.
    pub(crate) fn requests(&self) -> usize {
        *self.requests.lock().unwrap()
    }
}

struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
