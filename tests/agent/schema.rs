//! Compares a document with a schema.
//!
//! It knows the keywords that the agent's schemas use. An unknown keyword fails, so that none is ignored.

use serde_json::Value;

/// Returns the faults of a document, each with its place, or nothing if the document fits the schema.
pub(crate) fn faults(document: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    look(document, schema, schema, "$", &mut faults);
    faults
}

fn look(document: &Value, schema: &Value, root: &Value, at: &str, faults: &mut Vec<String>) {
    for (keyword, said) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let path = said
                    .as_str()
                    .and_then(|text| text.strip_prefix('#'))
                    .expect("a reference is within the schema");
                look(document, root.pointer(path).expect("what is referred to is there"), root, at, faults);
            }
            "type" => {
                let types: Vec<&str> = match said {
                    Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
                    one => one.as_str().into_iter().collect(),
                };
                if !types.iter().any(|name| is_of(document, name)) {
                    faults.push(format!("{at}: {document} is no {types:?}"));
                }
            }
            "const" if document != said => faults.push(format!("{at}: {document} is not {said}")),
            "enum" if !said.as_array().is_some_and(|values| values.contains(document)) => {
                faults.push(format!("{at}: {document} is none of {said}"));
            }
            "minimum" if document.as_f64().zip(said.as_f64()).is_some_and(|(value, least)| value < least) => {
                faults.push(format!("{at}: {document} is less than {said}"));
            }
            "maximum" if document.as_f64().zip(said.as_f64()).is_some_and(|(value, most)| value > most) => {
                faults.push(format!("{at}: {document} is more than {said}"));
            }
            "const" | "enum" | "minimum" | "maximum" => {}
            "items" => {
                for (place, item) in document.as_array().into_iter().flatten().enumerate() {
                    look(item, said, root, &format!("{at}[{place}]"), faults);
                }
            }
            "required" => {
                for key in said.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    if document.as_object().is_some_and(|fields| !fields.contains_key(key)) {
                        faults.push(format!("{at}: {key} is missing"));
                    }
                }
            }
            "properties" => {
                for (key, schema) in said.as_object().into_iter().flatten() {
                    if let Some(value) = document.get(key) {
                        look(value, schema, root, &format!("{at}.{key}"), faults);
                    }
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for key in document.as_object().into_iter().flatten().map(|(key, _)| key) {
                    if !known.is_some_and(|known| known.contains_key(key)) {
                        faults.push(format!("{at}: {key} is not in the schema"));
                    }
                }
            }
            other => faults.push(format!("{at}: the schema has the keyword {other}")),
        }
    }
}

fn is_of(document: &Value, name: &str) -> bool {
    match name {
        "null" => document.is_null(),
        "boolean" => document.is_boolean(),
        "integer" => document.is_u64() || document.is_i64(),
        "string" => document.is_string(),
        "array" => document.is_array(),
        "object" => document.is_object(),
        _ => false,
    }
}
