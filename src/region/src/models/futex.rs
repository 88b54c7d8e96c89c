//! The futex of the models: a sleeper sleeps while the sequence has the value that it has read. No sleep ends by
//! itself.

use crate::sync::atomics::WakeSeq;

/// Number of times that a sleeper looks at the word. Between two looks it yields, so all others run until they end or
/// sleep.
#[cfg(test)]
const LOOKS: u32 = 3;

/// Sleeps until another thread wakes it, unless the sequence is no longer `seen`.
#[cfg(test)]
pub(crate) fn sleep(word: &WakeSeq, seen: u32) {
    for _ in 0..LOOKS {
        if word.compared() != seen {
            return;
        }
        loom::thread::yield_now();
    }
    panic!("no wake came");
}

pub(crate) fn wake_all(word: &WakeSeq) {
    word.count();
}
