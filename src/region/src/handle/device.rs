//! Devices of a slice: their UUIDs, and their indices in the region.

use core::fmt;

use crate::layout::DeviceEntry;

/// A device's UUID, in the byte order of CUDA and NVML.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Returns the UUID as the two words of a device entry.
    pub(crate) fn words(self) -> [u64; 2] {
        let number = u128::from_le_bytes(self.0);
        [0, 64].map(|shift| u64::try_from(number >> shift & u128::from(u64::MAX)).unwrap_or(0))
    }

    /// Returns the UUID in a device entry.
    pub(crate) fn of(entry: &DeviceEntry) -> Self {
        let [low, high] = entry.uuid.each_ref().map(|word| u128::from(word.get()));
        Self((low | high << 64).to_le_bytes())
    }
}

/// The form of NVML, without the leading `GPU-`.
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

/// Index of a device in the table of one region. Another region may have another device at the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(pub(crate) usize);

impl Device {
    /// Returns the index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}
