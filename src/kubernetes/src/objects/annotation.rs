//! Reads the annotations of pods and nodes that gpuslice uses.

use serde::de::DeserializeOwned;

/// Version of these annotations.
pub const ANNOTATION_VERSION: u32 = 1;

/// Reads the text of an annotation. Unknown keys are ignored.
///
/// # Errors
/// The text is not in the form of this annotation, or has another version. The message contains the name and the text.
pub(super) fn parse<T: DeserializeOwned>(
    name: &str,
    text: &str,
    version: fn(&T) -> u32,
) -> Result<T, String> {
    let wrong = |why: String| format!("the annotation {name} {why}: {text:?}");
    let read: T = serde_json::from_str(text).map_err(|error| wrong(format!("cannot be read ({error})")))?;
    match version(&read) {
        ANNOTATION_VERSION => Ok(read),
        other => Err(wrong(format!("has the version {other}, and {ANNOTATION_VERSION} is known here"))),
    }
}
