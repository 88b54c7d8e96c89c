//! Managed memory.

/// `CU_DEVICE_CPU`: the host as a location.
pub(crate) const HOST_LOCATION: i32 = -1;

/// Location of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    Nowhere,
    Device,
    Host,
}

/// State of a managed allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Managed {
    pub(crate) place: Residence,
    /// Bytes that it takes on its device.
    pub(crate) bytes: u64,
    /// Bytes that it takes on the host.
    pub(crate) size: u64,
    /// The preferred device, or the host.
    pub(crate) prefers: Option<i32>,
    pub(crate) read_mostly: bool,
    /// The location that it was last prefetched to.
    pub(crate) last: Option<i32>,
}

impl Managed {
    /// Makes an allocation of `size` bytes that takes `bytes` on a device. `on_device`: they are taken already.
    pub(crate) fn new(size: u64, bytes: u64, on_device: bool) -> Self {
        let place = if on_device { Residence::Device } else { Residence::Nowhere };
        Self { place, bytes, size, prefers: None, read_mostly: false, last: None }
    }
}
