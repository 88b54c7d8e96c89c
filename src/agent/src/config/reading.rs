//! Parses values of the configuration, and gathers the mistakes in them.

use super::file::File;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;

/// A mistake in a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    file: PathBuf,
    line: Option<usize>,
    what: String,
}

impl Mistake {
    /// Returns a mistake that concerns the whole file.
    pub(super) fn of(file: &Path, what: String) -> Self {
        Self { file: file.to_owned(), line: None, what }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(out, "{line}:")?;
        }
        write!(out, " {}", self.what)
    }
}

/// Parses values, and gathers their mistakes.
pub(super) struct Reading<'a> {
    file: &'a Path,
    text: &'a str,
    pub(super) mistakes: Vec<Mistake>,
}

impl<'a> Reading<'a> {
    pub(super) fn of(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, mistakes: Vec::new() }
    }

    /// Parses the file. If it is no TOML, or has an unknown key, the function records the mistake and returns `None`.
    pub(super) fn file(&mut self) -> Option<File> {
        match toml::from_str(self.text) {
            Ok(said) => Some(said),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                self.wrong(at, told_of_key(self.text, at, &error.message().replace('\n', " ")));
                None
            }
        }
    }

    /// Returns the number of the line that contains a byte of the file. Lines count from 1.
    pub(super) fn line(&self, byte: usize) -> usize {
        self.text.bytes().take(byte).filter(|byte| *byte == b'\n').count().saturating_add(1)
    }

    pub(super) fn wrong(&mut self, at: usize, what: String) {
        let line = Some(self.line(at));
        self.mistakes.push(Mistake { file: self.file.to_owned(), line, what });
    }

    /// Returns the value of a key, if `parse` accepts it.
    pub(super) fn value<S: ToString, T>(
        &mut self,
        key: &str,
        said: Option<&Spanned<S>>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let said = said?;
        let text = said.get_ref().to_string();
        match parse(&text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.wrong(said.span().start, format!("{key} = {text:?}: {why}"));
                None
            }
        }
    }

    /// Returns the value of a key. The value is parsed like the setting of type `T`.
    pub(super) fn setting<S: ToString, T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &str,
        said: Option<&Spanned<S>>,
    ) -> Option<T> {
        self.value(key, said, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// Returns the value of a key that is a whole number from 1 to `most`.
    pub(super) fn number(&mut self, key: &str, said: Option<&Spanned<i64>>, most: u32) -> Option<u32> {
        self.value(key, said, |text| {
            let number = text.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("write a whole number from 1 to {most}"))
        })
    }

    /// Returns the value of a key that is a path. A relative path is a mistake, because it depends on the agent's working
    /// directory.
    pub(super) fn path(&mut self, key: &str, said: Option<&Spanned<PathBuf>>) -> Option<PathBuf> {
        let said = said?;
        let path = said.get_ref().clone();
        if !path.is_absolute() {
            self.wrong(
                said.span().start,
                format!("{key} = {path:?}: write an absolute path, with a / in front"),
            );
        }
        Some(path)
    }
}

/// Returns the message of the TOML reader, preceded by the key in the line of the mistake.
fn told_of_key(text: &str, at: usize, what: &str) -> String {
    let begin = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end.saturating_add(1));
    let line = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() && !what.contains("unknown field") => {
            format!("{}: {what}", key.trim())
        }
        _ => what.to_owned(),
    }
}
