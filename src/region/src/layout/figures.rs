//! Offsets and sizes of the layout by name, for the test that compares them with the header for C.

use crate::{
    layout::{
        compute_words::{DeviceTime, Moment, Place, ProcessTime},
        constants::{
            HOST_MEMORY, MAX_DEVICES, MAX_SHARES, MAX_SLOTS, OVERSUBSCRIBED, PLACES, SECONDS, UNPACED,
            VERSION,
        },
        structs::{Debt, DeviceEntry, Layout, SIZE, Share, Slot, held_lines},
    },
    sync::atomics::{HeldWord, Word32},
};

/// Name and value of everything that `include/gpuslice.h` repeats, for the test that compares the two.
pub const FIGURES: [(&str, usize); 111] = {
    use core::mem::offset_of;
    type Time = DeviceTime<MAX_SLOTS>;
    [
        ("version", VERSION as usize),
        ("size", SIZE),
        ("slots", MAX_SLOTS),
        ("devices", MAX_DEVICES),
        ("shares", MAX_SHARES),
        ("places", PLACES),
        ("oversubscribed", OVERSUBSCRIBED as usize),
        ("unpaced", UNPACED as usize),
        ("host_memory", HOST_MEMORY as usize),
        ("seconds", SECONDS),
        ("header.magic", offset_of!(Layout, header.magic)),
        ("header.version", offset_of!(Layout, header.version)),
        ("header.ready", offset_of!(Layout, header.ready)),
        ("header.size", offset_of!(Layout, header.size)),
        ("header.epoch", offset_of!(Layout, header.epoch)),
        ("header.claimed", offset_of!(Layout, header.claimed)),
        ("header.device_count", offset_of!(Layout, header.device_count)),
        ("header.joiner", offset_of!(Layout, header.joiner)),
        ("header.shared", offset_of!(Layout, header.shared)),
        ("header.moves", offset_of!(Layout, header.moves)),
        ("header.unpaced", offset_of!(Layout, header.unpaced)),
        ("header.boot", offset_of!(Layout, header.boot)),
        ("header.keeper", offset_of!(Layout, header.keeper)),
        ("debts.offset", offset_of!(Layout, header.debts)),
        ("debt.size", size_of::<Debt>()),
        ("debt.uuid", offset_of!(Debt, uuid)),
        ("debt.paid_until", offset_of!(Debt, paid_until)),
        ("debt.burst", offset_of!(Debt, burst)),
        ("debt.cores_permille", offset_of!(Debt, cores_permille)),
        ("devices.offset", offset_of!(Layout, devices)),
        ("device.size", size_of::<DeviceEntry>()),
        ("device.uuid", offset_of!(DeviceEntry, uuid)),
        ("device.total", offset_of!(DeviceEntry, total)),
        ("device.memory_limit", offset_of!(DeviceEntry, memory_limit)),
        ("device.cores_permille", offset_of!(DeviceEntry, cores_permille)),
        ("device.context_bytes", offset_of!(DeviceEntry, context_bytes)),
        ("device.burst", offset_of!(DeviceEntry, burst)),
        ("device.sharing", offset_of!(DeviceEntry, sharing)),
        ("device.peak", offset_of!(DeviceEntry, peak)),
        ("device.refused", offset_of!(DeviceEntry, refused)),
        ("device.unmet", offset_of!(DeviceEntry, unmet)),
        ("device.oversubscribe", offset_of!(DeviceEntry, oversubscribe)),
        ("device.host_memory", offset_of!(DeviceEntry, host_memory)),
        ("device.left_at", offset_of!(DeviceEntry, left_at)),
        ("device.room", offset_of!(DeviceEntry, room)),
        ("device.room_at", offset_of!(DeviceEntry, room_at)),
        ("slots.offset", offset_of!(Layout, slots)),
        ("slot.size", size_of::<Slot>()),
        ("slot.state", offset_of!(Slot, state)),
        ("slot.pid", offset_of!(Slot, pid)),
        ("slot.start", offset_of!(Slot, start)),
        ("slot.pid_namespace", offset_of!(Slot, pid_namespace)),
        ("slot.making", offset_of!(Slot, making)),
        ("held.offset", offset_of!(Layout, held)),
        ("held.lines", held_lines(MAX_SLOTS)),
        ("held.row", size_of::<[HeldWord; MAX_SLOTS]>()),
        ("refused.offset", offset_of!(Layout, refused)),
        ("refused.row", size_of::<[Word32; MAX_DEVICES]>()),
        ("shares.offset", offset_of!(Layout, shares)),
        ("share.size", size_of::<Share>()),
        ("share.state", offset_of!(Share, state)),
        ("share.key", offset_of!(Share, key)),
        ("share.bytes", offset_of!(Share, bytes)),
        ("time.offset", offset_of!(Layout, time)),
        ("time.size", size_of::<Time>()),
        ("time.paid_until", offset_of!(Time, paid.0.until)),
        ("time.free_from", offset_of!(Time, paid.0.free_from)),
        ("time.virtual_time", offset_of!(Time, virtual_time)),
        ("time.bell", offset_of!(Time, bell)),
        ("time.places", offset_of!(Time, places)),
        ("time.overlap", offset_of!(Time, overlap)),
        ("time.factor", offset_of!(Time, readings.0.factor)),
        ("time.meter", offset_of!(Time, readings.0.meter)),
        ("time.told", offset_of!(Time, readings.0.told)),
        ("time.elected", offset_of!(Time, sampler.0.elected)),
        ("time.paid_at", offset_of!(Time, step.0.paid_at)),
        ("time.kept_since", offset_of!(Time, step.0.kept_since)),
        ("time.kept_until", offset_of!(Time, step.0.kept_until)),
        ("time.step_until", offset_of!(Time, step.0.lasts_until)),
        ("time.overdue_at", offset_of!(Time, step.0.overdue_at)),
        ("time.ahead_at", offset_of!(Time, step.0.ahead_at)),
        ("time.ahead_until", offset_of!(Time, step.0.ahead_until)),
        ("time.ring", offset_of!(Time, ring)),
        ("place.size", size_of::<Place>()),
        ("place.ticket", offset_of!(Place, ticket)),
        ("place.start", offset_of!(Place, start)),
        ("place.rest", offset_of!(Place, rest)),
        ("place.check", offset_of!(Place, check)),
        ("time.history", offset_of!(Time, history)),
        ("moment.size", size_of::<Moment>()),
        ("moment.second", offset_of!(Moment, second)),
        ("moment.used", offset_of!(Moment, used)),
        ("moment.throttled", offset_of!(Moment, throttled)),
        ("time.processes", offset_of!(Time, processes)),
        ("process.size", size_of::<ProcessTime>()),
        ("process.served", offset_of!(ProcessTime, served)),
        ("process.wants", offset_of!(ProcessTime, wants)),
        ("process.sleeps_until", offset_of!(ProcessTime, sleeps_until)),
        ("process.outstanding", offset_of!(ProcessTime, outstanding)),
        ("process.settled_at", offset_of!(ProcessTime, settled_at)),
        ("process.queued", offset_of!(ProcessTime, queued)),
        ("process.used", offset_of!(ProcessTime, counts.used)),
        ("process.throttled", offset_of!(ProcessTime, counts.throttled)),
        ("process.copied", offset_of!(ProcessTime, counts.copied)),
        ("process.launches", offset_of!(ProcessTime, counts.launches)),
        ("process.used_before", offset_of!(ProcessTime, before.used)),
        ("process.throttled_before", offset_of!(ProcessTime, before.throttled)),
        ("process.copied_before", offset_of!(ProcessTime, before.copied)),
        ("process.launches_before", offset_of!(ProcessTime, before.launches)),
        ("process.spilled", offset_of!(ProcessTime, spilled)),
        ("process.contexts", offset_of!(ProcessTime, contexts)),
    ]
};

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Layout, header.ready) == 12);
    assert!(offset_of!(Layout, header.size) == 16);
    assert!(offset_of!(Layout, header.claimed) == 32);
    assert!(offset_of!(Layout, header.joiner) == 40);
    assert!(offset_of!(Layout, header.shared) == 44);
    assert!(offset_of!(Layout, header.moves) == 48);
    assert!(offset_of!(Layout, devices) == 4096);
    assert!(offset_of!(DeviceEntry, cores_permille) == 32);
    assert!(offset_of!(DeviceEntry, context_bytes) == 40);
    assert!(offset_of!(Layout, slots) == 12_288);
    assert!(offset_of!(DeviceEntry, room) == 104);
    assert!(offset_of!(Slot, making) == 24);
    assert!(offset_of!(Layout, held) == 143_360);
    assert!(offset_of!(Layout, refused) == 667_648);
    assert!(offset_of!(Layout, shares) == 929_792);
    assert!(size_of::<Share>() == 32);
    assert!(offset_of!(DeviceEntry, burst) == 48);
    assert!(offset_of!(Layout, time) == 1_060_864);
    assert!(offset_of!(ProcessTime, contexts) == 120);
    assert!(size_of::<DeviceTime<MAX_SLOTS>>() == 167_936);
    assert!(SIZE == 11_808_768);
};
