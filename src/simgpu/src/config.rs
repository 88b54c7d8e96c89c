//! What does the environment of this process ask for?

use std::sync::OnceLock;

use crate::texts::uuid_text;

/// What each process decides for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The group whose sum this process counts towards; empty for none.
    pub(crate) group: Vec<u8>,
    /// The program's name.
    pub(crate) program: Vec<u8>,
    /// How long a kernel runs whose name does not say it.
    pub(crate) kernel_ns: u64,
    /// `CUDA_VISIBLE_DEVICES`.
    pub(crate) visible: Option<String>,
}

/// The version that is offered when nothing else is asked for.
const VERSION: i32 = 13_000;
/// How long a kernel runs that does not say it.
const KERNEL_NS: u64 = 10_000;

/// The version of the driver API that is offered.
pub(crate) fn version() -> i32 {
    static WANTED: OnceLock<i32> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let wanted = std::env::var("SIMGPU_CUDA_VERSION").ok();
        wanted.and_then(|text| text.trim().parse().ok()).unwrap_or(VERSION)
    })
}

impl Config {
    pub(crate) fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        Self {
            group: text("SIMGPU_GROUP").unwrap_or_default().into_bytes(),
            program: std::fs::read("/proc/self/comm").unwrap_or_default().trim_ascii_end().to_vec(),
            kernel_ns: text("SIMGPU_KERNEL_NS").and_then(|n| n.parse().ok()).unwrap_or(KERNEL_NS),
            visible: text("CUDA_VISIBLE_DEVICES"),
        }
    }

    /// Which of `count` devices this process sees, in the order it asked for. As the real driver does, the list
    /// ends at the first entry that means no device or one that was named before.
    pub(crate) fn visible(&self, count: usize) -> Vec<usize> {
        let Some(list) = &self.visible else { return (0..count).collect() };
        let mut devices = Vec::new();
        for entry in list.split(',') {
            match device(entry.trim(), count) {
                Some(device) if !devices.contains(&device) => devices.push(device),
                _ => break,
            }
        }
        devices
    }
}

/// The device that an entry names: by number, or by the beginning of a UUID that no other device's has.
fn device(entry: &str, count: usize) -> Option<usize> {
    if let Ok(number) = entry.parse::<usize>() {
        return Some(number).filter(|number| *number < count);
    }
    if !entry.starts_with("GPU-") {
        return None;
    }
    let mut matching = (0..count)
        .filter(|device| uuid_text(*device).starts_with(&entry.to_ascii_lowercase().replace("gpu-", "GPU-")));
    matching.next().filter(|_| matching.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(list: &str) -> Vec<usize> {
        let mut config = Config::from_environment();
        config.visible = Some(list.to_owned());
        config.visible(3)
    }

    #[test]
    fn devices_are_seen_in_the_order_that_is_asked_for() {
        assert_eq!(seen("2,0"), [2, 0]);
        assert_eq!(seen(&format!("{},1", uuid_text(2))), [2, 1]);
        assert_eq!(seen(uuid_text(1).get(..12).unwrap()), [1]);
    }

    #[test]
    fn a_list_ends_where_it_stops_making_sense() {
        assert_eq!(seen(""), []);
        assert_eq!(seen("1,-1,0"), [1]);
        assert_eq!(seen("1,7,0"), [1]);
        assert_eq!(seen("1,1,0"), [1]);
        assert_eq!(seen("GPU-"), []);
    }
}
