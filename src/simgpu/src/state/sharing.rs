//! Which process is charged for memory that several processes use.
//!
//! The process that made the memory is charged as long as it uses the memory. After that, one of the remaining users is charged.
//! The memory exists until no process uses it any more.

use super::layout::{Export, KINDS, MemoryKind, State};
use super::sizes::PROCESSES;

impl Export {
    fn place(slot: usize) -> (usize, u64) {
        (slot / 64, 1 << (slot % 64))
    }

    fn set(&mut self, slot: usize, uses: bool) {
        let (word, bit) = Self::place(slot);
        if let Some(word) = self.users.get_mut(word) {
            *word = if uses { *word | bit } else { *word & !bit };
        }
    }

    /// Returns the kind of the shared memory.
    fn kind(&self) -> MemoryKind {
        let index = usize::try_from(self.kind).unwrap_or(KINDS);
        MemoryKind::ALL.get(index).copied().unwrap_or(MemoryKind::Vmm)
    }

    fn uses(&self, slot: usize) -> bool {
        let (word, bit) = Self::place(slot);
        self.users.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns a process that uses the memory, other than the one in `slot`.
    fn other_user(&self, slot: usize) -> Option<usize> {
        (0..PROCESSES).find(|other| *other != slot && self.uses(*other))
    }
}

impl State {
    /// Notes that a process lets others use memory that it is charged for. Returns the number of the new export, or
    /// `None` if there is no room for it.
    pub fn export(&mut self, slot: usize, device: usize, kind: MemoryKind, bytes: u64) -> Option<u64> {
        let number = self.exported + 1;
        let free = self.exports.iter_mut().find(|export| export.number == 0)?;
        let (device, owner) = (u32::try_from(device).ok()?, u32::try_from(slot).ok()?);
        let kind = kind as u64;
        *free = Export { bytes, device, owner, kind, ..Export::default() };
        free.set(slot, true);
        free.number = number;
        self.exported = number;
        Some(number)
    }

    fn shared(&mut self, number: u64) -> Option<&mut Export> {
        self.exports.iter_mut().find(|export| export.number == number && number != 0)
    }

    /// Notes that a process uses memory of another process. Returns false if the export does not exist any more.
    pub fn import(&mut self, slot: usize, number: u64) -> bool {
        self.shared(number).is_some_and(|export| {
            export.set(slot, true);
            true
        })
    }

    /// Notes that a process no longer uses shared memory. If it was the last user, the export ends. If it was charged and others
    /// still use the memory, one of them is charged from now on.
    pub fn leave(&mut self, slot: usize, number: u64) {
        let Some(export) = self.shared(number).filter(|export| export.uses(slot)) else { return };
        export.set(slot, false);
        let kind = export.kind();
        let (owner, device, bytes) = (export.owner as usize, export.device as usize, export.bytes);
        let heir = export.other_user(slot);
        match heir {
            None => export.number = 0,
            Some(heir) if owner == slot => export.owner = u32::try_from(heir).unwrap_or(0),
            Some(_) => {}
        }
        if owner == slot {
            self.refund(owner, device, kind, bytes);
            self.uncount(owner, device);
            if let Some(heir) = heir {
                // The bytes were refunded just now, so the device has room for them.
                let _ = self.charge(heir, device, kind, bytes);
                if let Some(usage) = self.usage(heir, device) {
                    usage.live = usage.live.saturating_add(1);
                }
            }
        }
    }

    /// Ends an export at once, even if processes use the memory. This is for a block that goes back to its pool.
    pub fn withdraw(&mut self, number: u64) {
        if let Some(export) = self.shared(number) {
            export.number = 0;
        }
    }

    /// Returns the bytes of a device that a process uses while another process is charged for them.
    #[must_use]
    pub fn imported(&self, slot: usize, device: usize) -> u64 {
        let of_others = |export: &&Export| {
            let is_other = export.owner as usize != slot && export.device as usize == device;
            export.number != 0 && is_other && export.uses(slot)
        };
        self.exports.iter().filter(of_others).fold(0, |sum, export| sum.saturating_add(export.bytes))
    }

    /// Returns true if a process shares memory, either its own or that of another process.
    #[must_use]
    pub fn shares(&self, slot: usize) -> bool {
        self.exports.iter().any(|export| export.number != 0 && export.uses(slot))
    }

    /// Ends every use of shared memory by a dead process. This must happen before the figures of the process are zeroed. Memory
    /// that no other process uses stays in these figures, because the device does not have it back yet.
    pub fn leave_all(&mut self, slot: usize) {
        for index in 0..self.exports.len() {
            let export = self.exports.get_mut(index).filter(|export| export.number != 0 && export.uses(slot));
            let Some(export) = export else { continue };
            let number = export.number;
            if export.other_user(slot).is_some() {
                self.leave(slot, number);
            } else {
                export.number = 0;
            }
        }
    }
}
