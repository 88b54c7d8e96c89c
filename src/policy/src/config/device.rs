//! Names of devices in lists.
//!
//! A list names a device by a number or by its UUID. A UUID has the form of `CUDA_VISIBLE_DEVICES`: `GPU-` or `MIG-` and a
//! prefix of the UUID. A number is usually CUDA's, which depends on the environment. In an operator's file it is the number
//! on the bus, which nothing in the process can change.

use core::fmt;
use core::str::FromStr;

use super::faults::Fault;
use crate::units::Bytes;

/// The hexadecimal digits of a UUID.
const UUID_DIGITS: usize = 32;
/// Digits after which a UUID has a dash.
const DASHES: [usize; 4] = [8, 12, 16, 20];

/// A UUID or a prefix of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UuidPrefix {
    bytes: [u8; 16],
    digits: usize,
}

/// The name of a device in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceName {
    /// CUDA's number, after `CUDA_VISIBLE_DEVICES`.
    Ordinal(u32),
    /// The GPU's number in the order of the bus, as NVML counts; an instance has the number of its GPU.
    Bus(u32),
    /// `GPU-…`: a whole device.
    Gpu(UuidPrefix),
    /// `MIG-…`: an instance of a device.
    Mig(UuidPrefix),
}

/// A device to which limits are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// CUDA's number, after `CUDA_VISIBLE_DEVICES`. `None`: CUDA does not show the device.
    pub ordinal: Option<u32>,
    /// The GPU's number in the order of the bus, as NVML counts. `None`: it is unknown. Only lists in an operator's
    /// file use it: see [`Config::counts_on_bus`](super::Config::counts_on_bus).
    pub bus: Option<u32>,
    /// The UUID of the device or of the MIG instance.
    pub uuid: [u8; 16],
    /// The device's total memory.
    pub total: Bytes,
}

impl UuidPrefix {
    /// Returns true if this prefix names a device with the UUID `uuid`.
    #[must_use]
    pub fn matches(&self, uuid: &[u8; 16]) -> bool {
        self.nibbles().eq(nibbles(uuid).take(self.digits))
    }

    /// Returns the UUID, if the prefix is complete.
    #[must_use]
    pub fn whole(&self) -> Option<[u8; 16]> {
        (self.digits == UUID_DIGITS).then_some(self.bytes)
    }

    /// Returns true if both prefixes can name the same device.
    fn overlaps(&self, other: &Self) -> bool {
        let common = self.digits.min(other.digits);
        self.nibbles().take(common).eq(other.nibbles().take(common))
    }

    fn nibbles(&self) -> impl Iterator<Item = u8> {
        nibbles(&self.bytes).take(self.digits)
    }
}

impl DeviceName {
    /// Returns true if this name stands for `device`.
    #[must_use]
    pub fn matches(&self, device: &DeviceIdentity) -> bool {
        match self {
            Self::Ordinal(number) => device.ordinal == Some(*number),
            Self::Bus(number) => device.bus == Some(*number),
            Self::Gpu(prefix) | Self::Mig(prefix) => prefix.matches(&device.uuid),
        }
    }

    /// Returns the meaning of this name in an operator's file, where a number is a bus number.
    pub(super) fn of_operator(self) -> Self {
        match self {
            Self::Ordinal(number) => Self::Bus(number),
            other => other,
        }
    }

    /// Returns true if both names may stand for the same device. A list with such a pair is contradictory.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ordinal(one), Self::Ordinal(two)) | (Self::Bus(one), Self::Bus(two)) => one == two,
            (Self::Gpu(one) | Self::Mig(one), Self::Gpu(two) | Self::Mig(two)) => one.overlaps(two),
            (Self::Ordinal(_) | Self::Bus(_), _) | (_, Self::Ordinal(_) | Self::Bus(_)) => false,
        }
    }

    /// Returns the UUID prefix, if the name has one.
    pub(super) fn uuid(&self) -> Option<&UuidPrefix> {
        match self {
            Self::Ordinal(_) | Self::Bus(_) => None,
            Self::Gpu(prefix) | Self::Mig(prefix) => Some(prefix),
        }
    }
}

impl FromStr for UuidPrefix {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let mut prefix = Self { bytes: [0; 16], digits: 0 };
        let mut dashed = false;
        for letter in text.chars() {
            let dash_due = DASHES.contains(&prefix.digits) && !dashed;
            match letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok()) {
                None if letter == '-' && dash_due => dashed = true,
                Some(digit) if !dash_due => {
                    dashed = false;
                    prefix.push(digit).ok_or(Fault::NotADevice)?;
                }
                _ => return Err(Fault::NotADevice),
            }
        }
        if prefix.digits == 0 { Err(Fault::NotADevice) } else { Ok(prefix) }
    }
}

impl UuidPrefix {
    /// Appends a digit if there is room.
    fn push(&mut self, digit: u8) -> Option<()> {
        let byte = self.bytes.get_mut(self.digits / 2)?;
        *byte |= if self.digits.is_multiple_of(2) { digit << 4 } else { digit };
        self.digits = self.digits.saturating_add(1);
        Some(())
    }
}

impl fmt::Display for UuidPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, digit) in self.nibbles().enumerate() {
            let dash = if DASHES.contains(&place) { "-" } else { "" };
            write!(f, "{dash}{digit:x}")?;
        }
        Ok(())
    }
}

impl FromStr for DeviceName {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        if let Some(uuid) = text.strip_prefix("GPU-") {
            return uuid.parse().map(Self::Gpu);
        }
        if let Some(uuid) = text.strip_prefix("MIG-") {
            return uuid.parse().map(Self::Mig);
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().map_err(|_| Fault::NotADevice);
        if is_number { number.map(Self::Ordinal) } else { Err(Fault::NotADevice) }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(number) | Self::Bus(number) => write!(f, "{number}"),
            Self::Gpu(prefix) => write!(f, "GPU-{prefix}"),
            Self::Mig(prefix) => write!(f, "MIG-{prefix}"),
        }
    }
}

/// Returns the UUID of a GPU as NVML and `nvidia-smi` print it: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
#[must_use]
pub fn gpu_uuid_text(uuid: &[u8; 16]) -> String {
    format!("GPU-{}", UuidPrefix { bytes: *uuid, digits: UUID_DIGITS })
}

/// Returns the UUID in a complete text of NVML (`GPU-…` or `MIG-…`).
#[must_use]
pub fn parse_uuid_text(text: &str) -> Option<[u8; 16]> {
    text.parse::<DeviceName>().ok()?.uuid()?.whole()
}

/// Returns the sixteen bytes as 32 hexadecimal digits.
fn nibbles(bytes: &[u8; 16]) -> impl Iterator<Item = u8> {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] =
        [0x89, 0x32, 0xf9, 0x37, 0xd7, 0x2c, 0x41, 0x06, 0xc1, 0x2f, 0x20, 0xbd, 0x9f, 0xae, 0xd9, 0xf6];
    const NOTHING: DeviceIdentity =
        DeviceIdentity { ordinal: None, bus: None, uuid: [0; 16], total: Bytes::ZERO };
    const DEVICE: DeviceIdentity = DeviceIdentity { uuid: UUID, ..NOTHING };
    const TEXT: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

    #[test]
    fn a_uuid_is_printed_and_read_as_nvml_writes_it() {
        assert_eq!(gpu_uuid_text(&UUID), TEXT);
        assert_eq!(parse_uuid_text(TEXT), Some(UUID));
        assert_eq!(parse_uuid_text(&TEXT.replace("GPU", "MIG")), Some(UUID));
        assert_eq!(parse_uuid_text("GPU-8932f937"), None);
        assert_eq!(parse_uuid_text("0"), None);
    }

    #[test]
    fn the_beginning_of_a_uuid_names_every_device_that_begins_so() {
        for text in ["GPU-8", "GPU-8932F937", "GPU-8932f937-", "GPU-8932f937-d", TEXT] {
            let name: DeviceName = text.parse().unwrap();
            assert!(name.matches(&DEVICE), "{text}");
            assert!(!name.matches(&DeviceIdentity { ordinal: Some(8), bus: Some(8), ..NOTHING }), "{text}");
        }
        assert!(!"GPU-8933".parse::<DeviceName>().unwrap().matches(&DEVICE));
    }

    #[test]
    fn a_number_names_the_device_of_that_number_only() {
        let name: DeviceName = "3".parse().unwrap();
        let on_bus = name.of_operator();
        for (ordinal, bus) in
            [(Some(3), None), (Some(3), Some(4)), (None, Some(3)), (Some(4), Some(3)), (None, None)]
        {
            let device = DeviceIdentity { ordinal, bus, ..DEVICE };
            assert_eq!(name.matches(&device), ordinal == Some(3), "{device:?}");
            assert_eq!(on_bus.matches(&device), bus == Some(3), "{device:?}");
        }
        assert_eq!(on_bus.to_string(), "3");
    }

    #[test]
    fn a_text_that_names_no_device_is_refused() {
        let too_long = format!("{TEXT}0");
        let undashed = TEXT.replace('-', "");
        for text in
            ["", "GPU-", "MIG-", "GPU-x", "GPU--8", "GPU-8932f9370", "GPU-8932-f937", "gpu-89", "-1", "+1"]
        {
            assert_eq!(text.parse::<DeviceName>(), Err(Fault::NotADevice), "{text}");
        }
        for text in [&too_long, &undashed, "4294967296", "1 ", "GPU-8932f937--", "MIG-GPU-8932f937/1/0", "０"]
        {
            assert_eq!(text.parse::<DeviceName>(), Err(Fault::NotADevice), "{text}");
        }
    }

    #[test]
    fn names_overlap_when_one_device_could_be_meant_by_both() {
        for (one, two, overlap) in [
            ("1", "01", true),
            ("1", "2", false),
            ("GPU-89", "GPU-8932", true),
            ("GPU-89", "MIG-89", true),
            ("GPU-89", "GPU-88", false),
            ("8", "GPU-8", false),
        ] {
            let (one, two): (DeviceName, DeviceName) = (one.parse().unwrap(), two.parse().unwrap());
            assert_eq!(one.overlaps(&two), overlap, "{one} {two}");
            assert_eq!(two.overlaps(&one), overlap, "{two} {one}");
        }
    }
}
