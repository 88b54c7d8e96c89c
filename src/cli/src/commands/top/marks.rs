//! Draws quantities in a few characters, and fits texts to a width.

use ratatui::text::Span;

/// Characters of a sparkline, from zero to the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels([&'static str; 9]);

impl Levels {
    pub(crate) const BLOCKS: Self = Self([" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"]);
    /// Characters for terminals that cannot show the others.
    pub(crate) const ASCII: Self = Self([" ", ".", ":", "-", "=", "+", "*", "%", "#"]);

    /// Returns the characters that a terminal of this kind and language can show.
    pub(crate) fn of(term: &str, language: Option<&str>) -> Self {
        let language = language.map(str::to_ascii_lowercase);
        let is_wide = |name: &String| name.contains("utf-8") || name.contains("utf8");
        // If no language is set, as in containers, the terminal most likely knows UTF-8. The Linux console has few characters.
        if term == "linux" || language.is_some_and(|name| !is_wide(&name)) {
            Self::ASCII
        } else {
            Self::BLOCKS
        }
    }
}

/// Draws the last minute in `width` characters, with the newest at the right. Each character shows the largest value of its part
/// of the minute, in relation to `whole`. Any value above zero is visible.
pub(crate) fn sparkline(seconds: &[u64], whole: u64, width: usize, levels: Levels) -> String {
    let minute = super::model::MINUTE;
    let missing = minute.saturating_sub(seconds.len());
    let stretch = |column: usize| {
        let [from, to] = [column, column + 1].map(|edge| edge * minute / width.max(1));
        let within = from.max(missing)..to.max(from + 1).max(missing);
        let seen = seconds.get(within.start - missing..(within.end - missing).min(seconds.len()));
        seen.and_then(|seconds| seconds.iter().max()).copied()
    };
    let mark = |column: usize| {
        let Some(used) = stretch(column) else { return " " };
        let level = (used.saturating_mul(8)).div_ceil(whole.max(1)).min(8);
        usize::try_from(level).ok().and_then(|level| levels.0.get(level)).copied().unwrap_or(" ")
    };
    (0..width).map(mark).collect()
}

/// Draws a part of a whole in `width` characters: `[###|......]`. The mark after the limit is left out if the limit is the whole,
/// because the end of the bar shows it. Any part above zero is visible.
pub(crate) fn bar(part: u64, whole: u64, limit: Option<u64>, width: usize) -> String {
    let inner = width.saturating_sub(2);
    let columns = |part: u64| {
        let columns = (u128::from(part) * inner as u128).checked_div(u128::from(whole)).unwrap_or(0);
        usize::try_from(columns).unwrap_or(inner).min(inner)
    };
    let filled = if part > 0 { columns(part).max(1) } else { 0 };
    let mark_at = limit.filter(|limit| *limit < whole).map(|limit| columns(limit).max(1));
    let mark = |column: usize| match column {
        column if Some(column) == mark_at => '|',
        column if column < filled => '#',
        _ => '.',
    };
    let marks: String = (0..inner).map(mark).collect();
    format!("[{marks}]").chars().take(width).collect()
}

/// Returns the number of columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts a text to `columns`. The character `~` shows that it was cut.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut taken = 0;
    for letter in text.chars() {
        taken += width(letter.encode_utf8(&mut [0; 4]));
        if taken >= columns {
            break;
        }
        short.push(letter);
    }
    if columns > 0 {
        short.push('~');
    }
    short
}

/// Pads or cuts a text to exactly `columns`, aligned to the left.
pub(crate) fn left(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let free = columns.saturating_sub(width(&text));
    format!("{text}{}", " ".repeat(free))
}

/// Pads or cuts a text to exactly `columns`, aligned to the right.
pub(crate) fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let free = columns.saturating_sub(width(&text));
    format!("{}{text}", " ".repeat(free))
}

/// Breaks a text into lines of `columns`, between words where that is possible.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let mut rest = word;
        if !line.is_empty() {
            if width(&line) + 1 + width(word) <= columns {
                line.push(' ');
            } else {
                lines.push(std::mem::take(&mut line));
            }
        }
        while width(&line) + width(rest) > columns {
            let (head, tail) = rest.split_at(fitting(rest, columns));
            if tail.is_empty() {
                break;
            }
            lines.push(head.to_owned());
            rest = tail;
        }
        line.push_str(rest);
    }
    lines.push(line);
    lines
}

/// Returns the number of bytes of a text that fit into `columns`. The first letter always counts, whatever its width.
fn fitting(text: &str, columns: usize) -> usize {
    let mut taken = 0;
    let is_over = |(place, letter): (usize, char)| {
        taken += width(letter.encode_utf8(&mut [0; 4]));
        (place > 0 && taken > columns).then_some(place)
    };
    text.char_indices().find_map(is_over).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_of_the_device_with_its_limit_marked_and_never_shows_less_than_there_is() {
        for ((part, whole, limit, width), shown) in [
            ((0, 8, None, 6), "[....]"),
            ((4, 8, None, 6), "[##..]"),
            // Three tenths of the device are three tenths of the bar.
            ((300, 1000, Some(300), 12), "[###|......]"),
            ((150, 1000, Some(300), 12), "[#..|......]"),
            ((500, 1000, Some(300), 12), "[###|#.....]"),
            ((1000, 1000, Some(1000), 12), "[##########]"),
            ((0, 1000, Some(999), 12), "[.........|]"),
            ((1, 1000, Some(10), 12), "[#|........]"),
            ((1, u64::MAX, None, 6), "[#...]"),
            ((9, 8, Some(20), 6), "[####]"),
            ((1, 0, None, 6), "[#...]"),
            ((u64::MAX, u64::MAX, None, 3), "[#]"),
            ((1, 1, Some(0), 3), "[#]"),
            ((1, 1, None, 2), "[]"),
            ((1, 1, None, 1), "["),
            ((1, 1, None, 0), ""),
        ] {
            assert_eq!(bar(part, whole, limit, width), shown, "{part} {whole} {limit:?}");
        }
    }

    #[test]
    fn a_sparkline_is_a_minute_whatever_its_width() {
        let minute: Vec<u64> = (0..60).map(|second| if second < 30 { 0 } else { 300 }).collect();
        for width in [1, 7, 20, 60, 100] {
            let shown = sparkline(&minute, 300, width, Levels::ASCII);
            assert_eq!(shown.len(), width);
            assert!(shown.ends_with('#'), "{shown}");
            let idle = shown.chars().filter(|mark| *mark == ' ').count();
            assert_eq!(idle, width / 2, "{shown}");
        }
        assert_eq!(sparkline(&[100, 200, 300, 1, 0, 900], 300, 60, Levels::ASCII).trim_start(), "-*#. #");
        assert_eq!(sparkline(&[], 300, 3, Levels::BLOCKS), "   ");
        assert_eq!(sparkline(&[5], 0, 1, Levels::BLOCKS), "█");
        assert_eq!(sparkline(&[5], 10, 0, Levels::BLOCKS), "");
    }

    #[test]
    fn marks_are_those_that_the_terminal_knows() {
        assert_eq!(Levels::of("xterm", None), Levels::BLOCKS);
        assert_eq!(Levels::of("xterm", Some("de_DE.UTF-8")), Levels::BLOCKS);
        assert_eq!(Levels::of("xterm", Some("C.utf8")), Levels::BLOCKS);
        assert_eq!(Levels::of("xterm", Some("C")), Levels::ASCII);
        assert_eq!(Levels::of("linux", Some("C.UTF-8")), Levels::ASCII);
    }

    #[test]
    fn texts_are_cut_and_filled_by_the_columns_that_they_take() {
        assert_eq!(
            (cut("abc", 3).as_str(), cut("abcd", 3).as_str(), cut("ab", 0).as_str()),
            ("abc", "ab~", "")
        );
        assert_eq!((cut("日本語", 5).as_str(), cut("日本語", 4).as_str()), ("日本~", "日~"));
        assert_eq!(
            (left("日", 4), right("ab", 4), left("abcd", 3)),
            ("日  ".into(), "  ab".into(), "ab~".into())
        );
    }

    #[test]
    fn a_text_is_wrapped_between_words_and_never_lost() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("日本語", 3), ["日", "本", "語"]);
        assert_eq!(wrap("日本", 0), ["日", "本"]);
        assert_eq!(wrap("", 5), [""]);
    }
}
