//! Managed memory.

/// `CU_DEVICE_CPU`: the host, where a device is named.
pub(crate) const HOST: i32 = -1;

/// Where an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    Nowhere,
    Device,
    Host,
}

/// What is known of an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Managed {
    pub(crate) place: Residence,
    /// Bytes that it takes of its device.
    pub(crate) bytes: u64,
    /// Bytes that it takes of the host.
    pub(crate) size: u64,
    /// The device that is preferred, or the host.
    pub(crate) prefers: Option<i32>,
    pub(crate) read_mostly: bool,
    /// Where it was moved last on demand.
    pub(crate) last: Option<i32>,
}

impl Managed {
    /// An allocation of so many bytes that takes so many of the device, and has taken them already or not.
    pub(crate) fn new(size: u64, bytes: u64, on_device: bool) -> Self {
        let place = if on_device { Residence::Device } else { Residence::Nowhere };
        Self { place, bytes, size, prefers: None, read_mostly: false, last: None }
    }
}
