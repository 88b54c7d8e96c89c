//! Lines with any content on the agent's control socket.

#[path = "../../src/agent/src/request.rs"]
mod request;

use gpuslice_policy::units::Permille;

use crate::random::Random;

/// Pieces of lines.
const PIECES: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    " ",
    "\n",
    "\"op\":\"set\"",
    "\"op\":\"get\"",
    "\"op\":",
    "\"slice\":\"a\"",
    "\"slice\":",
    "\"memMiB\":",
    "\"core\":",
    "null",
    "true",
    "0",
    "1",
    "40",
    "100",
    "101",
    "12.5",
    "0.04",
    "-1",
    "1e400",
    "1e-400",
    "1E2",
    "18446744073709551615",
    "18446744073709551616",
    "17592186044416",
    "\"40\"",
    "\"\"",
    "a",
    "\u{1f980}",
    "{\"op\":\"set\",\"slice\":\"a\",",
];

/// A line, and whether its end has come.
#[derive(Debug)]
pub(crate) struct Case {
    line: Vec<u8>,
    is_whole: bool,
}

impl Case {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut line = match random.below(3) {
            0 => pieces(random),
            1 => format!("{{\"op\":\"set\",\"slice\":\"a\",{}}}", pieces(random)),
            _ => format!(
                "{{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":{},\"core\":{}}}",
                random.pick(&PIECES),
                random.pick(&PIECES)
            ),
        }
        .into_bytes();
        if random.one_in(4) && !line.is_empty() {
            let place = random.index(line.len());
            line[place] = random.next().to_ne_bytes()[0];
        }
        if random.one_in(50) {
            line = "[".repeat(usize::try_from(random.below(16 << 10)).unwrap_or(0)).into_bytes();
        }
        Self { line, is_whole: !random.one_in(20) }
    }

    /// Parses the line and checks the conditions that hold for any content.
    pub(crate) fn run(&self) {
        match request::parse(&self.line, self.is_whole) {
            Ok((_, change)) => {
                assert!(self.is_whole, "half a line is no request");
                assert!(change.memory.is_some() || change.share.is_some(), "a change of nothing");
                assert!(change.memory.is_none_or(|bytes| bytes >= 1 << 20 && bytes % (1 << 20) == 0));
                assert!(change.share.is_none_or(|share| (Permille::LEAST..=Permille::FULL).contains(&share)));
            }
            Err(text) => assert!(!text.is_empty() && text.len() < 64 << 10, "{text:?}"),
        }
        assert!(u64::try_from(self.line.len()).is_ok_and(|bytes| bytes <= request::MOST_REQUEST_BYTES));
    }
}

fn pieces(random: &mut Random) -> String {
    (0..random.below(12)).map(|_| *random.pick(&PIECES)).collect()
}
