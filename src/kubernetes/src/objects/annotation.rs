//! Reads the annotations that this program writes on pods and nodes.

use serde::de::DeserializeOwned;

/// The version of the annotations of this program.
pub const VERSION: u32 = 1;

/// Reads the text of an annotation. Keys that are not known are left out.
///
/// # Errors
/// The text is no such annotation, or is of another version. The message has the name and the text.
pub(super) fn parse<T: DeserializeOwned>(
    name: &str,
    text: &str,
    version: fn(&T) -> u32,
) -> Result<T, String> {
    let wrong = |why: String| format!("the annotation {name} {why}: {text:?}");
    let read: T = serde_json::from_str(text).map_err(|error| wrong(format!("cannot be read ({error})")))?;
    match version(&read) {
        VERSION => Ok(read),
        other => Err(wrong(format!("has the version {other}, and {VERSION} is known here"))),
    }
}
