//! Property test of the ledger. Bindings, resizes, ends and lists come in random order, and changes arrive late.

use gpuslice_kubernetes::api::{Metadata, Node, Pod};
use gpuslice_kubernetes::extender::{Ledger, Pending};
use gpuslice_kubernetes::objects::{ALLOC, Alloc, INVENTORY, Part, Request};
use gpuslice_kubernetes::placement::Order;
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

/// GPUs of each node.
const GPUS: [usize; 2] = [1, 2];
/// Memory of each GPU.
const MIB: u64 = 12;

/// Answer of the apiserver to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Refused,
    /// Neither the write nor its answer arrives.
    Lost,
}

#[derive(Debug, Clone)]
enum Step {
    Create {
        pod: usize,
        request: Request,
    },
    Begin {
        pod: usize,
        node: usize,
    },
    Finish {
        pod: usize,
        answer: Answer,
    },
    Resize {
        pod: usize,
        mem_mib: u64,
        core: u32,
        answer: Answer,
    },
    End {
        pod: usize,
    },
    Delete {
        pod: usize,
    },
    /// A node is added, or removed if it exists.
    Node {
        node: usize,
    },
    /// The extender receives this many changes.
    Tell {
        count: usize,
    },
    /// The extender requests a list of all objects.
    Ask,
    /// The extender receives the requested list.
    Listed,
}

/// A change that the extender has not received yet.
#[derive(Debug, Clone)]
enum News {
    Pod(Pod),
    PodGone(String),
    Node(Node),
    NodeGone(String),
}

/// A list that the extender has requested and not received yet.
#[derive(Debug)]
struct List {
    asked: Instant,
    pods: Vec<Pod>,
    nodes: Vec<Node>,
    /// True if the extender had received all changes before the list was requested.
    was_told: bool,
}

#[derive(Debug, Default)]
struct World {
    ledger: Ledger,
    /// Pods of the apiserver, and their requests.
    pods: BTreeMap<usize, (Pod, Request)>,
    nodes: BTreeSet<usize>,
    news: VecDeque<News>,
    list: Option<List>,
    /// Node, parts and start of the bindings that are under way, by the pod's UID.
    bindings: BTreeMap<String, (usize, Vec<Part>, Instant)>,
    /// UIDs of pods with a binding that was lost.
    unsure: BTreeSet<String>,
    /// Pods with a resize that was lost.
    unsure_sizes: BTreeSet<usize>,
    made: usize,
    /// Version of the last change.
    version: usize,
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn node(number: usize) -> Node {
    let gpu = |gpu| json!({"uuid": format!("GPU-{number}-{gpu}"), "model": "", "memMiB": MIB, "core": 100, "healthy": true});
    let gpus: Vec<_> = (0..GPUS[number]).map(gpu).collect();
    let text = json!({"v": 1, "driver": "", "gpus": gpus}).to_string();
    let annotations = BTreeMap::from([(INVENTORY.to_owned(), text)]);
    Node { metadata: Metadata { name: name(number), annotations, ..Metadata::default() }, ..Node::default() }
}

/// Writes parts into the annotation of a pod.
fn give(pod: &mut Pod, node: &str, parts: &[Part]) {
    let alloc =
        json!({"v": 1, "uid": pod.metadata.uid, "node": node, "gen": 1, "at": "", "c": {"main": parts}});
    pod.metadata.annotations.insert(ALLOC.to_owned(), alloc.to_string());
}

/// Returns the parts of a pod if it is bound and has not ended.
fn parts(pod: &Pod) -> Vec<Part> {
    let is_there = pod.spec.node_name.is_some() && !pod.is_ended();
    let text = pod.metadata.annotations.get(ALLOC).filter(|_| is_there);
    text.map_or_else(Vec::new, |text| Alloc::parse(text).unwrap().parts().cloned().collect())
}

impl World {
    fn is_living(&self, uid: &str) -> bool {
        self.pods.values().any(|(pod, _)| pod.metadata.uid == uid && !pod.is_ended())
    }

    /// Changes a pod of the apiserver.
    fn change(&mut self, pod: usize, change: impl FnOnce(&mut Pod)) {
        if let Some((found, _)) = self.pods.get_mut(&pod) {
            change(found);
            self.version += 1;
            found.metadata.resource_version = self.version.to_string();
            self.news.push_back(News::Pod(found.clone()));
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Create { pod, request } => self.create(pod, request),
            Step::Begin { pod, node } => self.begin(pod, node),
            Step::Finish { pod, answer } => self.finish(pod, answer),
            Step::Resize { pod, mem_mib, core, answer } => self.resize(pod, mem_mib, core, answer),
            Step::End { pod } => self.change(pod, |pod| pod.status.phase = "Failed".to_owned()),
            Step::Delete { pod } => {
                if let Some((gone, _)) = self.pods.remove(&pod) {
                    self.news.push_back(News::PodGone(gone.metadata.uid));
                }
            }
            Step::Node { node: number } => {
                let is_gone = self.nodes.remove(&number);
                let news = if is_gone { News::NodeGone(name(number)) } else { News::Node(node(number)) };
                let _known = is_gone || self.nodes.insert(number);
                self.news.push_back(news);
            }
            Step::Tell { count } if self.list.is_none() => (0..count).for_each(|_| self.tell()),
            Step::Tell { .. } => {}
            Step::Ask => self.ask(),
            Step::Listed => self.listed(),
        }
    }

    fn create(&mut self, pod: usize, request: Request) {
        if self.pods.contains_key(&pod) {
            return;
        }
        self.made += 1;
        let mut new = Pod::default();
        new.metadata.uid = format!("uid-{}", self.made);
        self.news.push_back(News::Pod(new.clone()));
        self.pods.insert(pod, (new, request));
    }

    fn begin(&mut self, pod: usize, node: usize) {
        let Some((found, request)) = self.pods.get(&pod) else { return };
        let uid = found.metadata.uid.clone();
        if found.spec.node_name.is_some() || found.is_ended() || self.bindings.contains_key(&uid) {
            return;
        }
        let pending = Pending { uid: &uid, priority: 0, requests: std::slice::from_ref(request) };
        let Ok(placed) = self.ledger.place(&name(node), pending, Order::Binpack) else { return };
        let parts: Vec<Part> = placed.into_values().flatten().collect();
        let begun = self.ledger.begin(&uid, &name(node), &parts);
        // The annotation is written at once, so earlier bindings cannot bind the pod.
        self.ledger.give_up_others(&uid, begun);
        self.unsure.remove(&uid);
        self.bindings.insert(uid, (node, parts, begun));
    }

    fn finish(&mut self, pod: usize, answer: Answer) {
        let Some((found, _)) = self.pods.get(&pod) else { return };
        let uid = found.metadata.uid.clone();
        let is_ended = found.is_ended();
        let Some((node, parts, begun)) = self.bindings.remove(&uid) else { return };
        match answer {
            Answer::Done if !is_ended => self.change(pod, |pod| {
                give(pod, &name(node), &parts);
                pod.spec.node_name = Some(name(node));
            }),
            Answer::Done | Answer::Refused => self.ledger.give_up(&uid, begun),
            Answer::Lost => drop(self.unsure.insert(uid)),
        }
    }

    /// Resizes a pod, if the extender has received all changes of it.
    fn resize(&mut self, pod: usize, mem_mib: u64, core: u32, answer: Answer) {
        let Some((found, _)) = self.pods.get(&pod) else { return };
        let (uid, mut parts) = (found.metadata.uid.clone(), parts(found));
        let is_news = |news: &News| matches!(news, News::Pod(pod) if pod.metadata.uid == uid);
        let is_told = self.list.as_ref().is_none_or(|list| list.was_told) && !self.news.iter().any(is_news);
        let Some(node) = found.spec.node_name.clone().filter(|_| is_told && !parts.is_empty()) else {
            return;
        };
        parts.iter_mut().for_each(|part| (part.mem_mib, part.core) = (mem_mib, core));
        if self.ledger.resize(&node, &uid, &parts).is_err() {
            return;
        }
        let version = found.metadata.resource_version.clone();
        match answer {
            Answer::Done => self.change(pod, |pod| give(pod, &node, &parts)),
            Answer::Refused => self.ledger.keep_size(&uid),
            Answer::Lost => {
                self.ledger.unanswered(&uid, &version);
                self.unsure_sizes.insert(pod);
            }
        }
    }

    fn tell(&mut self) {
        match self.news.pop_front() {
            Some(News::Pod(pod)) => self.ledger.pod(&pod),
            Some(News::PodGone(uid)) => self.ledger.pod_gone(&uid),
            Some(News::Node(node)) => self.ledger.node(&node),
            Some(News::NodeGone(name)) => self.ledger.node_gone(&name),
            None => {}
        }
    }

    fn ask(&mut self) {
        let pods = self.pods.values().map(|(pod, _)| pod.clone()).collect();
        let nodes = self.nodes.iter().map(|number| node(*number)).collect();
        let was_told = self.news.is_empty() && self.list.as_ref().is_none_or(|list| list.was_told);
        self.list = Some(List { asked: Instant::now(), pods, nodes, was_told });
        // The list contains these changes.
        self.news.clear();
    }

    fn listed(&mut self) {
        let Some(List { asked, pods, nodes, .. }) = self.list.take() else { return };
        self.ledger.keep_nodes(&nodes);
        nodes.iter().for_each(|node| self.ledger.node(node));
        self.ledger.keep_only(&pods, asked);
        pods.iter().for_each(|pod| self.ledger.pod(pod));
    }

    /// Returns a GPU whose pods have more than the GPU. Pods whose bindings are under way count too.
    fn exceeded(&self) -> Option<String> {
        let mut sums: BTreeMap<String, (u64, u32)> = BTreeMap::new();
        let under_way = self.bindings.iter().filter(|(uid, _)| self.is_living(uid));
        let under_way = under_way.flat_map(|(_, (_, parts, _))| parts.clone());
        for part in self.pods.values().flat_map(|(pod, _)| parts(pod)).chain(under_way) {
            let sum = sums.entry(part.uuid).or_default();
            *sum = (sum.0 + part.mem_mib, sum.1 + part.core);
        }
        let is_exceeded = |(_, (memory, core)): &(String, (u64, u32))| *memory > MIB || *core > 100;
        sums.into_iter().find(is_exceeded).map(|(uuid, sum)| format!("{uuid}: {sum:?}"))
    }

    /// Ends all bindings and resizes under way, and sends all changes to the extender.
    fn settle(&mut self) {
        for (uid, (.., begun)) in std::mem::take(&mut self.bindings) {
            self.ledger.give_up(&uid, begun);
        }
        // A change of the pod ends the doubt about its size.
        for pod in std::mem::take(&mut self.unsure_sizes) {
            self.change(pod, |_| {});
        }
        let is_unsure = |(pod, _): &(Pod, Request)| self.unsure.contains(&pod.metadata.uid);
        let unsure: Vec<usize> =
            self.pods.iter().filter(|(_, pod)| is_unsure(pod)).map(|(number, _)| *number).collect();
        unsure.into_iter().for_each(|pod| self.take(Step::Delete { pod }));
        self.listed();
        while !self.news.is_empty() {
            self.tell();
        }
    }

    /// Returns the ledger of an extender that has just started.
    fn rebuilt(&self) -> Ledger {
        let mut ledger = Ledger::default();
        self.nodes.iter().for_each(|number| ledger.node(&node(*number)));
        self.pods.values().for_each(|(pod, _)| ledger.pod(pod));
        ledger
    }
}

fn request(slices: u64, mem_mib: u64, core: u32) -> Request {
    Request { container: "main".to_owned(), slices, mem_mib, core, ..Request::default() }
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![4 => Just(Answer::Done), 1 => Just(Answer::Refused), 1 => Just(Answer::Lost)]
}

fn step() -> impl Strategy<Value = Step> {
    let (pod, node) = (|| 0..6_usize, || 0..GPUS.len());
    prop_oneof![
        3 => (pod(), 1..3_u64, 1..9_u64, 0..60_u32)
            .prop_map(|(pod, slices, mem_mib, core)| Step::Create { pod, request: request(slices, mem_mib, core) }),
        4 => (pod(), node()).prop_map(|(pod, node)| Step::Begin { pod, node }),
        4 => (pod(), answer()).prop_map(|(pod, answer)| Step::Finish { pod, answer }),
        2 => (pod(), 1..=MIB, 0..=100_u32, answer())
            .prop_map(|(pod, mem_mib, core, answer)| Step::Resize { pod, mem_mib, core, answer }),
        1 => pod().prop_map(|pod| Step::End { pod }),
        1 => pod().prop_map(|pod| Step::Delete { pod }),
        1 => node().prop_map(|node| Step::Node { node }),
        4 => (1..4_usize).prop_map(|count| Step::Tell { count }),
        1 => Just(Step::Ask),
        1 => Just(Step::Listed),
    ]
}

/// Begins a second binding of a pod while the first one is unanswered. Until the second binding has changed the pod, the first
/// one may still bind it.
#[test]
fn a_second_binding_of_a_pod_leaves_the_room_of_the_first_until_it_has_changed_the_pod() {
    let mut ledger = Ledger::default();
    [0, 1].into_iter().for_each(|number| ledger.node(&node(number)));
    let part = |gpu: &str| [Part { uuid: gpu.to_owned(), mem_mib: MIB, core: 0 }];
    let has_room = |ledger: &Ledger, number: usize| {
        let asked = request(u64::try_from(GPUS[number]).unwrap(), MIB, 0);
        let pending = Pending { uid: "other", priority: 0, requests: std::slice::from_ref(&asked) };
        ledger.place(&name(number), pending, Order::Binpack).is_ok()
    };
    let rooms = |ledger: &Ledger| [0, 1].map(|number| has_room(ledger, number));
    let first = ledger.begin("pod", &name(0), &part("GPU-0-0"));
    let second = ledger.begin("pod", &name(1), &part("GPU-1-0"));
    assert_eq!(rooms(&ledger), [false, false]);
    let mut refused = ledger.clone();
    refused.give_up("pod", second);
    assert_eq!(rooms(&refused), [false, true]);
    ledger.give_up_others("pod", second);
    assert_eq!(rooms(&ledger), [true, false]);
    ledger.give_up("pod", first);
    assert_eq!(rooms(&ledger), [true, false]);
    ledger.give_up("pod", second);
    assert_eq!((rooms(&ledger), ledger.count()), ([true, true], 0));
}

/// The write of a pod's new size is lost while the pod has version 1. The pod changes before the extender learns of the loss,
/// or after that.
#[test]
fn a_lost_size_counts_until_the_pod_has_another_version() {
    let bound = |version: u32| {
        let mut pod = Pod::default();
        (pod.metadata.uid, pod.metadata.resource_version) = ("pod".to_owned(), version.to_string());
        pod.spec.node_name = Some(name(0));
        give(&mut pod, &name(0), &[Part { uuid: "GPU-0-0".to_owned(), mem_mib: 4, core: 0 }]);
        pod
    };
    for is_before in [false, true] {
        let mut ledger = Ledger::default();
        ledger.node(&node(0));
        ledger.pod(&bound(1));
        let parts = [Part { uuid: "GPU-0-0".to_owned(), mem_mib: 8, core: 0 }];
        ledger.resize(&name(0), "pod", &parts).unwrap();
        let allocated = |ledger: &Ledger| ledger.memory()[0].allocated;
        if is_before {
            ledger.pod(&bound(2));
            assert_eq!(allocated(&ledger), 8, "the write is under way");
            ledger.unanswered("pod", "1");
        } else {
            ledger.unanswered("pod", "1");
            ledger.pod(&bound(1));
            assert_eq!(allocated(&ledger), 8, "the write may still arrive");
            ledger.pod(&bound(2));
        }
        assert_eq!(allocated(&ledger), 4, "is_before: {is_before}");
    }
}

proptest! {
    /// Checks after each step that no GPU is given away twice. At the end, checks that the ledger has lost nothing: it answers
    /// like a ledger that is rebuilt from the objects.
    #[test]
    fn no_order_of_events_gives_a_gpu_away_twice_or_loses_a_part(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::default();
        for number in 0..GPUS.len() {
            world.take(Step::Node { node: number });
        }
        for step in steps {
            let said = format!("{step:?}");
            world.take(step);
            prop_assert_eq!(world.exceeded(), None, "after {}", said);
        }
        world.settle();
        let rebuilt = world.rebuilt();
        prop_assert_eq!(world.ledger.count(), rebuilt.count());
        for (number, (slices, mem_mib)) in (0..GPUS.len()).flat_map(|number| [1, 2].map(|slices| (number, slices)))
            .flat_map(|(number, slices)| (1..=MIB).map(move |mem_mib| (number, (slices, mem_mib)))) {
            for core in [0, 20, 50, 80, 100] {
                let asked = request(slices, mem_mib, core);
                let pending = Pending { uid: "new", priority: 0, requests: std::slice::from_ref(&asked) };
                let [has, should] = [&world.ledger, &rebuilt]
                    .map(|ledger| ledger.place(&name(number), pending, Order::Binpack));
                prop_assert_eq!(has, should);
            }
        }
    }
}
