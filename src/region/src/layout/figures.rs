//! Offsets and sizes of the layout by name. A test compares them with the header for C and with `docs/internals/region.md`.

use crate::{
    layout::{
        compute_words::{DeviceTime, IntervalSlot, ProcessTime, UsageSample},
        constants::{
            HOST_MEMORY, INTERVALS, MAX_DEVICES, MAX_SHARES, MAX_SLOTS, OVERSUBSCRIBED, SECONDS, UNLIMITED,
            VERSION,
        },
        structs::{Debt, DeviceEntry, Layout, SIZE, Share, Slot, held_lines},
    },
    sync::atomics::{HeldWord, Word32},
};

/// Name and value of each constant, offset and size that `include/gpuslice.h` repeats.
pub const FIGURES: [(&str, usize); 116] = {
    use core::mem::offset_of;
    type Time = DeviceTime<MAX_SLOTS>;
    [
        ("version", VERSION as usize),
        ("size", SIZE),
        ("slots", MAX_SLOTS),
        ("devices", MAX_DEVICES),
        ("shares", MAX_SHARES),
        ("intervals", INTERVALS),
        ("oversubscribed", OVERSUBSCRIBED as usize),
        ("unlimited", UNLIMITED as usize),
        ("host_memory", HOST_MEMORY as usize),
        ("seconds", SECONDS),
        ("header.magic", offset_of!(Layout, header.magic)),
        ("header.version", offset_of!(Layout, header.version)),
        ("header.ready", offset_of!(Layout, header.ready)),
        ("header.size", offset_of!(Layout, header.size)),
        ("header.epoch", offset_of!(Layout, header.epoch)),
        ("header.slot_high_water", offset_of!(Layout, header.slot_high_water)),
        ("header.device_count", offset_of!(Layout, header.device_count)),
        ("header.last_joiner_pid", offset_of!(Layout, header.last_joiner_pid)),
        ("header.share_high_water", offset_of!(Layout, header.share_high_water)),
        ("header.transfer_seq", offset_of!(Layout, header.transfer_seq)),
        ("header.unlimited_hint", offset_of!(Layout, header.unlimited_hint)),
        ("header.boot", offset_of!(Layout, header.boot)),
        ("header.reaper", offset_of!(Layout, header.reaper)),
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
        ("device.quota_denials", offset_of!(DeviceEntry, quota_denials)),
        ("device.device_denials", offset_of!(DeviceEntry, device_denials)),
        ("device.oversubscribe", offset_of!(DeviceEntry, oversubscribe)),
        ("device.host_memory", offset_of!(DeviceEntry, host_memory)),
        ("device.holder_died_at", offset_of!(DeviceEntry, holder_died_at)),
        ("device.available", offset_of!(DeviceEntry, available)),
        ("slots.offset", offset_of!(Layout, slots)),
        ("slot.size", size_of::<Slot>()),
        ("slot.state", offset_of!(Slot, state)),
        ("slot.pid", offset_of!(Slot, pid)),
        ("slot.start", offset_of!(Slot, start)),
        ("slot.pid_namespace", offset_of!(Slot, pid_namespace)),
        ("slot.context_creations", offset_of!(Slot, context_creations)),
        ("slot.memory_calls", offset_of!(Slot, memory_calls)),
        ("held.offset", offset_of!(Layout, held)),
        ("held.lines", held_lines(MAX_SLOTS)),
        ("held.row", size_of::<[HeldWord; MAX_SLOTS]>()),
        ("quota_denials.offset", offset_of!(Layout, quota_denials)),
        ("quota_denials.row", size_of::<[Word32; MAX_DEVICES]>()),
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
        ("time.wake_seq", offset_of!(Time, wake_seq)),
        ("time.overlap", offset_of!(Time, overlap)),
        ("time.correction_millionths", offset_of!(Time, control.0.correction_millionths)),
        ("time.measure_source", offset_of!(Time, control.0.measure_source)),
        ("time.grant", offset_of!(Time, control.0.grant)),
        ("time.divided_at", offset_of!(Time, control.0.divided_at)),
        ("time.programs_at", offset_of!(Time, control.0.programs_at)),
        ("time.sampler_lease", offset_of!(Time, sampler.0.lease)),
        ("time.last_payment_at", offset_of!(Time, coupling.0.last_payment_at)),
        ("time.throttled_from", offset_of!(Time, coupling.0.throttled_from)),
        ("time.throttled_until", offset_of!(Time, coupling.0.throttled_until)),
        ("time.coupled_until", offset_of!(Time, coupling.0.coupled_until)),
        ("time.overrun_seen_at", offset_of!(Time, coupling.0.overrun_seen_at)),
        ("time.overdraft_at", offset_of!(Time, coupling.0.overdraft_at)),
        ("time.overdraft_paid_until", offset_of!(Time, coupling.0.overdraft_paid_until)),
        ("time.round", offset_of!(Time, coupling.0.round)),
        ("time.interval_head", offset_of!(Time, intervals.head)),
        ("time.intervals", offset_of!(Time, intervals.slots)),
        ("time.relayed_head", offset_of!(Time, relayed.head)),
        ("time.relayed", offset_of!(Time, relayed.slots)),
        ("interval.size", size_of::<IntervalSlot>()),
        ("interval.ticket", offset_of!(IntervalSlot, ticket)),
        ("interval.start", offset_of!(IntervalSlot, start)),
        ("interval.packed", offset_of!(IntervalSlot, packed)),
        ("interval.checksum", offset_of!(IntervalSlot, checksum)),
        ("time.history", offset_of!(Time, history)),
        ("sample.size", size_of::<UsageSample>()),
        ("sample.second", offset_of!(UsageSample, second)),
        ("sample.charged_ns", offset_of!(UsageSample, charged_ns)),
        ("sample.throttled_ns", offset_of!(UsageSample, throttled_ns)),
        ("time.processes", offset_of!(Time, processes)),
        ("process.size", size_of::<ProcessTime>()),
        ("process.virtual_service", offset_of!(ProcessTime, virtual_service)),
        ("process.requested_ns", offset_of!(ProcessTime, requested_ns)),
        ("process.sleep_deadline", offset_of!(ProcessTime, sleep_deadline)),
        ("process.unsettled_ns", offset_of!(ProcessTime, unsettled_ns)),
        ("process.settled_at", offset_of!(ProcessTime, settled_at)),
        ("process.queued_ns", offset_of!(ProcessTime, queued_ns)),
        ("process.charged_ns", offset_of!(ProcessTime, counts.charged_ns)),
        ("process.throttled_ns", offset_of!(ProcessTime, counts.throttled_ns)),
        ("process.copied_ns", offset_of!(ProcessTime, counts.copied_ns)),
        ("process.launches", offset_of!(ProcessTime, counts.launches)),
        ("process.charged_ns_at_join", offset_of!(ProcessTime, at_join.charged_ns)),
        ("process.throttled_ns_at_join", offset_of!(ProcessTime, at_join.throttled_ns)),
        ("process.copied_ns_at_join", offset_of!(ProcessTime, at_join.copied_ns)),
        ("process.launches_at_join", offset_of!(ProcessTime, at_join.launches)),
        ("process.spilled_bytes", offset_of!(ProcessTime, spilled_bytes)),
        ("process.context_bytes", offset_of!(ProcessTime, context_bytes)),
    ]
};

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Layout, header.ready) == 12);
    assert!(offset_of!(Layout, header.size) == 16);
    assert!(offset_of!(Layout, header.slot_high_water) == 32);
    assert!(offset_of!(Layout, header.last_joiner_pid) == 40);
    assert!(offset_of!(Layout, header.share_high_water) == 44);
    assert!(offset_of!(Layout, header.transfer_seq) == 48);
    assert!(offset_of!(Layout, devices) == 4096);
    assert!(offset_of!(DeviceEntry, cores_permille) == 32);
    assert!(offset_of!(DeviceEntry, context_bytes) == 40);
    assert!(offset_of!(Layout, slots) == 12_288);
    assert!(offset_of!(DeviceEntry, available) == 104);
    assert!(offset_of!(Slot, context_creations) == 24);
    assert!(offset_of!(Slot, memory_calls) == 32);
    assert!(offset_of!(Layout, held) == 143_360);
    assert!(offset_of!(Layout, quota_denials) == 667_648);
    assert!(offset_of!(Layout, shares) == 929_792);
    assert!(size_of::<Share>() == 32);
    assert!(offset_of!(DeviceEntry, burst) == 48);
    assert!(offset_of!(Layout, time) == 1_060_864);
    assert!(offset_of!(ProcessTime, context_bytes) == 120);
    assert!(size_of::<DeviceTime<MAX_SLOTS>>() == 200_704);
    assert!(SIZE == 13_905_920);
};
