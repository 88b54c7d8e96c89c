//! What is a futex in the models? A sleeper sleeps for as long as the count is what it heard; no sleep ends by itself.

use crate::sync::atomics::Bell;

/// How often a sleeper looks. It yields in between, so all others run until they have ended or sleep too.
#[cfg(test)]
const LOOKS: u32 = 3;

/// Sleeps until it rings, unless it has rung since it was heard.
#[cfg(test)]
pub(crate) fn sleep(bell: &Bell, heard: u32) {
    for _ in 0..LOOKS {
        if bell.compared() != heard {
            return;
        }
        loom::thread::yield_now();
    }
    panic!("nobody rang");
}

pub(crate) fn ring(bell: &Bell) {
    bell.count();
}
