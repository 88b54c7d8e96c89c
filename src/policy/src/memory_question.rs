//! Questions of a process about its device memory to the agent of its node, and the agent's answers.
//!
//! NVML takes a third of a second to start, and some drivers name a process in a container wrongly. The agent has NVML open on the
//! host. The kernel tells the agent the process's number there, so a question does not contain one.
//!
//! A process connects to the socket, sends one question, and gets one answer. Numbers are little-endian.

/// Path of the socket, as a process in a container sees it. The folder is that of the operator's file.
pub const MEMORY_SOCKET: &str = "/run/gpuslice/conf/memory.sock";
/// Name of the socket in that folder.
pub const MEMORY_SOCKET_FILE: &str = "memory.sock";

/// First bytes of each message. The last one is the version of the format.
const MESSAGE_MAGIC: [u8; 4] = *b"gsm\x01";

/// Length of a question, in bytes.
pub const QUESTION_BYTES: usize = 24;
/// Length of an answer, in bytes.
pub const ANSWER_BYTES: usize = 16;

/// A question about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryQuestion {
    /// The figure that is asked for.
    pub figure: MemoryFigure,
    /// UUID of the device, a GPU or an instance of a GPU.
    pub device: [u8; 16],
}

/// A figure of NVML, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFigure {
    /// Memory that the asking process holds on the device.
    Own,
    /// Free memory of the device.
    Free,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryAnswer {
    /// NVML does not answer, or the agent does not see the process.
    Failed,
    /// NVML does not list the process on the device, or does not list its bytes.
    Unlisted,
    /// The figure, in bytes.
    Bytes(u64),
}

impl MemoryQuestion {
    /// Returns the question as a message.
    #[must_use]
    pub fn to_message(&self) -> [u8; QUESTION_BYTES] {
        let figure = match self.figure {
            MemoryFigure::Own => 0_u32,
            MemoryFigure::Free => 1,
        };
        message(figure, self.device)
    }

    /// Reads a message. Returns `None` if the message is no question of this version.
    #[must_use]
    pub fn of_message(message: [u8; QUESTION_BYTES]) -> Option<Self> {
        let (figure, device) = parts(&message)?;
        let figure = match figure {
            0 => MemoryFigure::Own,
            1 => MemoryFigure::Free,
            _ => return None,
        };
        Some(Self { figure, device })
    }
}

impl MemoryAnswer {
    /// Returns the answer as a message.
    #[must_use]
    pub fn to_message(&self) -> [u8; ANSWER_BYTES] {
        let (kind, bytes) = match self {
            Self::Failed => (0_u32, 0),
            Self::Unlisted => (1, 0),
            Self::Bytes(bytes) => (2, *bytes),
        };
        message(kind, bytes.to_le_bytes())
    }

    /// Reads a message. Returns `None` if the message is no answer of this version.
    #[must_use]
    pub fn of_message(message: [u8; ANSWER_BYTES]) -> Option<Self> {
        match parts(&message)? {
            (0, _) => Some(Self::Failed),
            (1, _) => Some(Self::Unlisted),
            (2, bytes) => Some(Self::Bytes(u64::from_le_bytes(bytes))),
            _ => None,
        }
    }
}

/// Returns a message of the magic bytes, a kind and a value. `ALL` is the length of all three.
fn message<const ALL: usize, const VALUE: usize>(kind: u32, value: [u8; VALUE]) -> [u8; ALL] {
    let bytes = MESSAGE_MAGIC.into_iter().chain(kind.to_le_bytes()).chain(value);
    let mut message = [0; ALL];
    message.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    message
}

/// Returns the kind and the value of a message that begins with the magic bytes.
fn parts<const VALUE: usize>(message: &[u8]) -> Option<(u32, [u8; VALUE])> {
    let (kind, value) = message.strip_prefix(&MESSAGE_MAGIC)?.split_first_chunk()?;
    Some((u32::from_le_bytes(*kind), value.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for figure in [MemoryFigure::Own, MemoryFigure::Free] {
            let question = MemoryQuestion { figure, device: *b"0123456789abcdef" };
            assert_eq!(MemoryQuestion::of_message(question.to_message()), Some(question));
        }
        for answer in [MemoryAnswer::Failed, MemoryAnswer::Unlisted, MemoryAnswer::Bytes(0x0102_0304_0506)] {
            assert_eq!(MemoryAnswer::of_message(answer.to_message()), Some(answer));
        }
    }

    #[test]
    fn a_message_of_another_version_or_kind_is_none() {
        let question = MemoryQuestion { figure: MemoryFigure::Own, device: [7; 16] }.to_message();
        let answer = MemoryAnswer::Bytes(1).to_message();
        for (at, byte) in [(0, b'x'), (3, 2), (4, 9), (7, 1)] {
            let (mut question, mut answer) = (question, answer);
            (question[at], answer[at]) = (byte, byte);
            assert_eq!(MemoryQuestion::of_message(question), None, "byte {at}");
            assert_eq!(MemoryAnswer::of_message(answer), None, "byte {at}");
        }
    }

    #[test]
    fn the_socket_lies_beside_the_operators_file() {
        let folder = crate::config::FIXED_FILE.strip_suffix("/config").unwrap();
        assert_eq!(MEMORY_SOCKET, format!("{folder}/{MEMORY_SOCKET_FILE}"));
    }

    #[test]
    fn a_message_has_the_documented_bytes() {
        let question = MemoryQuestion { figure: MemoryFigure::Free, device: [7; 16] }.to_message();
        assert_eq!(question[..9], *b"gsm\x01\x01\0\0\0\x07");
        assert_eq!(MemoryAnswer::Bytes(258).to_message(), *b"gsm\x01\x02\0\0\0\x02\x01\0\0\0\0\0\0");
    }
}
