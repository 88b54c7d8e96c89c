//! Tests the client with an apiserver behind TLS. It uses certificates and tokens as a pod has them.

mod tls;

use crate::apiserver::Apiserver;
use gpuslice_kubernetes::api::{Client, Failure, Node, Pod};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tempfile::TempDir;
use tls::{Authority, Server};

/// The folder of a service account, as a kubelet mounts it. Its files are links into a folder whose name changes with each
/// token.
struct Account(TempDir);

impl Account {
    fn new(authority: &Authority, token: &str) -> Self {
        let account = Self(tempfile::tempdir().unwrap());
        symlink("..data/token", account.token()).unwrap();
        symlink("..data/ca.crt", account.authority()).unwrap();
        account.rotate(authority, token);
        account
    }

    fn rotate(&self, authority: &Authority, token: &str) {
        let folder = self.0.path().join(format!("..{token}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("token"), format!("{token}\n")).unwrap();
        fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
        let (new, data) = (self.0.path().join("..data_tmp"), self.0.path().join("..data"));
        symlink(folder.file_name().unwrap(), &new).unwrap();
        fs::rename(new, data).unwrap();
    }

    fn token(&self) -> PathBuf {
        self.0.path().join("token")
    }

    fn authority(&self) -> PathBuf {
        self.0.path().join("ca.crt")
    }

    fn client(&self, server: &Server) -> Client {
        Client::new(&server.url(), Some(&self.authority()), Some(self.token())).unwrap()
    }
}

fn apiserver() -> Apiserver {
    let apiserver = Apiserver::default();
    apiserver.add_node("n1");
    apiserver
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_watches_go_through_tls_and_a_new_token_is_used_at_once() {
    let (authority, apiserver) = (Authority::new(), apiserver());
    let server = Server::begin(&apiserver, &authority, "127.0.0.1", "first").await;
    let account = Account::new(&authority, "first");
    let client = account.client(&server);
    let node = client.get::<Node>("/api/v1/nodes/n1").await.unwrap().unwrap();
    assert_eq!(node.metadata.name, "n1");
    let mut changes = client.changes("/api/v1/pods?watch=true&resourceVersion=0").await.unwrap();
    apiserver.put(&json!({"metadata": {"namespace": "ns", "name": "a"}}));
    let change = changes.next::<Pod>().await.unwrap().unwrap();
    assert_eq!((change.kind.as_str(), change.object.metadata.name.as_str()), ("ADDED", "a"));
    // The kubelet writes another token every hour, and the apiserver refuses the old one.
    server.takes("second");
    let refused = client.get::<Node>("/api/v1/nodes/n1").await.unwrap_err();
    assert!(matches!(&refused, Failure::Refused(401, why) if why == "Unauthorized"), "{refused}");
    account.rotate(&authority, "second");
    client.patch("/api/v1/nodes/n1", &json!({"metadata": {"annotations": {"a": "b"}}})).await.unwrap();
    assert_eq!(apiserver.node("n1")["metadata"]["annotations"]["a"], "b");
    // Open watches continue.
    apiserver.put(&json!({"metadata": {"namespace": "ns", "name": "b"}}));
    assert_eq!(changes.next::<Value>().await.unwrap().unwrap().object["metadata"]["name"], "b");
}

/// Checks that the client sends the token only after the server has proved its identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apiserver_of_another_authority_or_name_is_refused_before_it_hears_anything() {
    let (authority, other, apiserver) = (Authority::new(), Authority::new(), apiserver());
    let account = Account::new(&authority, "token");
    for (signed_by, name, says) in
        [(&other, "127.0.0.1", "BadSignature"), (&authority, "192.0.2.1", "not valid for name")]
    {
        let server = Server::begin(&apiserver, signed_by, name, "token").await;
        let why = account.client(&server).get::<Node>("/api/v1/nodes/n1").await.unwrap_err();
        assert!(matches!(&why, Failure::Silent(text) if text.contains(says)), "{why}");
        assert_eq!(server.requests(), 0, "{says}");
    }
    // The client refuses a server without TLS at an address with TLS.
    let plain = apiserver.serve().await;
    let client = Client::new(&format!("https://{plain}"), Some(&account.authority()), None).unwrap();
    assert!(matches!(client.get::<Node>("/api/v1/nodes/n1").await, Err(Failure::Silent(_))));
}

#[test]
fn a_file_without_certificates_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    for text in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        fs::write(&path, text).unwrap();
        let why = Client::new("https://127.0.0.1:1", Some(&path), None).unwrap_err();
        assert!(why.contains("ca.crt"), "{why}");
    }
}
