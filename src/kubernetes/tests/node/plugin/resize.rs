//! Tests that running containers get the parts that the extender has changed.

use super::node::{NODE, Node, alloc, uuid};
use crate::kubelet::{Container, until};
use gpuslice_region::{DeviceRequest, Limits, Member, Trust, Uuid};

/// Makes a process that joins the slice of the container on the GPU with number 1.
fn process(node: &Node, container: &Container) -> Member {
    let slot = node.kubelet.with(|state| state.named[container][0].clone());
    let slot = slot.strip_prefix("gpuslice.dev/slice=").unwrap().parse().unwrap();
    let mut number = [0; 16];
    number[3] = 1;
    let limits = Limits { memory: Some(4096 << 20), cores_permille: 300, ..Limits::NONE };
    let wanted = [DeviceRequest { uuid: Uuid(number), total: 16 << 30, limits }];
    Member::join(&node.places().region(&slot), Trust::AnyOwner, &wanted).unwrap().0
}

/// Returns the limits of the process: mebibytes, and thousandths of time.
fn limits(process: &Member) -> (Option<u64>, u32) {
    let limits = process.limits(process.devices()[0].device);
    (limits.memory.map(|bytes| bytes >> 20), limits.cores_permille)
}

/// Changes the parts of a pod, as the extender does.
fn change(node: &Node, name: &str, mem_mib: u64, core: u64, generation: u64) {
    let mut changed = alloc(&format!("uid-{name}"), NODE, &[1], mem_mib, core);
    changed["gen"] = generation.into();
    node.apiserver.annotate(&format!("ns/{name}"), &changed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_runs_has_the_new_limits_and_so_has_the_next_one() {
    let node = Node::start_resizing(2).await;
    let pod = node.placed("a", &[1], 4096, 30);
    node.kubelet.run(&pod, 1).await;
    let process = process(&node, &pod);
    assert_eq!(limits(&process), (Some(4096), 300));
    change(&node, "a", 8192, 60, 2);
    until("the process has them", || limits(&process) == (Some(8192), 600)).await;
    until("its user is told", || !node.apiserver.events("Resized").is_empty()).await;
    let told = node.apiserver.events("Resized");
    assert_eq!(told, [format!("container main has 8192 MiB and 60 % of the time of {}", uuid(1))]);
    // The scheduler subtracts 4096 MiB and 30 %, for which the pod has asked.
    let sums = || {
        let capacity = node.apiserver.node(NODE)["status"]["capacity"].clone();
        (capacity["gpuslice.dev/memory-mib"].clone(), capacity["gpuslice.dev/core-percent"].clone())
    };
    until("the sums are less", || sums() == ("28672".into(), "170".into())).await;
    // A container starts again, with a new agent too.
    node.replace().await;
    node.kubelet.sees(32).await;
    node.kubelet.pre_start(&pod).await.unwrap();
    assert_eq!(node.limit(&pod), Some(8192));
    change(&node, "a", 1024, 0, 3);
    until("no share is no limit", || limits(&process) == (Some(1024), 1000)).await;
    // The agent writes the region first, and then the specification for the next container.
    until("the next container has it", || node.limit(&pod) == Some(1024)).await;
    until("the sums are more", || sums() == ("35840".into(), "230".into())).await;
    node.kubelet.forget(&pod);
    node.apiserver.delete("ns/a");
    until("the sums are those of the GPUs", || sums() == ("32768".into(), "200".into())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_gpu_has_waits_until_another_pod_is_smaller() {
    let node = Node::start_resizing(2).await;
    let (first, second) = (node.placed("a", &[1], 8192, 30), node.placed("b", &[1], 8192, 30));
    for pod in [&first, &second] {
        node.kubelet.run(pod, 1).await;
    }
    change(&node, "a", 12_288, 30, 2);
    until("it is in the log", || node.log().contains("no room yet: container main has 12288 MiB")).await;
    assert_eq!(node.limit(&first), Some(8192));
    change(&node, "b", 4096, 30, 2);
    until("there is room", || node.limit(&first) == Some(12_288)).await;
    assert_eq!(node.limit(&second), Some(4096));
}

/// Writes annotations that do not fit the slice: a first generation, one of another pod, one with another GPU.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_that_does_not_fit_the_slice_changes_nothing() {
    let node = Node::start_resizing(2).await;
    let pod = node.placed("a", &[1], 4096, 30);
    node.kubelet.run(&pod, 1).await;
    for (uid, host, gpu, generation) in
        [("uid-a", NODE, 1, 1), ("uid-b", NODE, 1, 2), ("uid-a", "n2", 1, 2), ("uid-a", NODE, 0, 2)]
    {
        let mut wrong = alloc(uid, host, &[gpu], 8192, 30);
        wrong["gen"] = generation.into();
        node.apiserver.annotate("ns/a", &wrong);
        node.looks_twice().await;
        assert_eq!(node.limit(&pod), Some(4096), "{wrong}");
    }
}

/// On this node, a tenant may be able to write a later generation itself, because the cluster may lack the admission policies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_key_a_running_container_keeps_its_amounts_and_its_user_gets_one_event() {
    let node = Node::start(2, false).await;
    let pod = node.placed("a", &[1], 4096, 30);
    node.kubelet.run(&pod, 1).await;
    let process = process(&node, &pod);
    for generation in [2, 3] {
        change(&node, "a", 16_384, 100, generation);
        until("its user is told", || !node.apiserver.events("ResizeRefused").is_empty()).await;
        node.looks_twice().await;
        assert_eq!((limits(&process), node.limit(&pod)), ((Some(4096), 300), Some(4096)));
    }
    let told = node.apiserver.events("ResizeRefused");
    assert_eq!(told.len(), 1, "{told:?}");
    let kept = format!("container main has 4096 MiB and 30 % of the time of {}: ", uuid(1));
    assert!(told[0].starts_with(&kept) && told[0].contains("kubernetes.resize = true"), "{told:?}");
    // The container cannot start with these amounts either. It starts again with the amounts for which its pod asks.
    let why = node.kubelet.pre_start(&pod).await.unwrap_err();
    assert!(why.message().contains("kubernetes.resize is off on this node"), "{why}");
    change(&node, "a", 4096, 30, 4);
    node.kubelet.pre_start(&pod).await.unwrap();
    assert_eq!(node.limit(&pod), Some(4096));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_raises_its_limits_has_them_set_back_and_may_lower_them() {
    let node = Node::start(2, false).await;
    let pod = node.placed("a", &[1], 4096, 30);
    node.kubelet.run(&pod, 1).await;
    let process = process(&node, &pod);
    let device = process.devices()[0].device;
    process.set_limits(device, Limits::NONE);
    until("they are set back", || limits(&process) == (Some(4096), 300)).await;
    process.set_limits(device, Limits { memory: Some(1 << 30), cores_permille: 100, ..Limits::NONE });
    node.looks_twice().await;
    assert_eq!(limits(&process), (Some(1024), 100));
}
