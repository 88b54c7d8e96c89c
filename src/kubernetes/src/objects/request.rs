//! The slices for which the containers of a pod ask.

use super::constraints::Constraints;
use crate::api::{Container, Pod};

/// Resource that counts the slices of a container, each on another GPU. The device plugin offers it.
pub const SLICE: &str = "gpuslice.dev/slice";
/// Resource that counts the memory of all slices of a container together, in mebibytes.
pub const MEMORY_MIB: &str = "gpuslice.dev/memory-mib";
/// Resource that counts the GPU time of all slices of a container together, in percent of one GPU.
pub const CORE_PERCENT: &str = "gpuslice.dev/core-percent";

/// Slices for which a container asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Name of the container.
    pub container: String,
    /// Number of slices, each on another GPU; 1 or more.
    pub slices: u64,
    /// Mebibytes of each slice; 1 or more.
    pub mem_mib: u64,
    /// Percent of a GPU's time for each slice, up to 100. 0 means no limit: the container does not ask for time.
    pub core: u32,
    /// Constraints on the GPUs of the slices.
    pub constraints: Constraints,
}

/// Returns the requests of the containers of a pod that run at the same time. An ordinary init container has no request of its
/// own: it uses the slice of another container.
///
/// # Errors
/// A request is invalid, or nothing can serve it; the message contains the container and the numbers.
pub fn requests(pod: &Pod) -> Result<Vec<Request>, String> {
    let inits = || pod.spec.init_containers.iter();
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let beside = inits().filter(is_sidecar).chain(&pod.spec.containers);
    let mut found =
        beside.filter_map(|container| request(container).transpose()).collect::<Result<Vec<_>, _>>()?;
    let constraints = Constraints::of(pod)?;
    found.iter_mut().for_each(|request| request.constraints.clone_from(&constraints));
    // The kubelet does not tell which device an ordinary init container has. It first hands out devices that another container
    // of the pod gets later. So an init container must not ask for more devices than another container.
    let most = found.iter().map(|request| request.slices).max().unwrap_or(0);
    for init in inits().filter(|container| !is_sidecar(container)) {
        if let Some(Request { container, slices, .. }) = request(init)?
            && slices > most
        {
            return Err(format!(
                "the init container {container} asks for {slices} {SLICE}, and no other container of the pod for as many"
            ));
        }
    }
    Ok(found)
}

/// Returns the request of a container, if it has one.
fn request(container: &Container) -> Result<Option<Request>, String> {
    let name = &container.name;
    let limits = &container.resources.limits;
    let number = |resource: &str| -> Result<Option<u64>, String> {
        let Some(quantity) = limits.get(resource) else { return Ok(None) };
        let read = whole(quantity).map(Some);
        read.ok_or_else(|| format!("container {name}: {resource} {quantity:?} is no whole number"))
    };
    let (slices, memory, core) = (number(SLICE)?, number(MEMORY_MIB)?, number(CORE_PERCENT)?);
    let slices = match (slices.filter(|slices| *slices > 0), memory.or(core)) {
        (Some(slices), _) => slices,
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(format!("container {name}: {MEMORY_MIB} or {CORE_PERCENT} without {SLICE}"));
        }
    };
    let Some(memory) = memory.filter(|memory| *memory > 0) else {
        return Err(format!("container {name}: {SLICE} without {MEMORY_MIB}"));
    };
    if core == Some(0) {
        return Err(format!(
            "container {name}: {CORE_PERCENT} 0 is no part of the time; leave it out for no limit"
        ));
    }
    let core = core.unwrap_or(0);
    for (resource, total) in [(MEMORY_MIB, memory), (CORE_PERCENT, core)] {
        if total.checked_rem(slices) != Some(0) {
            return Err(format!("container {name}: {resource} {total} is not divisible by {SLICE} {slices}"));
        }
    }
    let of_each = |total: u64| total.checked_div(slices).unwrap_or(0);
    let core = u32::try_from(of_each(core)).ok().filter(|core| *core <= 100).ok_or_else(|| {
        format!("container {name}: {CORE_PERCENT} {core} is more than 100 for each of {SLICE} {slices}")
    })?;
    let container = name.clone();
    Ok(Some(Request { container, slices, mem_mib: of_each(memory), core, ..Request::default() }))
}

/// Reads a whole number. The apiserver writes 5000 as `5k`, even if the user wrote it in another form.
pub(crate) fn whole(text: &str) -> Option<u64> {
    const SUFFIXES: [(&str, u64); 6] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let suffix = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (digits, factor) = suffix.unwrap_or((text, 1));
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(containers: &Value, inits: &Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": containers, "initContainers": inits}})).unwrap()
    }

    fn container(name: &str, limits: &Value) -> Value {
        json!({"name": name, "resources": {"limits": limits}})
    }

    fn asked(slices: &str, memory: &str, core: &str) -> Value {
        json!({SLICE: slices, MEMORY_MIB: memory, CORE_PERCENT: core})
    }

    #[test]
    fn totals_are_divided_over_the_slices_of_a_container() {
        let two = container("a", &asked("2", "8192", "60"));
        let found = requests(&pod(&json!([two, container("b", &json!({}))]), &json!([]))).unwrap();
        let expected =
            Request { container: "a".to_owned(), slices: 2, mem_mib: 4096, core: 30, ..Request::default() };
        assert_eq!(found, [expected]);
        let without_share = container("a", &json!({SLICE: "1", MEMORY_MIB: "5k"}));
        let found = requests(&pod(&json!([without_share]), &json!([]))).unwrap();
        assert_eq!((found[0].mem_mib, found[0].core), (5000, 0));
    }

    #[test]
    fn a_request_has_the_name_of_its_container_wherever_that_is_in_the_pod() {
        let [proxy, logs] = ["proxy", "logs"].map(|name| container(name, &json!({"cpu": "1"})));
        let [app, side] = [("app", "4096"), ("side", "1024")]
            .map(|(name, memory)| container(name, &asked("1", memory, "30")));
        let mut side = side;
        side["restartPolicy"] = json!("Always");
        let found = requests(&pod(&json!([proxy, app, logs]), &json!([logs, side]))).unwrap();
        let named: Vec<_> =
            found.iter().map(|request| (request.container.as_str(), request.mem_mib)).collect();
        assert_eq!(named, [("side", 1024), ("app", 4096)]);
    }

    #[test]
    fn impossible_requests_are_refused_with_the_container_and_the_numbers() {
        for (limits, says) in [
            (json!({MEMORY_MIB: "5"}), "a: gpuslice.dev/memory-mib or gpuslice.dev/core-percent without"),
            (json!({CORE_PERCENT: "5"}), "without gpuslice.dev/slice"),
            (json!({SLICE: "1"}), "without gpuslice.dev/memory-mib"),
            (asked("1", "0", "5"), "without gpuslice.dev/memory-mib"),
            (asked("2", "5", "6"), "gpuslice.dev/memory-mib 5 is not divisible by gpuslice.dev/slice 2"),
            (asked("2", "6", "5"), "gpuslice.dev/core-percent 5 is not divisible"),
            (asked("1", "6", "101"), "101 is more than 100"),
            (asked("1", "6", "0"), "a: gpuslice.dev/core-percent 0 is no part of the time; leave it out"),
            (asked("1", "6", "0k"), "gpuslice.dev/core-percent 0 is no part of the time"),
            (asked("1", "1500m", "1"), "\"1500m\" is no whole number"),
            (asked("1", "99999999999999999999", "1"), "is no whole number"),
            (asked("1", "18446744073709551615k", "1"), "is no whole number"),
            (asked("1", "-4", "1"), "is no whole number"),
        ] {
            let why = requests(&pod(&json!([container("a", &limits)]), &json!([]))).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn an_init_container_shares_the_slice_of_another_one_and_a_sidecar_has_its_own() {
        let app = container("app", &asked("1", "4096", "30"));
        let init = container("init", &json!({SLICE: "1", MEMORY_MIB: "1024"}));
        let found = requests(&pod(&json!([app]), &json!([init]))).unwrap();
        assert_eq!(found.iter().map(|request| request.container.as_str()).collect::<Vec<_>>(), ["app"]);
        let why = requests(&pod(&json!([{"name": "app"}]), &json!([init]))).unwrap_err();
        assert!(why.contains("init container init asks for 1"), "{why}");
        let mut sidecar = container("side", &json!({SLICE: "1", MEMORY_MIB: "1024"}));
        sidecar["restartPolicy"] = json!("Always");
        assert_eq!(requests(&pod(&json!([app]), &json!([sidecar]))).unwrap().len(), 2);
    }
}
