//! A Prometheus that scrapes the agent, with the alert rules of the examples.

use crate::TWO;
use crate::node::{Node, request};
use crate::support::{artefacts, skip};
use serde_json::Value;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A Prometheus server. It is killed when this is dropped.
struct Server {
    child: Child,
    folder: TempDir,
}

impl Server {
    /// Starts a server that scrapes an agent each second. If there is no Prometheus, skips with the reason and returns `None`.
    fn start(node: &Node) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let rules = artefacts::repository().join("examples/agent/alerts.yaml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: gpuslice\n    honor_labels: true\n    static_configs: [{{ targets: [\"{}\"] }}]\n",
            rules.display(),
            node.address()
        );
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let started = Command::new("prometheus")
            .args([
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--web.listen-address=127.0.0.1:0",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        match started {
            Ok(child) => Some(Self { child, folder }),
            Err(_) => {
                skip("a scrape by Prometheus: there is none; to mend it: apt-get install prometheus");
                None
            }
        }
    }

    /// Returns the address that the server has chosen, once it listens.
    fn address(&self) -> Option<SocketAddr> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        log.split_once("\"Listening on\" address=")?.1.split_ascii_whitespace().next()?.parse().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _waited_for = self.child.wait();
    }
}

fn asked(address: SocketAddr, path: &str) -> Value {
    let text = format!("GET {path} HTTP/1.0\r\nHost: prometheus\r\n\r\n");
    let answer = request(address, &text);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("this is JSON")
}

/// Returns the alert rules: name, health and state.
fn rules(address: SocketAddr) -> Vec<(String, String, String)> {
    let answer = asked(address, "/api/v1/rules");
    let rules = answer["data"]["groups"][0]["rules"].as_array().expect("there are rules").clone();
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap_or_default().to_owned();
    rules.iter().map(|rule| (text(rule, "name"), text(rule, "health"), text(rule, "state"))).collect()
}

#[test]
fn prometheus_takes_the_metrics_and_the_rules() {
    let mut node = Node::start(TWO);
    let Some(server) = Server::start(&node) else { return };
    let address = node.until("Prometheus listens", |_| server.address());
    node.until("Prometheus is ready", |_| {
        let answer = request(address, "GET /-/ready HTTP/1.0\r\nHost: prometheus\r\n\r\n");
        (answer.status == 200).then_some(())
    });
    node.until("a scrape", |_| {
        let target = asked(address, "/api/v1/targets")["data"]["activeTargets"][0].clone();
        assert_eq!(target["lastError"].as_str().unwrap_or_default(), "", "{target}");
        (target["health"] == "up").then_some(())
    });
    let query = "/api/v1/query?query=gpuslice_slice_memory_limit_bytes%7Bslot%3D%22a%22%7D";
    let series = node.until("a series", |_| asked(address, query)["data"]["result"].get(0).cloned());
    assert_eq!(series["value"][1], (256_u64 << 20).to_string(), "{series}");
    let of = |name: &str, rules: &[(String, String, String)]| {
        rules.iter().find(|rule| rule.0 == name).expect("there is such a rule").2.clone()
    };
    node.until("all rules are right and silent", |_| {
        let rules = rules(address);
        assert!(rules.iter().all(|(_, health, _)| health != "err"), "{rules:?}");
        let all = rules.iter().all(|(_, health, state)| health == "ok" && state == "inactive");
        all.then_some(())
    });
    node.end(libc::SIGKILL);
    node.until("the silence of the agent is seen", |_| {
        (of("GpusliceAgentSilent", &rules(address)) == "pending").then_some(())
    });
}
