//! Managed memory: where each allocation is, and the advice of the program about it.

/// `CU_DEVICE_CPU`: the number by which a location means the host.
pub(crate) const HOST_LOCATION: i32 = -1;

/// Where a managed allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    Nowhere,
    Device,
    Host,
}

/// The state of a managed allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Managed {
    pub(crate) place: Residence,
    /// Bytes that the allocation takes while it is on its device.
    pub(crate) bytes: u64,
    /// Bytes that the allocation takes while it is on the host.
    pub(crate) size: u64,
    /// The location that the program prefers: a device, or the host.
    pub(crate) prefers: Option<i32>,
    pub(crate) read_mostly: bool,
    /// The location to which the program last prefetched the allocation.
    pub(crate) last: Option<i32>,
}

impl Managed {
    /// Makes the state of an allocation of `size` bytes that takes `bytes` on a device. `on_device` is true if
    /// it is charged for them already.
    pub(crate) fn new(size: u64, bytes: u64, on_device: bool) -> Self {
        let place = if on_device { Residence::Device } else { Residence::Nowhere };
        Self { place, bytes, size, prefers: None, read_mostly: false, last: None }
    }
}
