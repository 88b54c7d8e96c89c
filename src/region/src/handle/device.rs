//! Devices of a slice, by UUID and by their number in the region.

use core::fmt;

use crate::layout::DeviceEntry;

/// A device's UUID, as CUDA and NVML say it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The UUID as the two words of a device entry.
    pub(crate) fn words(self) -> [u64; 2] {
        let number = u128::from_le_bytes(self.0);
        [0, 64].map(|shift| u64::try_from(number >> shift & u128::from(u64::MAX)).unwrap_or(0))
    }

    /// The UUID of a device entry.
    pub(crate) fn of(entry: &DeviceEntry) -> Self {
        let [low, high] = entry.uuid.each_ref().map(|word| u128::from(word.get()));
        Self((low | high << 64).to_le_bytes())
    }
}

/// As NVML writes it, without the `GPU-` in front.
impl fmt::Display for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(out, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A device of a region: its place in the region's table. It means something for this region only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(pub(crate) usize);

impl Device {
    /// The place in the table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}
