//! Choice of GPUs, and the score of a node for a pod.

use super::used::Room;
use crate::objects::{Part, Request};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Best score of a node, by the scheduler's scale.
const BEST: u64 = 10;

/// Order in which GPUs and nodes with room are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The fullest first, so that others stay empty for large pods.
    #[default]
    Binpack,
    /// The emptiest first, so that pods disturb each other least.
    Spread,
}

/// Chooses the parts of a pod's containers on the GPUs of a node, and takes them from `rooms`. Containers with large slices
/// choose first.
///
/// # Errors
/// There is no room, and nothing is taken; the message tells for which container, and how much is left.
pub fn place(
    rooms: &mut [Room],
    requests: &[Request],
    order: Order,
) -> Result<BTreeMap<String, Vec<Part>>, String> {
    let mut requests: Vec<&Request> = requests.iter().collect();
    requests.sort_by_key(|request| Reverse((request.mem_mib, request.core, request.slices)));
    let mut left = rooms.to_vec();
    let mut placed = BTreeMap::new();
    for request in requests {
        let parts = container(&mut left, request, order).map_err(|found| refusal(&left, request, found))?;
        placed.insert(request.container.clone(), parts);
    }
    rooms.clone_from_slice(&left);
    Ok(placed)
}

/// Chooses the parts of a container, each on another GPU. If they do not fit, takes nothing, and returns how many GPUs have room.
fn container(rooms: &mut [Room], request: &Request, order: Order) -> Result<Vec<Part>, usize> {
    let Request { slices, mem_mib, core, .. } = *request;
    let mut fit: Vec<&mut Room> = rooms.iter_mut().filter(|room| room.has(mem_mib, core)).collect();
    let slices = usize::try_from(slices).ok().filter(|slices| *slices <= fit.len()).ok_or(fit.len())?;
    fit.sort_by_key(|room| (room.mem_mib, room.core));
    if order == Order::Spread {
        fit.reverse();
    }
    let part = |room: &mut Room| {
        room.take(mem_mib, core);
        Part { uuid: room.uuid.clone(), mem_mib, core }
    };
    Ok(fit.into_iter().take(slices).map(part).collect())
}

fn refusal(rooms: &[Room], request: &Request, found: usize) -> String {
    let Request { container, slices, mem_mib, core } = request;
    if rooms.is_empty() {
        return "no GPU of the node works".to_owned();
    }
    let memory = rooms.iter().map(|room| room.mem_mib).max().unwrap_or(0);
    let most = rooms.iter().map(|room| room.core).max().unwrap_or(0);
    format!(
        "container {container}: {found} of {slices} GPUs have {mem_mib} MiB and {core} % of time left (at most {memory} MiB and {most} %)"
    )
}

/// Returns the score of a node, from 0 to 10. `left`: the room that its GPUs have after the pod.
#[must_use]
pub fn score(left: &[Room], order: Order) -> u64 {
    let total = left.iter().map(|room| room.of_mib).fold(0, u64::saturating_add);
    let free = left.iter().map(|room| room.mem_mib).fold(0, u64::saturating_add);
    let free = free.saturating_mul(BEST).checked_div(total).unwrap_or(0).min(BEST);
    match order {
        Order::Binpack => BEST.saturating_sub(free),
        Order::Spread => free,
    }
}
