//! Recognises keys in the bytes that a terminal sends.
//!
//! `top` does not use the reader of crossterm 0.29. If a terminal hangs up, that reader never stops reading. In the middle of a
//! sequence, it waits and does not see signals.

/// Most bytes of a sequence. Longer sequences are no keys.
const MOST_KEY_BYTES: usize = 32;

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-U.
    Clear,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
    /// F1.
    Help,
    Letter(char),
    /// A key without a function in `top`, such as F5.
    Other,
}

/// Bytes that are not a complete key yet.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    pending: Vec<u8>,
}

/// Meaning of the first bytes in the buffer.
enum First {
    /// A sequence of this many bytes, and its key, if it has one.
    Bytes(usize, Option<Key>),
    /// The beginning of a sequence.
    Unfinished,
}

impl Keys {
    /// Returns the keys that are complete with the new `bytes`.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while let First::Bytes(count, key) = first(&self.pending) {
            self.pending.drain(..count.min(self.pending.len()));
            keys.extend(key);
        }
        keys
    }

    /// Returns true if more bytes may follow. The caller waits for them for a short time, because Escape is a
    /// key and also begins other keys.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the key of the pending bytes if no byte follows. This is Escape, or none.
    pub(crate) fn end(&mut self) -> Option<Key> {
        let pending = std::mem::take(&mut self.pending);
        (pending == [0x1b]).then_some(Key::Escape)
    }
}

fn first(bytes: &[u8]) -> First {
    match bytes {
        [] | [0x1b] | [0x1b, b'O'] | [0x1b, b'[', b'['] => First::Unfinished,
        [0x1b, 0x1b, ..] => First::Bytes(1, Some(Key::Escape)),
        [0x1b, b'O', last, ..] => First::Bytes(3, of_sequence(&[], *last)),
        // Function keys of the Linux console.
        [0x1b, b'[', b'[', last, ..] => {
            First::Bytes(4, Some(if *last == b'A' { Key::Help } else { Key::Other }))
        }
        [0x1b, b'[', rest @ ..] => match rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) {
            Some(end) => {
                let (parameters, last) =
                    (rest.get(..end).unwrap_or(&[]), rest.get(end).copied().unwrap_or(0));
                First::Bytes(end.saturating_add(3), of_sequence(parameters, last))
            }
            None if bytes.len() < MOST_KEY_BYTES => First::Unfinished,
            None => First::Bytes(bytes.len(), None),
        },
        // A letter with Alt.
        [0x1b, _, ..] => First::Bytes(2, None),
        [byte, ..] if byte.is_ascii() => First::Bytes(1, of_byte(*byte)),
        _ => of_letter(bytes),
    }
}

fn of_sequence(parameters: &[u8], last: u8) -> Option<Key> {
    match (parameters, last) {
        (_, b'A') => Some(Key::Up),
        (_, b'B') => Some(Key::Down),
        (_, b'H') | (b"1" | b"7", b'~') => Some(Key::Home),
        (_, b'F') | (b"4" | b"8", b'~') => Some(Key::End),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        (b"", b'M') => Some(Key::Enter),
        (_, b'P') | (b"11", b'~') => Some(Key::Help),
        // Right, left, other function keys, Insert and Delete.
        (_, b'C' | b'D' | b'Q'..=b'S') | (b"2" | b"3" | [b'1' | b'2', _], b'~') => Some(Key::Other),
        _ => None,
    }
}

fn of_byte(byte: u8) -> Option<Key> {
    match byte {
        b'\r' | b'\n' => Some(Key::Enter),
        0x7f | 0x08 => Some(Key::Backspace),
        0x03 => Some(Key::Interrupt),
        0x0c => Some(Key::Redraw),
        0x15 => Some(Key::Clear),
        0x1a => Some(Key::Suspend),
        b' '..=b'~' => Some(Key::Letter(byte.into())),
        _ => None,
    }
}

/// Parses a character beyond ASCII.
fn of_letter(bytes: &[u8]) -> First {
    let length = match bytes.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => return First::Bytes(1, None),
    };
    let Some(whole) = bytes.get(..length) else { return First::Unfinished };
    match std::str::from_utf8(whole) {
        Ok(text) => First::Bytes(length, text.chars().next().map(Key::Letter)),
        Err(_) => First::Bytes(1, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_the_bytes_that_terminals_send() {
        for (bytes, key) in [
            (&b"\x1b[A"[..], Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[1;5A", Key::Up),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1b[1~", Key::Home),
            (b"\x1b[F", Key::End),
            (b"\x1bOM", Key::Enter),
            (b"\r", Key::Enter),
            (b"\x7f", Key::Backspace),
            (b"\x03", Key::Interrupt),
            (b"\x1a", Key::Suspend),
            (b"\x1bOP", Key::Help),
            (b"\x1b[11~", Key::Help),
            (b"\x1b[[A", Key::Help),
            (b"\x1b[[E", Key::Other),
            (b"\x1b[15~", Key::Other),
            (b"\x1b[C", Key::Other),
            (b"q", Key::Letter('q')),
            ("é".as_bytes(), Key::Letter('é')),
        ] {
            assert_eq!(Keys::default().take(bytes), [key]);
            // A slow connection brings the bytes one by one.
            let mut keys = Keys::default();
            let pieces: Vec<Key> = bytes.iter().flat_map(|byte| keys.take(&[*byte])).collect();
            assert_eq!((pieces, keys.is_waiting()), (vec![key], false));
        }
    }

    #[test]
    fn escape_is_a_key_if_nothing_follows() {
        let mut keys = Keys::default();
        assert_eq!(keys.take(b"\x1b"), []);
        assert!(keys.is_waiting());
        assert_eq!((keys.end(), keys.end()), (Some(Key::Escape), None));
        assert_eq!(keys.take(b"\x1b\x1b[B"), [Key::Escape, Key::Down]);
        assert_eq!(keys.take(b"\x1b["), []);
        assert_eq!(keys.end(), None);
    }

    #[test]
    fn bytes_of_no_key_are_passed_over_and_never_kept_for_long() {
        let mut keys = Keys::default();
        assert_eq!(
            keys.take(b"\x1bxj\x1b[200~\xff\xc3(k\x1b[<0;1;1mq"),
            [Key::Letter('j'), Key::Letter('('), Key::Letter('k'), Key::Letter('q')]
        );
        assert_eq!(keys.take(&[b"\x1b[".as_slice(), &[b'1'; 100]].concat()), []);
        assert!(!keys.is_waiting());
    }
}
