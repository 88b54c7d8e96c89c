//! Properties of the simulated device: slices, queues, bandwidths, sampling.

/// Largest number of kernels of one client that may run at the same time, for any configuration.
pub(crate) const MAX_CONCURRENT: usize = 128;
/// Largest number of copy engines, for any configuration.
pub(crate) const MAX_COPY_ENGINES: usize = 4;
/// The occupancy of a kernel that fills the device.
pub(crate) const WHOLE_DEVICE: u16 = 1000;

/// The settable properties of one simulated device. Times are in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceConfig {
    /// Time for which a client keeps the device while another one waits for it. At least 1 µs.
    pub(crate) slice_ns: u64,
    /// Pause of the device between two clients.
    pub(crate) switch_ns: u64,
    /// Resolution of event times. At least 1.
    pub(crate) event_resolution_ns: u64,
    /// Length of an NVML utilisation window. 1 ms to 1 s.
    pub(crate) sample_period_ns: u64,
    /// Delay from the end of a window until its samples can be read.
    pub(crate) sample_lag_ns: u64,
    /// 0: a window names only the process that uses the engine at the window's end. 1: it names each
    /// process that ran in the window.
    pub(crate) sample_each: u64,
    /// Time between two nodes of a graph.
    pub(crate) graph_node_gap_ns: u64,
    /// Fixed time of every copy and fill.
    pub(crate) copy_overhead_ns: u64,
    /// Bandwidth from host to device, in bytes per microsecond. At least 1, like the next three.
    pub(crate) host_to_device: u64,
    /// Bandwidth from device to host, in bytes per microsecond.
    pub(crate) device_to_host: u64,
    /// Bandwidth between devices, in bytes per microsecond.
    pub(crate) peer: u64,
    /// Bandwidth of fills and of copies inside the device, in bytes per microsecond.
    pub(crate) device_to_device: u64,
    /// Largest number of work items in a stream. An enqueue blocks while the stream has as many.
    pub(crate) stream_depth: u32,
    /// Largest number of work items of a client. An enqueue blocks while the client has as many.
    pub(crate) client_depth: u32,
    /// Largest number of kernels of one client that run at the same time, from 1 to [`MAX_CONCURRENT`].
    pub(crate) concurrent: u32,
    /// Number of copy engines, from 1 to [`MAX_COPY_ENGINES`].
    pub(crate) copy_engines: u32,
    /// Drift of the device's clock against the host's, in parts per million. Event times show it.
    pub(crate) event_skew_ppm: i32,
    /// Time for which the record of an event occupies its stream.
    pub(crate) event_ns: u32,
}

impl DeviceConfig {
    /// The properties of a zeroed state: a large device on a fourth-generation bus, with the driver's usual depths of queues.
    pub(crate) const DEFAULT: Self = Self {
        slice_ns: 1_024_000,
        switch_ns: 50_000,
        event_resolution_ns: 500,
        sample_period_ns: 166_666_667,
        sample_lag_ns: 0,
        sample_each: 0,
        graph_node_gap_ns: 1_500,
        copy_overhead_ns: 1_500,
        host_to_device: 25_000,
        device_to_host: 25_000,
        peer: 20_000,
        device_to_device: 1_000_000,
        stream_depth: 1024,
        client_depth: 16_384,
        concurrent: 32,
        copy_engines: 2,
        event_skew_ppm: 0,
        event_ns: 2_500,
    };

    /// Returns these properties, each clamped to its range.
    #[must_use]
    pub(super) fn checked(mut self) -> Self {
        self.slice_ns = self.slice_ns.max(1_000);
        self.event_resolution_ns = self.event_resolution_ns.max(1);
        self.sample_period_ns = self.sample_period_ns.clamp(1_000_000, 1_000_000_000);
        self.host_to_device = self.host_to_device.max(1);
        self.device_to_host = self.device_to_host.max(1);
        self.peer = self.peer.max(1);
        self.device_to_device = self.device_to_device.max(1);
        self.stream_depth = self.stream_depth.max(1);
        self.client_depth = self.client_depth.max(1);
        self.concurrent = self.concurrent.clamp(1, 128);
        self.copy_engines = self.copy_engines.clamp(1, 4);
        self
    }

    /// Returns the duration of a copy of `bytes` on its engine.
    #[must_use]
    pub(crate) fn copy_ns(&self, direction: Direction, bytes: u64) -> u64 {
        let rate = match direction {
            Direction::HostToDevice => self.host_to_device,
            Direction::DeviceToHost => self.device_to_host,
            Direction::Peer => self.peer,
        };
        self.copy_overhead_ns.saturating_add(transfer_ns(bytes, rate))
    }

    /// Returns the duration of a fill of `bytes`, or of a copy of `bytes` within the device.
    #[must_use]
    pub(crate) fn fill_ns(&self, bytes: u64) -> u64 {
        self.copy_overhead_ns.saturating_add(transfer_ns(bytes, self.device_to_device))
    }

    /// Returns the duration of a graph whose kernels take `kernels_ns` together.
    #[must_use]
    pub(crate) fn graph_ns(&self, kernels_ns: u64, nodes: u32) -> u64 {
        let gaps = u64::from(nodes.saturating_sub(1)).saturating_mul(self.graph_node_gap_ns);
        kernels_ns.saturating_add(gaps)
    }

    /// Returns the copy engine of a direction. Each direction has an engine of its own if there are enough.
    pub(super) fn engine(&self, direction: Direction) -> u8 {
        let wanted = match direction {
            Direction::HostToDevice => 0,
            Direction::DeviceToHost => 1,
            Direction::Peer => 2,
        };
        if u32::from(wanted) < self.copy_engines { wanted } else { 0 }
    }

    /// Returns the time that the device records in an event at an instant of the host's clock.
    pub(super) fn event_time(&self, ns: u64) -> u64 {
        let skewed = i128::from(ns) + i128::from(ns) * i128::from(self.event_skew_ppm) / 1_000_000;
        let skewed = u64::try_from(skewed.max(0)).unwrap_or(u64::MAX);
        let step = self.event_resolution_ns.max(1);
        skewed - skewed % step
    }
}

/// Direction of a copy on a copy engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From host memory to this device.
    HostToDevice,
    /// From this device to host memory.
    DeviceToHost,
    /// From this device to another device.
    Peer,
}

fn transfer_ns(bytes: u64, bytes_per_us: u64) -> u64 {
    let ns = u128::from(bytes) * 1000 / u128::from(bytes_per_us.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
