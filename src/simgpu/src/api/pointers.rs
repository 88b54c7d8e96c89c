//! Attributes of device pointers.

use gpuslice_driver::types::*;

use crate::call::DriverCall;
use crate::model::regions::Origin;
use crate::status::Outcome;

/// The numbers in `CUpointer_attribute`.
mod attribute {
    pub(super) const CONTEXT: u32 = 1;
    pub(super) const MEMORY_TYPE: u32 = 2;
    pub(super) const DEVICE_POINTER: u32 = 3;
    pub(super) const HOST_POINTER: u32 = 4;
    pub(super) const SYNC_MEMOPS: u32 = 6;
    pub(super) const BUFFER_ID: u32 = 7;
    pub(super) const IS_MANAGED: u32 = 8;
    pub(super) const DEVICE_ORDINAL: u32 = 9;
    pub(super) const IS_LEGACY_IPC_CAPABLE: u32 = 10;
    pub(super) const RANGE_START: u32 = 11;
    pub(super) const RANGE_SIZE: u32 = 12;
    pub(super) const MAPPED: u32 = 13;
    pub(super) const ALLOWED_HANDLE_TYPES: u32 = 14;
    pub(super) const IS_RDMA_CAPABLE: u32 = 15;
    pub(super) const ACCESS_FLAGS: u32 = 16;
    pub(super) const POOL: u32 = 17;
    pub(super) const MAPPING_SIZE: u32 = 18;
    pub(super) const MAPPING_BASE: u32 = 19;
    pub(super) const MEMORY_BLOCK_ID: u32 = 20;
    pub(super) const IS_DECOMPRESS_CAPABLE: u32 = 21;
}

const HOST_MEMORY: u64 = 1;
const DEVICE_MEMORY: u64 = 2;

/// The facts from which all attributes follow.
struct Facts {
    base: u64,
    size: u64,
    context: u64,
    kind: u64,
    managed: bool,
    pool: u64,
    ordinal: i32,
    number: u64,
    host: u64,
}

impl DriverCall {
    fn facts(&self, address: u64) -> Result<Facts, Status> {
        let simulation = self.simulation()?;
        let objects = simulation.objects();
        if let Some((base, region)) = objects.regions.around(address) {
            let managed = region.origin == Origin::Managed;
            let pool = if let Origin::Pool(pool) = region.origin { pool } else { 0 };
            let kind = if region.device.is_some() { DEVICE_MEMORY } else { HOST_MEMORY };
            let ordinal = region.device.map_or(0, |device| simulation.ordinal(device));
            let host = if managed { address } else { 0 };
            let (size, context, number) = (region.size, region.context, region.number);
            return Ok(Facts { base, size, context, kind, managed, pool, ordinal, number, host });
        }
        let (base, block) = objects.regions.host_around(address).ok_or(status::INVALID_VALUE)?;
        let ordinal =
            objects.contexts.get(block.context).map_or(0, |context| simulation.ordinal(context.device));
        Ok(Facts {
            base,
            size: block.size,
            context: block.context,
            kind: HOST_MEMORY,
            managed: false,
            pool: 0,
            ordinal,
            number: base,
            host: address,
        })
    }

    /// Returns the value of an attribute as one word. [`DriverCall::write_attribute`] writes as many bytes as the attribute has.
    pub(super) fn pointer_attribute(&self, number: u32, address: u64) -> Result<u64, Status> {
        let facts = self.facts(address)?;
        Ok(match number {
            attribute::CONTEXT => facts.context,
            attribute::MEMORY_TYPE => facts.kind,
            attribute::DEVICE_POINTER => address,
            attribute::HOST_POINTER if facts.host != 0 => facts.host,
            attribute::SYNC_MEMOPS | attribute::ALLOWED_HANDLE_TYPES | attribute::IS_DECOMPRESS_CAPABLE => 0,
            attribute::BUFFER_ID | attribute::MEMORY_BLOCK_ID => facts.number,
            attribute::IS_MANAGED => u64::from(facts.managed),
            attribute::DEVICE_ORDINAL => facts.ordinal as u64,
            attribute::IS_LEGACY_IPC_CAPABLE => u64::from(facts.kind == DEVICE_MEMORY && !facts.managed),
            attribute::RANGE_START | attribute::MAPPING_BASE => facts.base,
            attribute::RANGE_SIZE | attribute::MAPPING_SIZE => facts.size,
            attribute::MAPPED => 1,
            attribute::IS_RDMA_CAPABLE => u64::from(facts.kind == DEVICE_MEMORY),
            attribute::ACCESS_FLAGS => 3,
            attribute::POOL => facts.pool,
            _ => return Err(status::INVALID_VALUE),
        })
    }

    /// Returns the value of an attribute for a pointer without memory.
    pub(super) fn nothing(number: u32) -> u64 {
        if number == attribute::DEVICE_ORDINAL { u64::from(u32::MAX - 1) } else { 0 }
    }

    /// Writes the value of an attribute, in as many bytes as the attribute has.
    pub(super) fn write_attribute(&self, to: *mut c_void, number: u32, value: u64) -> Outcome {
        match number {
            attribute::MEMORY_TYPE | attribute::DEVICE_ORDINAL | attribute::ACCESS_FLAGS => {
                self.write(to.cast::<u32>(), value as u32)
            }
            attribute::SYNC_MEMOPS
            | attribute::IS_MANAGED
            | attribute::IS_LEGACY_IPC_CAPABLE
            | attribute::MAPPED
            | attribute::IS_RDMA_CAPABLE
            | attribute::IS_DECOMPRESS_CAPABLE => self.write(to.cast::<u8>(), value as u8),
            _ => self.write(to.cast::<u64>(), value),
        }
    }
}
