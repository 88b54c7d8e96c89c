//! Chooses pods to evict, so that a more important pod has room.

use crate::objects::Part;
use std::cmp::Reverse;

/// A pod that may be evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evictable<'a> {
    /// UID.
    pub uid: &'a str,
    /// Priority; a larger number is more important.
    pub priority: i32,
    /// Time at which the pod was created, in the form of RFC 3339. Of two pods with the same priority,
    /// the older one is more important.
    pub created: &'a str,
    /// The pod's parts.
    pub parts: &'a [Part],
    /// True if a disruption budget does not allow the pod's eviction.
    pub is_protected: bool,
}

/// Chooses the pods to evict from `pods`. The choice has as few protected pods as possible. Among such choices, it has as few
/// and as unimportant pods as possible. Returns none if the new pod has no room even without all of them.
///
/// `protect` returns true if a budget forbids the eviction of a pod. The function calls it once for each pod, in the order of
/// importance. `fits` gets the pods that go, and returns true if the new pod then has room.
///
/// The scheduler's own preemption has the same order. At first all pods go. Then the function keeps each pod that can stay. It
/// begins with the protected pods, and in both groups with the most important pod.
pub fn evict<'a>(
    mut pods: Vec<Evictable<'a>>,
    mut protect: impl FnMut(&Evictable<'a>) -> bool,
    fits: impl Fn(&[Evictable<'a>]) -> bool,
) -> Option<Vec<Evictable<'a>>> {
    pods.sort_by_key(|pod| (Reverse(pod.priority), pod.created));
    for pod in &mut pods {
        pod.is_protected = protect(pod);
    }
    pods.sort_by_key(|pod| !pod.is_protected);
    if !fits(&pods) {
        return None;
    }
    let mut at = 0;
    while at < pods.len() {
        let pod = pods.remove(at);
        if !fits(&pods) {
            pods.insert(at, pod);
            at = at.saturating_add(1);
        }
    }
    Some(pods)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pods that the function evicts for `need` MiB of memory. `protected` has the names of pods that a budget
    /// protects.
    fn evicted(need: u64, protected: &[&str]) -> Option<Vec<String>> {
        let parts = [Part { uuid: "GPU-a".to_owned(), mem_mib: 4, core: 0 }];
        let pod =
            |uid, priority, created| Evictable { uid, priority, created, parts: &parts, is_protected: false };
        let low = [pod("old", 1, "2026-01-01T00:00:00Z"), pod("new", 1, "2026-01-02T00:00:00Z")];
        let pods = low.into_iter().chain([pod("high", 2, "2026-01-03T00:00:00Z")]).collect();
        let freed = |gone: &[Evictable<'_>]| {
            gone.iter().flat_map(|pod| pod.parts).map(|part| part.mem_mib).sum::<u64>()
        };
        let gone = evict(pods, |pod| protected.contains(&pod.uid), |gone| freed(gone) >= need);
        gone.map(|gone| gone.iter().map(|pod| pod.uid.to_owned()).collect())
    }

    #[test]
    fn the_most_important_pods_stay_that_can() {
        assert_eq!(evicted(13, &[]), None);
        assert_eq!(evicted(12, &[]).unwrap(), ["high", "old", "new"]);
        assert_eq!(evicted(8, &[]).unwrap(), ["old", "new"]);
        assert_eq!(evicted(1, &[]).unwrap(), ["new"]);
        assert!(evicted(0, &[]).unwrap().is_empty());
    }

    #[test]
    fn pods_that_a_budget_protects_go_only_if_the_others_are_not_enough() {
        assert_eq!(evicted(1, &["new"]).unwrap(), ["old"]);
        assert_eq!(evicted(4, &["new", "old"]).unwrap(), ["high"]);
        assert_eq!(evicted(8, &["new", "old"]).unwrap(), ["new", "high"]);
        assert_eq!(evicted(12, &["new"]).unwrap(), ["new", "high", "old"]);
    }
}
