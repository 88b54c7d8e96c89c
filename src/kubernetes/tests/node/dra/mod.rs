//! Tests the driver of dynamic resources with a kubelet and an apiserver that answer like real ones, over real sockets.

mod devices;
mod kills;
mod manager;
mod modes;
mod node;

use crate::kubelet::until;
use node::{NODE, Node, device, result, uuid};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::slice::from_ref;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubelet_finds_the_driver_and_finds_it_again_where_the_sockets_were_removed() {
    let node = Node::start(1).await;
    for socket in [node.manager.registration(), node.manager.socket()] {
        let info = node.manager.registers().await;
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "gpuslice.dev"));
        assert_eq!(info.endpoint, node.manager.socket().display().to_string());
        let services = ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];
        assert_eq!(info.supported_versions, services);
        fs::remove_file(&socket).unwrap();
        until("the socket is there again", || socket.exists()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_a_client_whose_authority_is_a_path_is_prepared() {
    let node = Node::start(1).await;
    let claim = node.claim("a", 0, "10Gi", 40);
    let answer = node.manager.prepare_by_path(&claim).await;
    assert_eq!((answer.error.as_str(), answer.devices.len()), ("", 1));
    assert!(node.environment(&claim).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_becomes_one_slice_with_its_allocation_at_each_preparation() {
    let node = Node::start(2).await;
    let claim = node.claim("a", 1, "10Gi", 40);
    let first = node.manager.prepare(from_ref(&claim)).await.unwrap();
    assert_eq!(first[&claim.uid].error, "");
    let [given] = first[&claim.uid].devices.as_slice() else { panic!("{first:?}") };
    assert_eq!((given.pool_name.as_str(), given.device_name.as_str()), (NODE, device(1).as_str()));
    assert_eq!(given.request_names, ["main"]);
    assert_eq!(given.cdi_device_ids, [format!("gpuslice.dev/slice=claim-{}", claim.uid)]);
    assert_eq!(given.share_id.as_deref(), Some("share-main"));
    let environment = node.environment(&claim).unwrap();
    for item in [
        format!("GPU_MEM_LIMIT={}={}", uuid(1), 10_u64 << 30),
        format!("GPU_CORE_PERCENT={}=40", uuid(1)),
        format!("NVIDIA_VISIBLE_DEVICES={}", uuid(1)),
    ] {
        assert!(environment.contains(&item), "{environment:?}");
    }
    let region = node.places().region(&format!("claim-{}", claim.uid).parse().unwrap());
    let inode = fs::metadata(&region).unwrap().ino();
    // A restart of the machine empties the folder of specifications and the memory. The test removes only the specification.
    assert_eq!(node.manager.prepare(from_ref(&claim)).await.unwrap(), first);
    fs::remove_dir_all(node.places().cdi).unwrap();
    assert_eq!(node.manager.prepare(from_ref(&claim)).await.unwrap(), first);
    assert_eq!(node.environment(&claim), Some(environment));
    assert_eq!(fs::metadata(&region).unwrap().ino(), inode, "containers live in that region");
    for _twice in 0..2 {
        node.manager.unprepare(from_ref(&claim)).await.unwrap();
        assert!(node.has_only(&[]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_several_devices_is_one_slice_for_each_of_its_requests() {
    let node = Node::start(2).await;
    let results = [
        result("one", 0, Some(("2Gi", 10))),
        result("two/large", 1, Some(("3Gi", 0))),
        result("three", 0, Some(("1Gi", 20))),
    ];
    let claim = node.allocated("a", &results);
    let answer = node.manager.prepare(from_ref(&claim)).await.unwrap();
    let devices = &answer[&claim.uid].devices;
    let requests: Vec<&str> = devices.iter().map(|device| device.request_names[0].as_str()).collect();
    assert_eq!(requests, ["one", "two", "three"]);
    assert!(devices.iter().all(|device| device.cdi_device_ids == devices[0].cdi_device_ids));
    let environment = node.environment(&claim).unwrap();
    let bytes = 3_u64 << 30;
    let limit = format!("GPU_MEM_LIMIT={}={bytes},{}={bytes}", uuid(0), uuid(1));
    assert!(environment.contains(&limit), "{environment:?}");
    assert!(environment.contains(&format!("GPU_CORE_PERCENT={}=30", uuid(0))), "{environment:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_fails_says_why_and_the_others_of_the_call_do_not_fail() {
    let node = Node::start(2).await;
    node.has_gpus(2, 1);
    let good = node.claim("good", 0, "1Gi", 10);
    let lost = node.claim("lost", 1, "1Gi", 10);
    let mut missing = good.clone();
    (missing.name, missing.uid) = ("missing".to_owned(), "u-missing".to_owned());
    let mut other = node.claim("other", 0, "1Gi", 10);
    other.uid = "u-before".to_owned();
    let mut strange = node.claim("strange", 0, "1Gi", 10);
    strange.uid = "../../x".to_owned();
    node.apiserver.change_claim("ns/strange", |claim| claim["metadata"]["uid"] = json!("../../x"));
    let waiting = node.claim("waiting", 0, "1Gi", 10);
    node.apiserver.change_claim("ns/waiting", |claim| claim["status"] = json!({}));
    let elsewhere = node.claim("elsewhere", 0, "1Gi", 10);
    let pool = "/status/allocation/devices/results/0/pool";
    node.apiserver.change_claim("ns/elsewhere", |claim| *claim.pointer_mut(pool).unwrap() = json!("n2"));
    let expected = [
        (&good, ""),
        (&lost, "does not work"),
        (&missing, "there is no claim ns/missing"),
        (&other, "and \"u-before\" is asked for"),
        (&strange, "a slice's name"),
        (&waiting, "has no device of the node n1"),
        (&elsewhere, "has no device of the node n1"),
    ];
    let all: Vec<_> = expected.iter().map(|(claim, _)| (*claim).clone()).collect();
    // The driver reads the inventory again at each call.
    let answer = node.manager.prepare(&all).await.unwrap();
    for (claim, has) in expected {
        let answer = &answer[&claim.uid];
        assert_eq!(answer.error.is_empty(), has.is_empty(), "{}: {}", claim.name, answer.error);
        assert!(answer.error.contains(has), "{}", answer.error);
    }
    assert!(node.has_only(from_ref(&good)));
    // The driver also accepts that the kubelet takes back claims that it never prepared.
    node.manager.unprepare(&[lost, missing, strange, waiting]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_apiserver_claims_wait_and_are_taken_back() {
    let node = Node::start(1).await;
    let [known, new] = ["known", "new"].map(|name| node.claim(name, 0, "1Gi", 10));
    node.manager.prepare(from_ref(&known)).await.unwrap();
    node.apiserver.fail(true);
    assert!(node.manager.refused(&new).await.contains("the apiserver refuses it (503)"));
    assert!(node.environment(&known).is_some(), "no answer is no reason to remove it");
    node.manager.unprepare(from_ref(&known)).await.unwrap();
    assert!(node.has_only(&[]));
    node.apiserver.fail(false);
    node.manager.prepare(from_ref(&new)).await.unwrap();
    assert!(node.environment(&new).is_some());
}

/// The containers of a claim can write the folder of its region. The driver must not replace a region that they removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_region_a_container_has_removed_gives_no_second_budget() {
    let node = Node::start(1).await;
    let claim = node.claim("a", 0, "1Gi", 10);
    node.manager.prepare(from_ref(&claim)).await.unwrap();
    fs::remove_file(node.places().region(&format!("claim-{}", claim.uid).parse().unwrap())).unwrap();
    let why = node.manager.refused(&claim).await;
    assert!(why.contains("was removed while a container may have it"), "{why}");
    node.manager.unprepare(from_ref(&claim)).await.unwrap();
    node.manager.prepare(from_ref(&claim)).await.unwrap();
    assert!(node.environment(&claim).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_claims_that_are_gone_are_removed_and_those_of_others_stay() {
    let node = Node::start(1).await;
    let [deleted, anew, freed, living] =
        ["deleted", "anew", "freed", "living"].map(|name| node.claim(name, 0, "1Gi", 10));
    let all = [deleted, anew, freed, living.clone()];
    node.manager.prepare(&all).await.unwrap();
    assert!(node.has_only(&all));
    node.kill();
    node.apiserver.delete_claim("ns/deleted");
    node.apiserver.change_claim("ns/anew", |claim| claim["metadata"]["uid"] = json!("another"));
    node.apiserver.change_claim("ns/freed", |claim| claim["status"]["allocation"] = Value::Null);
    // Stray files of a claim whose making ended before its record, and files of a slice of the configuration.
    let stray = node.places().slots().join("claim-cut-off/conf");
    fs::create_dir_all(&stray).unwrap();
    let foreign = node.places().slots().join("train");
    fs::create_dir_all(&foreign).unwrap();
    node.begin();
    until("one is left", || !stray.exists() && node.slices()[0].len() == 1).await;
    assert!(node.environment(&living).is_some());
    assert!(foreign.exists());
    fs::remove_dir(foreign).unwrap();
    until("nothing else is left", || node.has_only(from_ref(&living))).await;
}
