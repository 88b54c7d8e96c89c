//! What did the dead hold that the device does not have back yet?
//!
//! A driver gives the memory of a killed process back some time after its death: 50 to 500 ms were seen, sometimes more
//! (unslothai/unsloth#5693, sgl-project/sglang#39545). Until then it *leaves*: it counts as held, so that nobody is granted
//! memory that is not there. An entry in the table of shares has its bytes, and counts before the dead process's word is
//! cleared, as an heir does.
//!
//! When is it back? The device's free memory and what the slice holds together are its *room*. What the slice takes or gives
//! back leaves the room as it is. While memory leaves, free memory and what the living hold are less than the room by as
//! much.
//!
//! A reservation counts before the driver takes the memory and until the driver has it back. So a reading of the room is too
//! high while calls are under way, and never too low: the least of the last minute counts ([`ROOM_KEPT`]). The ledger may
//! have counted a context of the dead as more than the driver took. So it is enough that most is back ([`MISSING_PART`]).
//! Neighbours move free memory too, so the wait has a bound: after [`LEAVING`] nothing leaves any more.
//!
//! Where no member has noted the room, nothing leaves.

use crate::layout::Layout;

/// How long memory of the dead leaves at most, in nanoseconds. Guessed: four times as long as most reports say.
pub const LEAVING: u64 = 2_000_000_000;

/// How long the least reading of the room counts, in nanoseconds. Guessed: neighbours that give memory back make the room
/// larger, which is seen this much later; a process that never rests is seen at rest in that time.
const ROOM_KEPT: u64 = 60_000_000_000;

/// One part in so many of what leaves may be missing when it counts as back. Derived: the size of a context is known within
/// 15 %, and most of what a process holds is no context.
const MISSING_PART: u64 = 8;

/// Whether an instant is less than [`LEAVING`] ago. Instants of another boot may lie in the future.
pub(crate) fn is_recent(then: u64, now: u64) -> bool {
    now.checked_sub(then).is_some_and(|since| since < LEAVING)
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Notes the bytes that a dead process held as leaving. Needs the join lock, and comes before its words are cleared: a
    /// process that is killed in between leaves bytes that count twice until they are back.
    pub(crate) fn begin_leaving(&self, slot: usize, now: u64) {
        for device in 0..self.device_count() {
            let (held, entry) = (self.held_by(device, slot), self.devices.get(device));
            let Some(entry) = entry.filter(|_| held > 0) else { continue };
            entry.holder_died_at.set(now);
            if entry.available.get() > 0 {
                self.enter_left(slot, device, now, held);
            }
        }
    }

    /// Bytes that leave a device.
    pub(crate) fn leaving(&self, device: usize, now: u64) -> u64 {
        let recent = self.left(device).filter(|share| is_recent(share.key.get(), now));
        recent.fold(0, |sum, share| sum.saturating_add(share.bytes.get()))
    }

    /// Bytes of all entries, those too that have left for long enough.
    pub(crate) fn all_left(&self, device: usize) -> u64 {
        self.left(device).fold(0, |sum, share| sum.saturating_add(share.bytes.get()))
    }

    /// Ends what has left for long enough. Returns how many entries that were.
    pub(crate) fn end_expired(&self, now: u64) -> usize {
        (0..self.device_count()).map(|device| self.end_left_entries(device, |at| !is_recent(at, now))).sum()
    }

    /// Ends what leaves a device that has so much free memory, if all of it is back. Returns whether anything ended.
    pub(crate) fn end_if_back(&self, device: usize, free: u64) -> bool {
        let Some(room) = self.devices.get(device).and_then(|entry| entry.available.get().checked_sub(1))
        else {
            return false;
        };
        // Before the sum: what begins to leave meanwhile is not taken for back.
        let gone = self.all_left(device);
        let living = self.held(device).saturating_sub(gone);
        let missing = room.saturating_sub(free.saturating_add(living));
        missing <= gone / MISSING_PART && self.end_left_entries(device, |_| true) > 0
    }

    /// Notes a reading of the room of a device, unless memory leaves it.
    pub(crate) fn note_available(&self, device: usize, room: u64, now: u64) {
        let Some(entry) = self.devices.get(device).filter(|_| self.leaving(device, now) == 0) else { return };
        let word = room.saturating_add(1);
        let (known, age) = (entry.available.get(), now.checked_sub(entry.available_at.get()));
        if word <= known || known == 0 || age.is_none_or(|age| age > ROOM_KEPT) {
            entry.available.set(word);
            entry.available_at.set(now);
        }
    }

    /// A device has taken the place of another one in the table: nothing of the other's is known of it.
    pub(crate) fn forget_leaving(&self, device: usize) {
        self.end_left_entries(device, |_| true);
        if let Some(entry) = self.devices.get(device) {
            entry.holder_died_at.set(0);
            entry.available.set(0);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const START: u64 = 1 << 40;

    fn layout() -> Layout<1, 1, 1> {
        Layout {
            header: Default::default(),
            devices: Default::default(),
            slots: Default::default(),
            held: Default::default(),
            quota_denials: Default::default(),
            shares: Default::default(),
            time: Default::default(),
        }
    }

    #[test]
    fn the_least_room_of_the_last_minute_counts() {
        let layout = layout();
        let after = |room, now| {
            layout.note_available(0, room, START + now);
            layout.devices[0].available.get().checked_sub(1).unwrap()
        };
        assert_eq!(after(500, 0), 500);
        assert_eq!(after(700, 1), 500, "calls were under way");
        assert_eq!(after(400, ROOM_KEPT), 400, "a neighbour has taken memory");
        assert_eq!(after(400, ROOM_KEPT + 5), 400);
        assert_eq!(after(600, 2 * ROOM_KEPT + 5), 400);
        assert_eq!(after(600, 2 * ROOM_KEPT + 6), 600, "a neighbour has given memory back");
        layout.note_available(0, 900, START - 1);
        assert_eq!(layout.devices[0].available.get(), 901, "an instant of another boot");
    }
}
