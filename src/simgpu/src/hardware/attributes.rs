//! Device attributes. The values are like those of a large data-centre device of compute capability 9.0.

/// The highest attribute number with an answer.
const LAST: u32 = 162;

/// Values by attribute number. Attributes that are not in the list are 0.
const VALUES: &[(u32, i32)] = &[
    // Blocks and grids.
    (1, 1024),
    (2, 1024),
    (3, 1024),
    (4, 64),
    (5, i32::MAX),
    (6, 65_535),
    (7, 65_535),
    // Shared and constant memory, registers, clocks, processors.
    (8, 49_152),
    (9, 65_536),
    (10, 32),
    (11, i32::MAX),
    (12, 65_536),
    (13, 1_980_000),
    (14, 512),
    (15, 1),
    (16, 132),
    (19, 1),
    // Textures and surfaces.
    (21, 131_072),
    (22, 131_072),
    (23, 65_536),
    (24, 16_384),
    (25, 16_384),
    (26, 16_384),
    (27, 32_768),
    (28, 32_768),
    (29, 2048),
    (30, 512),
    (31, 1),
    (32, 1),
    (36, 2_619_000),
    (37, 5120),
    (38, 52_428_800),
    (39, 2048),
    (40, 2),
    (41, 1),
    (42, 32_768),
    (43, 2048),
    (44, 1),
    (45, 32_768),
    (46, 32_768),
    (47, 8192),
    (48, 8192),
    (49, 32_768),
    (51, 32),
    (52, 32_768),
    (53, 32_768),
    (54, 2046),
    (55, 32_768),
    (56, 131_072),
    (57, 65_536),
    (58, 16_384),
    (59, 16_384),
    (60, 16_384),
    (61, 32_768),
    (62, 2048),
    (63, 32_768),
    (64, 32_768),
    (65, 2048),
    (66, 32_768),
    (67, 32_768),
    (68, 2046),
    (69, 268_435_456),
    (70, 131_072),
    (71, 65_000),
    (72, 2_097_120),
    (73, 32_768),
    (74, 32_768),
    // Compute capability, and the limits that follow from it.
    (75, 9),
    (76, 0),
    (77, 32_768),
    (78, 1),
    (79, 1),
    (80, 1),
    (81, 233_472),
    (82, 65_536),
    (83, 1),
    (87, 2),
    (89, 1),
    (90, 1),
    (91, 1),
    (92, 1),
    (93, 1),
    (94, 1),
    (95, 1),
    (97, 232_448),
    (98, 1),
    (99, 1),
    // Virtual memory with file descriptors as handles.
    (102, 1),
    (103, 1),
    (106, 32),
    (108, 32_768_000),
    (109, 134_213_632),
    (111, 1024),
    (112, 1),
    (113, 1),
    // Pools without export.
    (115, 1),
    (120, 1),
    (121, 1),
    (122, 1),
    (123, 1),
    (125, 1),
    (126, 4),
    (127, 1),
    (129, 1),
    (131, -1),
    (134, -1),
    (139, 0x2330_10de),
    (140, 0x16c1_10de),
    (144, 1),
    (145, 1),
];

/// Returns an attribute of a device. `None`: no attribute has this number.
pub(crate) fn device(attribute: u32, device: usize) -> Option<i32> {
    if attribute == 0 || attribute >= LAST {
        return None;
    }
    if attribute == 33 {
        return i32::try_from(crate::hardware::texts::bus(device)).ok();
    }
    Some(VALUES.iter().find(|(number, _)| *number == attribute).map_or(0, |(_, value)| *value))
}

/// Number of multiprocessors of a device.
pub(crate) const PROCESSORS: u32 = 132;
/// Number of threads that one multiprocessor holds.
pub(crate) const THREADS_PER_PROCESSOR: u32 = 2048;
/// Number of blocks that one multiprocessor holds.
pub(crate) const BLOCKS_PER_PROCESSOR: u32 = 32;
/// Shared memory of one multiprocessor, in bytes.
pub(crate) const SHARED_PER_PROCESSOR: u32 = 233_472;
/// Largest shared memory of a block that asks for more than the default, in bytes.
pub(crate) const SHARED_OPT_IN: u32 = 232_448;
/// Largest number of threads in a block.
pub(crate) const THREADS_PER_BLOCK: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_has_a_value_and_no_other_number_has() {
        assert!((1..LAST).all(|attribute| device(attribute, 0).is_some()));
        assert_eq!(device(0, 0), None);
        assert_eq!(device(LAST, 0), None);
        assert_ne!(device(33, 0), device(33, 1));
    }
}
