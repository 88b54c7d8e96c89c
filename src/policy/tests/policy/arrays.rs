//! Properties of the size of every array, with random descriptors.

use gpuslice_policy::sizes::array::ArrayShape;
use proptest::prelude::*;

const FORMATS: &[u32] = &[
    0x01, 0x02, 0x03, 0x08, 0x09, 0x0a, 0x10, 0x20, 0x50, 0x91, 0x93, 0x95, 0x97, 0x99, 0x9c, 0x9e, 0x9f,
    0xa1, 0xa5, 0xb0, 0xb1, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xcb, 0xdead,
];

/// Generates extents of all magnitudes, including extents that no array has.
fn extent() -> impl Strategy<Value = u64> {
    prop_oneof![4 => (0_u32..18, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1)), 1 => any::<u64>()]
}

fn shape() -> impl Strategy<Value = ArrayShape> {
    let extents = (extent(), extent(), extent());
    let kind = (prop::sample::select(FORMATS), prop_oneof![0_u32..5, any::<u32>()], any::<u32>());
    (extents, kind).prop_map(|((width, height, depth), (format, channels, flags))| ArrayShape {
        width,
        height,
        depth,
        format,
        channels,
        flags,
    })
}

/// Returns the bytes of the texels alone, for an array with one level. `None`: the number does not fit.
fn tight(shape: &ArrayShape) -> Option<u64> {
    let channels = u64::from(shape.channels);
    let texels = shape.width.max(1).checked_mul(shape.height.max(1))?.checked_mul(shape.depth.max(1))?;
    let bytes = match shape.format {
        0x01 | 0x08 => texels.checked_mul(channels)?,
        0x02 | 0x09 | 0x10 => texels.checked_mul(channels)?.checked_mul(2)?,
        0x03 | 0x0a | 0x20 => texels.checked_mul(channels)?.checked_mul(4)?,
        // Compressed texels have at least half a byte each.
        0x91..=0x9e => texels / 2,
        _ => texels,
    };
    Some(bytes)
}

proptest! {
    #[test]
    fn no_array_is_free_or_smaller_than_its_texels(shape in shape(), levels in any::<u32>()) {
        let size = shape.at_most(levels);
        prop_assert!(size >= 64 << 10);
        prop_assert!(size == u64::MAX || size.is_multiple_of(64 << 10));
        prop_assert!(size >= tight(&shape).unwrap_or(u64::MAX));
    }

    #[test]
    fn more_of_anything_takes_no_less(shape in shape(), levels in 0_u32..70, more in extent()) {
        let size = shape.at_most(levels);
        let channels = shape.channels.saturating_add(u32::try_from(more & 3).unwrap_or(0));
        for larger in [
            ArrayShape { width: shape.width.saturating_add(more), ..shape },
            ArrayShape { height: shape.height.saturating_add(more), ..shape },
            ArrayShape { depth: shape.depth.saturating_add(more), ..shape },
            ArrayShape { channels, ..shape },
        ] {
            prop_assert!(larger.at_most(levels) >= size, "{larger:?}");
        }
        prop_assert!(shape.at_most(levels.saturating_add(1)) >= size);
    }

    #[test]
    fn a_mip_chain_takes_at_most_three_levels_like_its_first_and_a_tile_for_each_further_one(
        width in 1_u64..1 << 14, height in 0_u64..1 << 14, levels in 1_u32..20,
    ) {
        let shape = ArrayShape { width, height, depth: 0, format: 0x20, channels: 1, flags: 0 };
        prop_assert!(shape.at_most(levels) <= 3 * shape.at_most(1) + 20 * 4096 * 256);
    }
}
