//! Messages of the demo's programs to the process that started them. They are lines of text on standard output.

use gpuslice_region::Uuid;

/// The line of a program that has its context and its kernel. The program then waits for a byte before it fills the memory.
pub(super) const READY: &str = "ready";

/// Allocations that a program has counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Allocations that succeeded.
    pub(super) granted: u64,
    /// Allocations that returned `CUDA_ERROR_OUT_OF_MEMORY`.
    pub(super) refused: u64,
}

impl Counts {
    /// Returns the line that carries the counts.
    pub(super) fn line(self) -> String {
        format!("{} {}\n", self.granted, self.refused)
    }

    /// Reads the counts from a line that `line` made.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (granted, refused) = line.trim_end().split_once(' ')?;
        Some(Self { granted: granted.parse().ok()?, refused: refused.parse().ok()? })
    }
}

/// The first device, as a program without a quota sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DemoGpu {
    /// The device's UUID.
    pub(super) uuid: Uuid,
    /// Free bytes.
    pub(super) free: u64,
    /// Total bytes.
    pub(super) total: u64,
    /// True if the device's driver is the simulated one.
    pub(super) is_simulated: bool,
    /// The device's name.
    pub(super) name: String,
}

impl DemoGpu {
    /// Returns the line that carries the device.
    pub(super) fn line(&self) -> String {
        let Self { uuid, free, total, is_simulated, name } = self;
        format!("{} {free} {total} {is_simulated} {name}\n", u128::from_be_bytes(uuid.0))
    }

    /// Reads the device from a line that `line` made.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.trim_end().splitn(5, ' ');
        let uuid = Uuid(words.next()?.parse::<u128>().ok()?.to_be_bytes());
        let free = words.next()?.parse().ok()?;
        let total = words.next()?.parse().ok()?;
        let is_simulated = words.next()?.parse().ok()?;
        Some(Self { uuid, free, total, is_simulated, name: words.next()?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_lines_are_read_again() {
        let counts = Counts { granted: 7, refused: u64::MAX };
        assert_eq!(Counts::read(&counts.line()), Some(counts));
        let name = "NVIDIA Sim 100".to_owned();
        let gpu = DemoGpu { uuid: Uuid([0xA7; 16]), free: 1, total: 2, is_simulated: true, name };
        assert_eq!(DemoGpu::read(&gpu.line()), Some(gpu));
        assert_eq!(Counts::read("Traceback"), None);
        assert_eq!(DemoGpu::read(""), None);
    }
}
