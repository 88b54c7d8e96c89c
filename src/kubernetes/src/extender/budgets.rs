//! Disruption budgets of the cluster, and the number of evictions that they still allow.

use crate::objects::{Budget, Labels};
use std::collections::{BTreeMap, HashSet};

/// Budgets by namespace and name.
#[derive(Debug, Clone, Default)]
pub(super) struct Budgets(BTreeMap<(String, String), Budget>);

fn key(budget: &Budget) -> (String, String) {
    (budget.metadata.namespace.clone(), budget.metadata.name.clone())
}

impl Budgets {
    /// Records the present state of a budget.
    pub(super) fn put(&mut self, budget: &Budget) {
        self.0.insert(key(budget), budget.clone());
    }

    /// Forgets a deleted budget.
    pub(super) fn gone(&mut self, budget: &Budget) {
        self.0.remove(&key(budget));
    }

    /// Forgets all budgets that are not in `budgets`.
    pub(super) fn keep_only(&mut self, budgets: &[Budget]) {
        let listed: HashSet<_> = budgets.iter().map(key).collect();
        self.0.retain(|key, _| listed.contains(key));
    }

    /// Returns the number of evictions that each budget allows.
    pub(super) fn left(&self) -> Left<'_> {
        Left(self.0.values().map(|budget| (budget, budget.allowed())).collect())
    }
}

/// Evictions that budgets still allow.
#[derive(Debug)]
pub(super) struct Left<'a>(Vec<(&'a Budget, i64)>);

impl Left<'_> {
    /// Counts the eviction of a pod against all budgets that cover the pod. Returns true if one of them does not allow it.
    pub(super) fn take(&mut self, namespace: &str, name: &str, labels: &Labels) -> bool {
        let covering = self.0.iter_mut().filter(|(budget, _)| budget.covers(namespace, name, labels));
        covering.fold(false, |is_violated, (_, left)| {
            *left = left.saturating_sub(1);
            is_violated || *left < 0
        })
    }
}
