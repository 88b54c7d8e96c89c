//! Client of the apiserver: JSON over HTTP.

use super::object::{Change, Metadata, Named};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, StatusCode, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Folder in which a pod finds the certificate authority of its apiserver, and its token.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Most bytes of an answer. 100,000 pods of 10 KiB need as much.
const MOST_ANSWER_BYTES: usize = 1 << 30;
/// Longest time of a request, other than a watch.
const LONGEST_REQUEST: Duration = Duration::from_secs(30);

/// Time without traffic after which TCP checks that the other end of a connection still exists.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Reason why a request was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The apiserver refuses: its status, and its reason.
    Refused(u16, String),
    /// The apiserver does not answer.
    Silent(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status, why) => write!(out, "the apiserver refuses it ({status}): {why}"),
            Self::Silent(why) => write!(out, "the apiserver does not answer: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Returns true if the apiserver may still do the write. Example: etcd is late, and the apiserver answers 500. Then etcd
    /// stores the write.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        !matches!(self, Self::Refused(status, _) if *status < 500)
    }
}

fn silent(error: impl fmt::Display) -> Failure {
    Failure::Silent(error.to_string())
}

/// A client. Its clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    base: String,
    /// File with the token. The kubelet rewrites it every hour.
    token: Option<PathBuf>,
    http: Http<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Client {
    /// Returns a client of the apiserver at an address without TLS, such as that of `kubectl proxy`. Without an address, the
    /// apiserver is that of the cluster.
    ///
    /// # Errors
    /// The errors of [`in_cluster`](Self::in_cluster).
    pub fn at(address: Option<&str>) -> Result<Self, String> {
        address.map_or_else(Self::in_cluster, |address| Self::new(address, None, None))
    }

    /// Returns a client of the apiserver of the cluster in which this process is a pod.
    ///
    /// # Errors
    /// The process is in no pod, or its certificate cannot be read.
    pub fn in_cluster() -> Result<Self, String> {
        let variable = |name| std::env::var(name).map_err(|_| format!("{name} is not set: this is no pod"));
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let account = Path::new(ACCOUNT);
        Self::new(
            &format!("https://{host}:{port}"),
            Some(&account.join("ca.crt")),
            Some(account.join("token")),
        )
    }

    /// Returns a client of the apiserver at an address. `authority` is the file with the certificates of the apiserver's
    /// authority.
    ///
    /// # Errors
    /// The certificates cannot be read, or the file has no certificate.
    pub fn new(base: &str, authority: Option<&Path>, token: Option<PathBuf>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = authority {
            let wrong = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
            let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            if roots.is_empty() {
                return Err(wrong(&"there is no certificate in it"));
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = tls.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        // A watch may be silent for minutes. Without the checks of TCP, the client would not notice a lost connection.
        connector.set_keepalive(Some(KEEPALIVE));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = Http::builder(TokioExecutor::new()).build(connector);
        Ok(Self { base: base.trim_end_matches('/').to_owned(), token, http })
    }

    /// Reads an object or a list; none if it does not exist.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        match self.ask(Method::GET, path, None).await {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(silent),
            Err(Failure::Refused(404, _)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads an object or a list, and fails if the apiserver does not answer within `patience`.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn get_within<T: DeserializeOwned>(
        &self,
        patience: Duration,
        path: &str,
    ) -> Result<Option<T>, Failure> {
        let asked = tokio::time::timeout(patience, self.get(path)).await;
        asked.unwrap_or_else(|_| Err(silent(format!("not within {patience:?}"))))
    }

    /// Writes some fields of an object, and returns the new metadata. `null` removes a field.
    ///
    /// # Errors
    /// See [`Failure`]. The status is 409 if the patch names another version than the object has.
    pub async fn patch(&self, path: &str, patch: &Value) -> Result<Metadata, Failure> {
        self.merge::<Named>(path, patch).await.map(|object| object.metadata)
    }

    /// Makes an object.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn post(&self, path: &str, object: &Value) -> Result<(), Failure> {
        self.ask(Method::POST, path, Some(object)).await.map(drop)
    }

    /// Makes an object, and returns the object that the apiserver has stored.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn create<T: DeserializeOwned>(&self, path: &str, object: &Value) -> Result<T, Failure> {
        let text = self.ask(Method::POST, path, Some(object)).await?;
        serde_json::from_slice(&text).map_err(silent)
    }

    /// Writes some fields of an object as [`patch`](Self::patch) does, and returns the whole new object.
    ///
    /// # Errors
    /// The errors of [`patch`](Self::patch).
    pub async fn merge<T: DeserializeOwned>(&self, path: &str, patch: &Value) -> Result<T, Failure> {
        let text = self.ask(Method::PATCH, path, Some(patch)).await?;
        serde_json::from_slice(&text).map_err(silent)
    }

    /// Removes an object. A missing object is no failure.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn delete(&self, path: &str) -> Result<(), Failure> {
        match self.ask(Method::DELETE, path, None).await {
            Err(Failure::Refused(404, _)) => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Follows the changes of a list.
    ///
    /// # Errors
    /// See [`Failure`]. The status is 410 if the apiserver has forgotten the version.
    pub async fn changes(&self, path: &str) -> Result<Changes, Failure> {
        let answer = tokio::time::timeout(LONGEST_REQUEST, self.send(Method::GET, path, None)).await;
        Ok(Changes { body: answer.map_err(silent)??, text: Vec::new() })
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes, Failure> {
        let asked = async {
            let answer = self.send(method, path, body).await?;
            let whole = Limited::new(answer, MOST_ANSWER_BYTES).collect().await;
            whole.map(http_body_util::Collected::to_bytes).map_err(silent)
        };
        tokio::time::timeout(LONGEST_REQUEST, asked).await.map_err(silent)?
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Incoming, Failure> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let mut request =
            request.header(header::CONTENT_TYPE, kind).header(header::ACCEPT, "application/json");
        if let Some(file) = &self.token {
            let token = std::fs::read_to_string(file);
            let token = token.map_err(|error| silent(format!("{}: {error}", file.display())))?;
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = request.body(Full::new(body)).map_err(silent)?;
        let answer = self.http.request(request).await.map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            silent(format!("{error}{}", cause.unwrap_or_default()))
        })?;
        let (status, body) = (answer.status(), answer.into_body());
        if status.is_success() { Ok(body) } else { Err(refused(status, body).await) }
    }
}

/// Reads the reason why the apiserver refuses a request.
async fn refused(status: StatusCode, body: Incoming) -> Failure {
    let text = Limited::new(body, 64 << 10).collect().await.map(http_body_util::Collected::to_bytes);
    let said = text.ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let why = said.as_ref().and_then(|said| said.get("message")?.as_str());
    Failure::Refused(status.as_u16(), why.unwrap_or("no reason").to_owned())
}

/// Changes of a list, one JSON object a line.
#[derive(Debug)]
pub struct Changes {
    body: Incoming,
    text: Vec<u8>,
}

impl Changes {
    /// Waits for the next change. Returns none if the apiserver ends the watch, which it does every few minutes.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Change<T>>, Failure> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(silent);
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.map_err(silent)?.into_data() {
                self.text.extend(data);
            }
        }
    }
}
