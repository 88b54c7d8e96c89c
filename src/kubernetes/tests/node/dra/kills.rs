//! Tests that exactly the prepared claims have files, after any order of calls, restarts and kills.

use super::node::Node;
use crate::kubelet::until;
use gpuslice_kubernetes::grpc::dra::Claim;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::slice::from_ref;
use std::time::Duration;

/// Number of claims that exist at a time.
const CLAIMS: usize = 3;

/// An event on a node. The numbers are the numbers of claims.
#[derive(Debug, Clone)]
enum Event {
    Prepare(usize),
    Unprepare(usize),
    /// The driver is killed `after` microseconds after the kubelet has called it to prepare a claim or to take it back. Then
    /// the kubelet calls again.
    Killed {
        claim: usize,
        prepares: bool,
        after: u64,
    },
    Restart,
    /// The machine restarts: its memory is lost, and the kubelet prepares the claims of the remaining pods again.
    Reboot,
    /// The kubelet has lost its checkpoint, and the pod and its claim are deleted. A new claim has the same name.
    Forgotten(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let claim = 0..CLAIMS;
    let killed = (claim.clone(), any::<bool>(), 0..6000_u64)
        .prop_map(|(claim, prepares, after)| Event::Killed { claim, prepares, after });
    let event = prop_oneof![
        3 => claim.clone().prop_map(Event::Prepare),
        2 => claim.clone().prop_map(Event::Unprepare),
        4 => killed,
        1 => Just(Event::Restart),
        1 => Just(Event::Reboot),
        1 => claim.prop_map(Event::Forgotten),
    ];
    prop::collection::vec(event, 1..12)
}

/// The node, and its expected state.
struct World {
    node: Node,
    claims: Vec<Claim>,
    /// Memory of the prepared claims, in mebibytes.
    prepared: BTreeMap<usize, u64>,
    made: u64,
    cut_off: u32,
}

impl World {
    async fn new() -> Self {
        let node = Node::start(1).await;
        let mut world = Self { node, claims: Vec::new(), prepared: BTreeMap::new(), made: 0, cut_off: 0 };
        for at in 0..CLAIMS {
            let claim = world.make();
            world.claims.insert(at, claim);
        }
        world
    }

    fn make(&mut self) -> Claim {
        self.made += 1;
        self.node.claim(&format!("c{}", self.made), 0, &format!("{}Mi", 300 + self.made), 10)
    }

    async fn call(&self, claim: usize, prepares: bool) -> Result<(), tonic::Status> {
        let claim = from_ref(&self.claims[claim]);
        if prepares {
            let answer = self.node.manager.prepare(claim).await?;
            assert_eq!(answer[&claim[0].uid].error, "");
            return Ok(());
        }
        self.node.manager.unprepare(claim).await
    }

    fn note_done(&mut self, claim: usize, prepares: bool) {
        if prepares {
            let name = &self.claims[claim].name;
            let limit = 300 + name.strip_prefix('c').unwrap().parse::<u64>().unwrap();
            self.prepared.insert(claim, limit);
        } else {
            self.prepared.remove(&claim);
        }
    }

    async fn happens(&mut self, event: &Event) {
        match *event {
            Event::Prepare(claim) => {
                self.call(claim, true).await.unwrap();
                self.note_done(claim, true);
            }
            Event::Unprepare(claim) => {
                self.call(claim, false).await.unwrap();
                self.note_done(claim, false);
            }
            Event::Killed { claim, prepares, after } => {
                let killed = async {
                    tokio::time::sleep(Duration::from_micros(after)).await;
                    self.node.kill();
                };
                let (called, ()) = tokio::join!(self.call(claim, prepares), killed);
                self.cut_off += u32::from(called.is_err());
                // At any moment, a specification that an engine can see is complete.
                for claim in &self.claims {
                    self.node.environment(claim);
                }
                self.node.begin();
                self.node.manager.registers().await;
                self.call(claim, prepares).await.unwrap();
                self.note_done(claim, prepares);
            }
            Event::Restart => self.node.restart().await,
            Event::Reboot => {
                self.node.kill();
                for folder in [self.node.places().regions, self.node.places().cdi] {
                    let _none = std::fs::remove_dir_all(folder);
                }
                self.node.begin();
                self.node.manager.registers().await;
                for claim in self.prepared.keys() {
                    self.call(*claim, true).await.unwrap();
                }
            }
            Event::Forgotten(claim) => {
                self.node.apiserver.delete_claim(&format!("ns/{}", self.claims[claim].name));
                self.claims[claim] = self.make();
                self.prepared.remove(&claim);
            }
        }
    }

    /// Waits until exactly the prepared claims have files, and checks their limits.
    async fn check(&self) {
        let expected: Vec<Claim> = self.prepared.keys().map(|claim| self.claims[*claim].clone()).collect();
        until("exactly the prepared claims have files", || self.node.has_only(&expected)).await;
        for (claim, limit) in &self.prepared {
            let environment = self.node.environment(&self.claims[*claim]).expect("it is prepared");
            let limit = format!("={}", limit << 20);
            let is_limit = |item: &&String| item.starts_with("GPU_MEM_LIMIT=") && item.ends_with(&limit);
            assert_eq!(environment.iter().filter(is_limit).count(), 1, "{environment:?}");
        }
    }
}

#[test]
fn any_order_of_calls_restarts_and_kills_leaves_the_files_of_prepared_claims() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let cut_off = std::cell::Cell::new(0);
    let config = Config { cases: 24, failure_persistence: None, max_shrink_iters: 20, ..Config::default() };
    let ran = TestRunner::new(config).run(&events(), |events| {
        runtime.block_on(async {
            let mut world = World::new().await;
            for event in &events {
                world.happens(event).await;
                world.check().await;
            }
            cut_off.set(cut_off.get() + world.cut_off);
        });
        Ok(())
    });
    ran.unwrap();
    println!("{} calls were cut off", cut_off.get());
    assert!(cut_off.get() > 3, "{}", cut_off.get());
}
