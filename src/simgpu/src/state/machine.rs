//! The GPUs of the machine, their MIG instances, and the names and UUIDs of both.
//!
//! A device computes and has memory. It is either a whole GPU or one instance of a divided GPU (MIG). All devices have successive
//! numbers, and the instances of a GPU have theirs where a whole GPU would have its number.

use core::ops::Range;

use super::settings::Settings;
use super::sizes::DEVICES;
use crate::hardware::texts;

impl Settings {
    /// Returns the number of GPUs, whole and divided ones.
    #[must_use]
    pub fn gpus(&self) -> usize {
        usize::try_from(self.devices).unwrap_or(DEVICES).min(DEVICES)
    }

    /// Returns true if a GPU is divided into instances.
    #[must_use]
    pub fn is_divided(&self, gpu: usize) -> bool {
        gpu < self.gpus() && self.instances.get(gpu).is_some_and(|instances| *instances > 0)
    }

    /// Returns the devices of a GPU: the GPU itself, or its instances.
    #[must_use]
    pub fn devices_of(&self, gpu: usize) -> Range<usize> {
        let size = |gpu: &u64| usize::try_from(*gpu).unwrap_or(DEVICES).max(1);
        let start = self.instances.iter().take(gpu).map(size).sum();
        let end =
            self.instances.get(gpu).filter(|_| gpu < self.gpus()).map_or(start, |own| start + size(own));
        start..end
    }

    /// Returns the GPU that a device is, or that the instance belongs to.
    #[must_use]
    pub fn gpu_of(&self, device: usize) -> usize {
        (0..self.gpus()).find(|gpu| self.devices_of(*gpu).contains(&device)).unwrap_or(device)
    }

    /// Returns the number of a device among the instances of its GPU. Returns `None` if the device is a whole GPU.
    #[must_use]
    pub fn instance(&self, device: usize) -> Option<usize> {
        let gpu = self.gpu_of(device);
        self.is_divided(gpu).then(|| device - self.devices_of(gpu).start)
    }

    /// Returns the GPUs in the order in which the driver API numbers them. It is the order of the bus,
    /// or the fastest GPU comes first.
    #[must_use]
    pub fn order(&self, by_bus: bool) -> Vec<usize> {
        let fastest = usize::try_from(self.fastest).ok().filter(|gpu| !by_bus && *gpu < self.gpus());
        fastest.into_iter().chain((0..self.gpus()).filter(|gpu| Some(*gpu) != fastest)).collect()
    }

    /// Returns the UUID of a device. An instance has a UUID of its own.
    #[must_use]
    pub fn uuid(&self, device: usize) -> [u8; 16] {
        let number = if self.instance(device).is_some() { DEVICES + device } else { self.gpu_of(device) };
        texts::uuid(number)
    }

    /// Returns the UUID of a device as text.
    #[must_use]
    pub fn uuid_text(&self, device: usize) -> String {
        let kind = if self.instance(device).is_some() { "MIG" } else { "GPU" };
        texts::uuid_text(kind, &self.uuid(device))
    }

    /// Returns true if NVLink connects two GPUs.
    #[must_use]
    pub fn has_nvlink(&self, one: usize, other: usize) -> bool {
        let group = |gpu: usize| (gpu as u64).checked_div(self.nvlink);
        one != other && group(one).is_some() && group(one) == group(other)
    }

    /// Returns the name of a GPU. The fastest GPU is another model than the rest.
    #[must_use]
    pub fn name(&self, gpu: usize) -> &'static str {
        if self.fastest != 0 && gpu as u64 == self.fastest { texts::FASTER_NAME } else { texts::DEVICE_NAME }
    }
}

/// Returns the UUID of a GPU as text, whether it is divided or not.
#[must_use]
pub fn gpu_text(gpu: usize) -> String {
    texts::uuid_text("GPU", &texts::uuid(gpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_take_the_place_of_their_gpu() {
        let mut machine = Settings { devices: 3, ..Settings::DEFAULT };
        machine.instances[1] = 2;
        assert_eq!([0, 1, 2, 3].map(|gpu| machine.devices_of(gpu)), [0..1, 1..3, 3..4, 4..4]);
        assert_eq!([0, 1, 2, 3].map(|device| machine.gpu_of(device)), [0, 1, 1, 2]);
        assert_eq!([0, 1, 2, 3].map(|device| machine.instance(device)), [None, Some(0), Some(1), None]);
        assert!(machine.uuid_text(1).starts_with("MIG-") && machine.uuid_text(3) == gpu_text(2));
        assert_ne!(machine.uuid(1), machine.uuid(2));
    }

    #[test]
    fn the_fastest_comes_first_unless_the_bus_decides() {
        let machine = Settings { devices: 3, fastest: 2, ..Settings::DEFAULT };
        assert_eq!((machine.order(false), machine.order(true)), (vec![2, 0, 1], vec![0, 1, 2]));
    }
}
