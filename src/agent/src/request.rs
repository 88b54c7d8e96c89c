//! Parses a line that a client of the control socket has sent.

use gpuslice_policy::units::Permille;
use serde::Deserialize;

/// Most bytes of a line.
pub(crate) const MOST_REQUEST_BYTES: u64 = 16 << 10;

/// A request.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    /// Changes the limits of a slice. A limit that is not given stays.
    Set {
        /// The slice's name.
        slice: String,
        /// Memory in MiB.
        #[serde(rename = "memMiB")]
        memory: Option<u64>,
        /// Percent of the GPU's time.
        core: Option<serde_json::Number>,
    },
}

/// A change of limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// Bytes of memory. None: the limit stays.
    pub(crate) memory: Option<u64>,
    /// Thousandths of the GPU's time. None: the limit stays.
    pub(crate) share: Option<Permille>,
}

/// Returns the slice and the change that a line asks for. `is_whole` is true if the line ends in a line break.
///
/// # Errors
/// The line is not a valid request. The text says how to write one.
pub(crate) fn parse(line: &[u8], is_whole: bool) -> Result<(String, Change), String> {
    if !is_whole {
        return Err(format!("a request is one line of JSON of at most {MOST_REQUEST_BYTES} bytes"));
    }
    let example = "{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":8192,\"core\":40}";
    let request =
        serde_json::from_slice(line).map_err(|error| format!("{error}; write it like {example}"))?;
    let Request::Set { slice, memory, core } = request;
    let memory = memory.map(|mib| match mib.checked_mul(1 << 20) {
        None | Some(0) => Err(format!("memMiB = {mib} is no size; write MiB, like 8192 for 8GiB")),
        Some(bytes) => Ok(bytes),
    });
    let share = core
        .map(|core| core.to_string().parse::<Permille>().map_err(|fault| format!("core = {core} {fault}")));
    let change = Change { memory: memory.transpose()?, share: share.transpose()? };
    if change == Change::default() {
        return Err(format!("nothing is to be changed; name memMiB, core or both: {example}"));
    }
    Ok((slice, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(line: &str) -> Result<(String, Change), String> {
        parse(line.as_bytes(), true)
    }

    #[test]
    fn a_request_names_a_slice_and_its_new_limits() {
        let both = ask("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":2,\"core\":12.5}\n").unwrap();
        assert_eq!(both, ("a".to_owned(), Change { memory: Some(2 << 20), share: Permille::new(125) }));
        let one = ask("{\"op\":\"set\",\"slice\":\"a\",\"core\":40}\n").unwrap();
        assert_eq!(one.1, Change { memory: None, share: Permille::new(400) });
    }

    #[test]
    fn a_wrong_request_gets_the_mistake_and_a_right_example() {
        for (line, has) in [
            ("", "write it like {\"op\""),
            ("[]", "write it like"),
            ("{\"op\":\"set\",\"slice\":\"a\"}", "name memMiB, core or both"),
            ("{\"op\":\"get\",\"slice\":\"a\"}", "unknown variant `get`, expected `set`"),
            ("{\"op\":\"set\",\"slice\":\"a\",\"memory\":1}", "unknown field `memory`"),
            ("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":0}", "memMiB = 0 is no size"),
            ("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":99999999999999999}", "is no size"),
            ("{\"op\":\"set\",\"slice\":\"a\",\"memMiB\":-1}", "invalid value"),
            ("{\"op\":\"set\",\"slice\":\"a\",\"core\":0}", "core = 0 "),
            ("{\"op\":\"set\",\"slice\":\"a\",\"core\":101}", "1 to 100"),
        ] {
            let said = ask(line).unwrap_err();
            assert!(said.contains(has), "{line}: {said}");
        }
        assert!(parse(b"{", false).unwrap_err().contains("16384 bytes"));
    }
}
