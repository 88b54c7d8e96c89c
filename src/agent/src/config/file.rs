//! The keys of the configuration, as the file has them.

use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use toml::Spanned;

/// The contents of the file, key by key.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) log: Option<Spanned<String>>,
    pub(super) library: Option<Spanned<PathBuf>>,
    pub(super) discover: Option<bool>,
    pub(super) discover_limit: Option<Spanned<i64>>,
    pub(super) web: Web,
    pub(super) control: Control,
    pub(super) kubernetes: Option<Kubernetes>,
    pub(super) paths: Paths,
    pub(super) slices: Vec<Spanned<Entry>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Web {
    pub(super) listen: Option<Spanned<String>>,
    pub(super) requests_per_second: Option<Spanned<i64>>,
    pub(super) connections: Option<Spanned<i64>>,
    pub(super) arguments: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Control {
    pub(super) group: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Kubernetes {
    pub(super) mode: Option<Spanned<String>>,
    pub(super) node: Option<Spanned<String>>,
    pub(super) apiserver: Option<Spanned<String>>,
    pub(super) kubelet: Option<Spanned<PathBuf>>,
    pub(super) slots_per_gpu: Option<Spanned<i64>>,
    pub(super) auto_alloc: Option<Spanned<bool>>,
    pub(super) resize: Option<Spanned<bool>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Paths {
    pub(super) state: Option<Spanned<PathBuf>>,
    pub(super) run: Option<Spanned<PathBuf>>,
    pub(super) cdi: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) name: Spanned<String>,
    pub(super) gpu: Spanned<Word>,
    pub(super) memory: Option<Spanned<Word>>,
    pub(super) cores: Option<Spanned<Word>>,
    pub(super) policy: Option<Spanned<String>>,
    pub(super) weight: Option<Spanned<Word>>,
    pub(super) priority: Option<Spanned<String>>,
}

/// A value that the operator may write with quotes or without.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a number or a text in quotes")]
pub(super) enum Word {
    Text(String),
    Integer(i64),
    Float(f64),
}

impl fmt::Display for Word {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Integer(number) => number.fmt(out),
            Self::Float(number) => number.fmt(out),
        }
    }
}
