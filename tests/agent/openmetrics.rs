//! Reader of the text format `OpenMetrics` 1.0 that rejects wrong texts.
//!
//! It checks the rules that an exporter of gauges, counters and histograms can break. They concern the order of lines, types,
//! suffixes, labels and their escapes, numbers, duplicate series, and the end.

use std::collections::{BTreeMap, BTreeSet};

/// A series: its name and labels.
pub(crate) type Series = (String, BTreeMap<String, String>);

/// The values of a text.
#[derive(Debug)]
pub(crate) struct Metrics(pub(crate) BTreeMap<Series, f64>);

impl Metrics {
    /// Reads a text. The error names the wrong line.
    ///
    /// A text is a sequence of families. A family is its description in lines that begin with `# `, and then its series. A family
    /// comes once, and so does each series.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let body = text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
        let mut families = BTreeSet::new();
        let mut family: Option<Family> = None;
        let mut values = BTreeMap::new();
        for line in body.lines() {
            let wrong = |why: &str| format!("{why}: {line}");
            if let Some(rest) = line.strip_prefix("# ") {
                let mut words = rest.splitn(3, ' ');
                let (keyword, name) =
                    (words.next().unwrap_or(""), words.next().ok_or_else(|| wrong("no name"))?);
                let value = words.next().unwrap_or("");
                if family.as_ref().is_none_or(|family| family.name != name) {
                    is_name(name).then_some(()).ok_or_else(|| wrong("no metric is called so"))?;
                    families
                        .insert(name.to_owned())
                        .then_some(())
                        .ok_or_else(|| wrong("a family in two places"))?;
                    family = Some(Family { name: name.to_owned(), ..Family::default() });
                }
                let family = family.as_mut().ok_or_else(|| wrong("no family"))?;
                if family.has_series {
                    return Err(wrong("a description behind the series"));
                }
                match keyword {
                    "TYPE"
                        if family.kind.is_empty() && ["gauge", "counter", "histogram"].contains(&value) =>
                    {
                        family.kind = value.to_owned();
                    }
                    "HELP" if !value.is_empty() => {}
                    "UNIT" if name.ends_with(&format!("_{value}")) => {}
                    _ => return Err(wrong("this cannot be described")),
                }
                continue;
            }
            let (series, value) = series(line).ok_or_else(|| wrong("no series"))?;
            let family = family.as_mut().ok_or_else(|| wrong("a series of no family"))?;
            family.has_series = true;
            let suffix =
                series.0.strip_prefix(&family.name).ok_or_else(|| wrong("a series of another family"))?;
            match (family.kind.as_str(), suffix) {
                ("gauge", "") => {}
                ("counter", "_total") if value >= 0.0 => {}
                ("histogram", "_count" | "_sum") if value >= 0.0 => {}
                ("histogram", "_bucket") if series.1.contains_key("le") => {}
                _ => return Err(wrong("the name is not that of the type")),
            }
            if values.insert(series, value).is_some() {
                return Err(wrong("the series comes twice"));
            }
        }
        Ok(Self(values))
    }

    /// Returns the value of the series with this name and, among others, these labels, or `None` if there is none.
    #[track_caller]
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |found: &BTreeMap<String, String>| {
            labels.iter().all(|(key, value)| found.get(*key).is_some_and(|found| found == value))
        };
        let found: Vec<_> =
            self.0.iter().filter(|((found, labels), _)| found == name && has(labels)).collect();
        assert!(found.len() < 2, "{name} {labels:?} means several: {found:?}");
        found.first().map(|(_, value)| **value)
    }
}

#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: String,
    has_series: bool,
}

fn is_name(name: &str) -> bool {
    let usual = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    name.starts_with(|letter: char| letter.is_ascii_alphabetic()) && name.chars().all(usual)
}

/// Parses a line `name{key="value",…} number`.
fn series(line: &str) -> Option<(Series, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            if !is_name(key) || labels.insert(key.to_owned(), value).is_some() {
                return None;
            }
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}')?;
                    break;
                }
            }
        }
    }
    let number = rest.strip_prefix(' ').filter(|number| !number.contains(' '))?;
    Some(((name.to_owned(), labels), is_name(name).then(|| number.parse().ok())??))
}

/// Parses a value up to its closing quote. Returns it with the rest of the text.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other @ ('\\' | '"') => other,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
    None
}

#[test]
fn texts_that_the_standard_forbids_are_found() {
    let right = "# HELP a_bytes x.\n# TYPE a_bytes gauge\n# UNIT a_bytes bytes\na_bytes{k=\"q\\\"\\n\"} 1\n# TYPE b counter\nb_total 2.0\n# TYPE c histogram\nc_bucket{le=\"+Inf\"} 1\nc_count 1\nc_sum 2\n# EOF\n";
    let metrics = Metrics::read(right).unwrap();
    assert_eq!(metrics.get("a_bytes", &[("k", "q\"\n")]), Some(1.0));
    assert_eq!(metrics.get("b_total", &[]), Some(2.0));
    assert_eq!(metrics.get("c_bucket", &[("le", "+Inf")]), Some(1.0));
    for (piece, instead, why) in [
        ("# EOF\n", "", "EOF"),
        ("b_total 2.0", "b 2.0", "not that of the type"),
        ("b_total 2.0", "b_total -1", "not that of the type"),
        ("b_total 2.0", "b_total two", "no series"),
        ("b_total 2.0", "b_total 2\nb_total 3", "comes twice"),
        ("{le=\"+Inf\"}", "", "not that of the type"),
        ("c_sum", "c_total", "not that of the type"),
        ("b_total 2.0", "c_total 2", "another family"),
        ("# TYPE b counter", "# TYPE a_bytes counter", "a description behind"),
        ("# UNIT a_bytes bytes", "# UNIT a_bytes seconds", "cannot be described"),
        ("gauge", "gage", "cannot be described"),
        ("k=\"q\\\"\\n\"", "k=\"a\",k=\"b\"", "no series"),
        ("k=\"q\\\"\\n\"", "k=\"\\x\"", "no series"),
    ] {
        let said = Metrics::read(&right.replace(piece, instead)).unwrap_err();
        assert!(said.contains(why), "{piece} -> {instead}: {said}");
    }
}
