//! Copies and fills: finds the bytes that they concern, and moves the bytes.
//!
//! The bytes of an asynchronous copy move at once, when the copy is queued. Time passes as if they moved when the copy runs.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::engine::{Direction, Work};
use crate::model::arrays::MipLevel;
use crate::model::movement::{End, Movement, Side};
use crate::status::statuses;

/// A run of bytes that a movement reads or writes: an address that this process can access, and a length.
type AddressSpan = (u64, u64);

/// A movement whose addresses were checked and resolved.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The work that the movement puts into a queue of the engine.
    pub(crate) work: Work,
    spans: Vec<(Vec<AddressSpan>, Source)>,
}

#[derive(Debug)]
enum Source {
    Bytes(Vec<AddressSpan>),
    Pattern(u32, u64),
}

/// Which memory one side of a movement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndMemory {
    Host,
    Device(usize),
}

impl Movement {
    /// Checks all addresses of a movement, and finds the bytes behind them, row by row.
    pub(crate) fn prepare(
        &self,
        objects: &ProcessObjects,
        simulation: &Simulation,
    ) -> Result<Prepared, Status> {
        match *self {
            Self::Copy { to, from, width, height, depth } => {
                let (to_memory, from_memory) = (objects.memory_of(&to)?, objects.memory_of(&from)?);
                let mut spans = Vec::new();
                for row in 0..height.saturating_mul(depth) {
                    let (y, z) = (row % height, row / height);
                    let target = objects.spans(simulation, &to, y, z, width)?;
                    spans.push((target, Source::Bytes(objects.spans(simulation, &from, y, z, width)?)));
                }
                let bytes = width.saturating_mul(height).saturating_mul(depth);
                Ok(Prepared { work: copy_work(to_memory, from_memory, bytes), spans })
            }
            Self::Fill { to, pitch, value, element, width, height } => {
                let row = width.checked_mul(element).ok_or(status::INVALID_VALUE)?;
                let mut spans = Vec::new();
                for y in 0..height {
                    let start = y.checked_mul(pitch).and_then(|offset| to.checked_add(offset));
                    let end = End::flat(Side::Device(start.ok_or(status::INVALID_VALUE)?));
                    spans
                        .push((objects.spans(simulation, &end, 0, 0, row)?, Source::Pattern(value, element)));
                }
                Ok(Prepared { work: Work::Fill { bytes: row.saturating_mul(height) }, spans })
            }
        }
    }
}

/// Returns the work of a copy. It is work of a copy engine, of the multiprocessors, or only a marker
/// between two places of the host.
fn copy_work(to: EndMemory, from: EndMemory, bytes: u64) -> Work {
    match (to, from) {
        (EndMemory::Device(_), EndMemory::Host) => Work::Copy { direction: Direction::HostToDevice, bytes },
        (EndMemory::Host, EndMemory::Device(_)) => Work::Copy { direction: Direction::DeviceToHost, bytes },
        (EndMemory::Device(a), EndMemory::Device(b)) if a == b => Work::Fill { bytes },
        (EndMemory::Device(_), EndMemory::Device(_)) => Work::Copy { direction: Direction::Peer, bytes },
        (EndMemory::Host, EndMemory::Host) => Work::Marker,
    }
}

impl Prepared {
    /// Returns true if the movement touches no host memory.
    pub(crate) fn stays_on_devices(&self) -> bool {
        matches!(self.work, Work::Fill { .. } | Work::Copy { direction: Direction::Peer, .. })
    }

    /// Moves the bytes.
    pub(crate) fn perform(&self) {
        for (to, source) in &self.spans {
            match source {
                Source::Bytes(from) => copy(to, from),
                Source::Pattern(value, element) => to.iter().for_each(|span| fill(*span, *value, *element)),
            }
        }
    }
}

fn bytes(address: u64) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// Copies the bytes of one list of spans to the spans of another list. Both lists have the same number of bytes together.
fn copy(to: &[AddressSpan], from: &[AddressSpan]) {
    let (mut targets, mut sources) = (to.iter().copied(), from.iter().copied());
    let (mut target, mut source) = (targets.next(), sources.next());
    while let (Some((to, room)), Some((from, left))) = (target, source) {
        let length = room.min(left);
        // SAFETY: `copy` needs `length` readable and `length` writable bytes, which may overlap. `prepare` found both spans in
        // the simulation's memory, or they are memory of the program, which the driver API requires to be valid.
        unsafe { core::ptr::copy(bytes(from), bytes(to), usize::try_from(length).unwrap_or(0)) };
        target = if room > length { Some((to + length, room - length)) } else { targets.next() };
        source = if left > length { Some((from + length, left - length)) } else { sources.next() };
    }
}

fn fill((address, length): AddressSpan, value: u32, element: u64) {
    let length = usize::try_from(length).unwrap_or(0);
    // SAFETY: `from_raw_parts_mut` needs `length` writable bytes: `prepare` found the span in the simulation's memory.
    let target = unsafe { core::slice::from_raw_parts_mut(bytes(address), length) };
    let [a, b, c, d] = value.to_le_bytes();
    match element {
        1 => target.fill(a),
        2 => target.chunks_exact_mut(2).for_each(|chunk| chunk.copy_from_slice(&[a, b])),
        _ => target.chunks_exact_mut(4).for_each(|chunk| chunk.copy_from_slice(&[a, b, c, d])),
    }
}

impl ProcessObjects {
    /// Returns the memory that one side of a copy is in.
    fn memory_of(&self, end: &End) -> Result<EndMemory, Status> {
        match end.side {
            Side::Host(_) => Ok(EndMemory::Host),
            Side::Array(array) => Ok(EndMemory::Device(self.arrays.device_of(array)?)),
            Side::Device(address) => match self.regions.around(address) {
                Some((_, region)) => Ok(region.device.map_or(EndMemory::Host, EndMemory::Device)),
                None if self.regions.host_around(address).is_some() => Ok(EndMemory::Host),
                None => Err(status::INVALID_VALUE),
            },
        }
    }

    /// Returns the bytes of one row on one side of a copy. `y` and `z` count rows and slices from the start of the copy, and
    /// `width` is the length of the row.
    fn spans(
        &self,
        simulation: &Simulation,
        end: &End,
        y: u64,
        z: u64,
        width: u64,
    ) -> Result<Vec<AddressSpan>, Status> {
        let arena = |address: u64| simulation.arena.host(address).expose_provenance() as u64;
        let (y, z) = (end.y.saturating_add(y), end.z.saturating_add(z));
        // Returns the address of the row. Returns `None` if the row goes beyond the last address.
        let row = |base: u64| {
            let rows = z.checked_mul(end.height)?.checked_add(y)?;
            let start = rows.checked_mul(end.pitch)?.checked_add(end.x)?.checked_add(base)?;
            start.checked_add(width).map(|_| start)
        };
        match end.side {
            Side::Host(0) => Err(status::INVALID_VALUE),
            Side::Host(base) => Ok(vec![(row(base).ok_or(status::INVALID_VALUE)?, width)]),
            Side::Array(array) => {
                let level: MipLevel = self.arrays.level(array)?;
                let start = level.place(end.x, y, z, width).ok_or(status::INVALID_VALUE)?;
                Ok(vec![(arena(start), width)])
            }
            Side::Device(base) => {
                let start = row(base).ok_or(status::INVALID_VALUE)?;
                if let Some(parts) = self.regions.parts(start, width) {
                    return Ok(parts.into_iter().map(|(at, length)| (arena(at), length)).collect());
                }
                let (host, block) = self.regions.host_around(start).ok_or(status::INVALID_VALUE)?;
                let fits = start - host + width <= block.size;
                if fits { Ok(vec![(start, width)]) } else { Err(status::INVALID_VALUE) }
            }
        }
    }

    /// Returns a side for an address that may be of a device or of the host.
    pub(crate) fn either(&self, address: u64) -> Side {
        if self.regions.around(address).is_some() { Side::Device(address) } else { Side::Host(address) }
    }

    /// Checks the handle of an array, for copies that move no bytes.
    pub(crate) fn check_array(&self, array: u64) -> Result<(), Status> {
        self.arrays.level(array).map(|_| ()).map_err(|_| statuses::INVALID_HANDLE)
    }
}
