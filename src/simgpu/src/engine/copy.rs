//! The copy engines. Each does one copy at a time, in the order of arrival, beside kernels. Time slices do not interrupt a copy.

use super::layout::{CopyEngine, EngineState};
use super::rows::phase;
use super::table::Link;

impl EngineState {
    /// Appends a stream to an engine's list.
    pub(super) fn push_copy(&mut self, link: Link, engine: u8) {
        let stream = self.streams.at_mut(link);
        stream.phase = phase::READY;
        stream.next_ready = 0;
        let list = self.engine_mut(engine).waiting;
        if list.tail == 0 {
            self.engine_mut(engine).waiting.head = link;
        } else {
            self.streams.at_mut(list.tail).next_ready = link;
        }
        self.engine_mut(engine).waiting.tail = link;
    }

    /// Gives every idle engine its next copy.
    pub(super) fn start_copies(&mut self) {
        for index in 0..self.engines.len() {
            let Some(engine) = self.engines.get_mut(index) else { return };
            let link = engine.waiting.head;
            if engine.current != 0 || link == 0 {
                continue;
            }
            engine.current = link;
            let head = self.streams.at(link).items.head;
            let item = *self.items.at(head);
            let stream = self.streams.at_mut(link);
            stream.ends = self.clock.saturating_add(item.duration);
            stream.phase_order = item.order;
            super::write_order::written();
            stream.phase = phase::RUNNING;
            engine.waiting.head = core::mem::take(&mut stream.next_ready);
            if engine.waiting.head == 0 {
                engine.waiting.tail = 0;
            }
        }
    }

    /// Completes the copies that have reached their ends.
    pub(super) fn finish_copies(&mut self) {
        for index in 0..self.engines.len() {
            let Some(engine) = self.engines.get_mut(index) else { return };
            let link = engine.current;
            if link != 0 && self.streams.at(link).ends <= self.clock {
                engine.current = 0;
                self.complete(link);
            }
        }
    }

    /// Returns the instant at which the next copy ends.
    pub(super) fn next_copy(&self) -> u64 {
        let running = self.engines.iter().filter(|engine| engine.current != 0);
        running.map(|engine| self.streams.at(engine.current).ends).min().unwrap_or(u64::MAX)
    }

    /// Removes a stream from the engine that has it.
    pub(super) fn leave_engines(&mut self, link: Link) {
        for index in 0..self.engines.len() {
            let Some(engine) = self.engines.get_mut(index) else { return };
            if engine.current == link {
                engine.current = 0;
            }
            let waiting = core::mem::take(&mut engine.waiting);
            let number = u8::try_from(index).unwrap_or(0);
            let mut next = waiting.head;
            while next != 0 {
                let other = next;
                next = self.streams.at(other).next_ready;
                if other != link {
                    self.push_copy(other, number);
                }
            }
        }
    }

    fn engine_mut(&mut self, index: u8) -> &mut CopyEngine {
        // The copy was planned when the device had more engines, so the first engine takes it.
        let index = if usize::from(index) < self.engines.len() { usize::from(index) } else { 0 };
        let [first, rest @ ..] = &mut self.engines;
        match index.checked_sub(1).and_then(|i| rest.get_mut(i)) {
            Some(engine) => engine,
            None => first,
        }
    }
}
