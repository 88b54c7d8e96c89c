//! Starts NVML again after it was silent, for a command that asks it again and again.

use crate::nvml::{Nvml, NvmlTimeout};
use std::time::{Duration, Instant};

/// Time between two attempts to start NVML. A reset of a GPU, or a reload of the driver, takes seconds.
pub const AGAIN: Duration = Duration::from_secs(30);

/// NVML for a command that asks it again and again. If the driver hangs, it delays the command only once in 30 seconds.
#[derive(Debug)]
pub struct NvmlRetry {
    /// The function that gets one line of text if NVML does not answer.
    note: fn(&str),
    kept: Kept<Nvml>,
}

impl NvmlRetry {
    /// Returns the value without starting NVML.
    #[must_use]
    pub fn new(note: fn(&str)) -> Self {
        Self { note, kept: Kept::default() }
    }

    /// Forgets the answers. If NVML does not run, and the last attempt is 30 seconds old, starts it. Returns NVML if it runs.
    pub fn refresh(&mut self) -> Option<&Nvml> {
        let open = || Nvml::open(NvmlTimeout::Full, self.note);
        let nvml = self.kept.get(Instant::now(), Nvml::is_alive, open)?;
        nvml.refresh();
        Some(nvml)
    }
}

/// A value that may cease to work, and that the caller can make again.
#[derive(Debug)]
struct Kept<T> {
    thing: Option<T>,
    tried: Option<Instant>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { thing: None, tried: None }
    }
}

impl<T> Kept<T> {
    fn get(
        &mut self,
        now: Instant,
        is_alive: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&mut T> {
        self.thing.take_if(|thing| !is_alive(thing));
        let is_due = self.tried.is_none_or(|tried| now.saturating_duration_since(tried) >= AGAIN);
        if self.thing.is_none() && is_due {
            self.tried = Some(now);
            self.thing = make();
        }
        self.thing.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_that_ends_is_made_again_once_in_thirty_seconds() {
        let (mut kept, start) = (Kept::default(), Instant::now());
        let mut made = 0;
        let mut get = |second: u64, lives: bool| {
            let make = || {
                made += 1;
                lives.then_some(made)
            };
            let at = start + Duration::from_secs(second);
            // The second thing has ended.
            kept.get(at, |thing| *thing != 2, make).copied()
        };
        assert_eq!([get(0, false), get(29, true), get(30, true)], [None, None, Some(2)]);
        assert_eq!([get(31, true), get(59, true), get(60, true)], [None, None, Some(3)]);
        assert_eq!([get(61, true), get(1000, true)], [Some(3); 2]);
    }
}
