//! Checks the answers to clients of the port.

use crate::node::Node;
use crate::support::artefacts;
use crate::support::container::may_have_containers;
use crate::{MIB, TWO, join, schema, witness};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;

#[test]
fn documents_follow_their_schemas() {
    let mut node = Node::start(TWO);
    let member = join(&node, "a");
    node.until("there is a history", |node| {
        node.json("/api/v1/history")["lines"].as_array().is_some_and(|lines| !lines.is_empty()).then_some(())
    });
    for name in ["gpus", "slices", "history"] {
        let schema = artefacts::repository().join(format!("docs/reference/{name}.schema.json"));
        let schema: Value = serde_json::from_slice(&fs::read(schema).unwrap()).unwrap();
        let document = node.json(&format!("/api/v1/{name}"));
        assert_eq!(schema::faults(&document, &schema), Vec::<String>::new());
        let list = if name == "history" { "lines" } else { name };
        let mut other = document.clone();
        other[list][0]["surprise"] = 1.into();
        assert!(!schema::faults(&other, &schema).is_empty(), "{name}: a field that is not in the schema");
        let mut other = document;
        other[list][0]["uuid"] = 1.into();
        other[list][0].as_object_mut().unwrap().remove("name");
        assert!(!schema::faults(&other, &schema).is_empty(), "{name}: another kind, or a field less");
    }
    drop(member);
}

#[test]
fn the_page_shows_slices_and_overcommitment_and_loads_nothing_from_elsewhere() {
    let node = Node::start(
        "[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"768MiB\"\ncores = 60\n[[slices]]\nname = \"b\"\ngpu = 0\nmemory = \"768MiB\"\ncores = 60\n",
    );
    let answer = node.get("/");
    assert!(answer.head.contains("content-type: text/html; charset=utf-8"), "{}", answer.head);
    assert!(answer.head.contains("default-src 'none'"), "{}", answer.head);
    for words in [
        "data-slice=\"a\"",
        "limit 768MiB",
        "limit 60% fixed",
        "memory limits of 2 slices sum to 1536MiB of 1GiB",
        "shares of 2 slices sum to 120%",
    ] {
        assert!(answer.body.contains(words), "{words} is missing in\n{}", answer.body);
    }
    assert!(!answer.body.contains("://"), "{}", answer.body);
    for (path, kind) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        assert!(answer.body.contains(path));
        let part = node.get(path);
        assert!(part.status == 200 && part.head.contains(kind), "{part:?}");
    }
}

#[test]
fn clients_cannot_ask_for_more_than_is_allowed() {
    let limits = "[web]\nlisten = \"127.0.0.1:0\"\nrequests_per_second = 5\nconnections = 2\n";
    let node = Node::start(limits);
    assert_eq!(
        node.request(
            "POST /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        .status,
        405
    );
    assert_eq!(node.get("/nowhere").status, 404);
    let long =
        format!("GET / HTTP/1.1\r\nHost: node\r\nX: {}\r\nConnection: close\r\n\r\n", "x".repeat(64 << 10));
    assert_eq!(node.request(&long).status, 431);
    let answers: Vec<u16> = (0..40).map(|_| node.get("/page.css").status).collect();
    assert!(answers.contains(&429) && answers.contains(&200), "{answers:?}");
    // A supervisor asks this page, so the limit of requests does not count for it.
    assert!((0..10).all(|_| node.get("/healthz").status == 200));
    // The agent closes the connections of clients that send nothing, so that others get their answers.
    let silent = [node.connect(), node.connect(), node.connect()];
    assert_eq!(node.get("/healthz").status, 200);
    drop(silent);
}

/// Requests from which hostile ones are made.
const REQUESTS: [&str; 5] = [
    "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n",
    "GET /api/v1/history?gpu=x&since=-1 HTTP/1.1\r\nHost: node\r\nAccept: */*\r\n\r\nGET / HTTP/1.1\r\nHost: node\r\n\r\n",
    "POST /api/v1/slices HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "GET http://node/healthz HTTP/1.0\r\nContent-Length: 18446744073709551615\r\nUpgrade: h2c\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

/// A request with some bytes replaced, inserted or removed.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<Index>(), 0..3_u8, any::<u8>(), 1..64_usize);
    (select(&REQUESTS[..]), prop::collection::vec(edit, 0..6)).prop_map(|(request, edits)| {
        let mut bytes = request.as_bytes().to_vec();
        for (place, kind, byte, count) in edits {
            let at = place.index(bytes.len() + 1);
            let end = if kind == 1 { at } else { (at + count).min(bytes.len()) };
            let new = if kind == 2 { 0 } else { count };
            bytes.splice(at..end, std::iter::repeat_n(byte, new));
        }
        bytes
    })
}

#[test]
fn hostile_requests_are_refused_and_leave_nothing_behind() {
    let mut node = Node::start("[web]\nlisten = \"127.0.0.1:0\"\nrequests_per_second = 10000\n");
    let descriptors = |node: &Node| fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap().count();
    assert_eq!(node.get("/healthz").status, 200);
    let before = descriptors(&node);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() });
    let outcome = runner.run(&hostile(), |request| {
        let mut stream = node.connect();
        let _may_be_closed = stream.write_all(&request);
        let _may_be_closed_too = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let may_be_reset =
            read.as_ref().err().is_none_or(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        prop_assert!(may_be_reset, "{read:?}");
        let status = answer.strip_prefix(b"HTTP/1.1 ").or_else(|| answer.strip_prefix(b"HTTP/1.0 "));
        let status = status.and_then(|rest| rest.first());
        prop_assert!(
            answer.is_empty() || status.is_some_and(|first| (b'2'..=b'4').contains(first)),
            "{answer:?}"
        );
        Ok(())
    });
    outcome.unwrap_or_else(|why| panic!("{why}\nthe agent said: {}", node.log()));
    node.scrape();
    node.until("its connections are closed", |node| (descriptors(node) <= before).then_some(()));
}

#[test]
fn arguments_of_commands_are_told_where_the_configuration_says_so() {
    if !may_have_containers() {
        return;
    }
    for (key, told) in [("", "witness"), ("arguments = true\n", "witness 16777216")] {
        let mut node = Node::start(&format!("{TWO}[web]\nlisten = \"127.0.0.1:0\"\n{key}"));
        let _program = witness(&node, "a", 16 * MIB);
        let command = node.until("its process is seen", |node| {
            let slice = node.slice(|slice| slice["name"] == "a")?;
            slice["processes"][0]["command"].as_str().map(str::to_owned)
        });
        let ends_so = command == told || command.ends_with(&format!("/{told}"));
        assert!(ends_so && node.get("/").body.contains(told), "{command}");
    }
}
