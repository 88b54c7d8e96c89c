//! Shows quantities and tables to people.

use gpuslice_policy::units::Bytes;
use std::time::UNIX_EPOCH;
use unicode_properties::{GeneralCategory, UnicodeGeneralCategory as _};

/// Units of sizes, largest first. Sizes have two decimals.
const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

/// Formats bytes as `3.62 GiB`. Rounds down, so that no size looks larger than it is.
#[must_use]
pub fn size(bytes: u64) -> String {
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} B");
    };
    let hundredths = u128::from(bytes) * 100 / u128::from(unit);
    format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
}

/// Formats a limit in few characters. A short exact number stays exact, as `4GiB`; a long one is rounded down, as `3.72 GiB`.
/// Without a limit, the text is `none`.
#[must_use]
pub fn limit(bytes: Option<u64>) -> String {
    let Some(bytes) = bytes else { return "none".to_owned() };
    exact_if_short(bytes).unwrap_or_else(|| size(bytes))
}

/// Formats a limit exactly. If the exact number is long, the rounded size precedes it: `3.72 GiB (3906250KiB)`.
#[must_use]
pub fn exact_limit(bytes: Option<u64>) -> String {
    let Some(bytes) = bytes else { return "none".to_owned() };
    exact_if_short(bytes).unwrap_or_else(|| format!("{} ({})", size(bytes), Bytes::new(bytes)))
}

fn exact_if_short(bytes: u64) -> Option<String> {
    /// Most characters of a short size, as in `102400MiB`.
    const SHORT: usize = 9;
    let exact = Bytes::new(bytes).to_string();
    (exact.len() <= SHORT).then_some(exact)
}

/// Formats thousandths as `29.8%`.
#[must_use]
pub fn percent(permille: u64) -> String {
    match permille % 10 {
        0 => format!("{}%", permille / 10),
        tenth => format!("{}.{tenth}%", permille / 10),
    }
}

/// Formats nanoseconds as `12.40 s` or `3.10 ms`, rounded down.
#[must_use]
pub fn span(nanoseconds: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| nanoseconds >= *unit) else {
        return format!("{nanoseconds} ns");
    };
    let hundredths = u128::from(nanoseconds) * 100 / u128::from(unit);
    format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
}

/// Formats an age in seconds as `3 s`, `12 min`, `5 h` or `2 days`, rounded down.
#[must_use]
pub fn age(seconds: u64) -> String {
    let units = [(86400, "days"), (3600, "h"), (60, "min")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| seconds >= 2 * unit) else {
        return format!("{seconds} s");
    };
    format!("{} {name}", seconds / unit)
}

/// Formats the time since `started`, which is in seconds since 1970.
#[must_use]
pub fn age_since(started: u64) -> String {
    let now = UNIX_EPOCH.elapsed().map_or(0, |age| age.as_secs());
    age(now.saturating_sub(started))
}

/// Makes one harmless line of a text that another program has written. Replaces characters that control a terminal, are
/// invisible, or change the order of letters.
#[must_use]
pub fn printable(text: &str) -> String {
    let steers = |letter: char| {
        let category = letter.general_category();
        use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator};
        matches!(category, Control | Format | LineSeparator | ParagraphSeparator)
    };
    text.chars().map(|letter| if steers(letter) { '?' } else { letter }).collect()
}

/// Draws a part of a whole as `[#####.....]`, with `width` characters between the brackets.
#[must_use]
pub fn bar(part: u64, whole: u64, width: usize) -> String {
    let filled = (u128::from(part) * width as u128).checked_div(u128::from(whole)).unwrap_or(0);
    let filled = usize::try_from(filled).unwrap_or(width).min(width);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(width - filled))
}

/// Formats rows below each other. A column is as wide as its longest cell. The columns in `numbers` are aligned to the right.
pub fn table(rows: &[Vec<String>], numbers: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if numbers.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_decimals_and_never_look_larger_than_they_are() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 20, "1.00 MiB"),
            ((4 << 30) - 1, "3.99 GiB"),
            (u64::MAX, "16777215.99 TiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }

    #[test]
    fn a_limit_with_many_digits_is_shown_rounded() {
        for (quota, glance, exact) in [
            (Some(4 << 30), "4GiB", "4GiB"),
            (Some(100 << 30), "100GiB", "100GiB"),
            (Some(4_000_000_000), "3.72 GiB", "3.72 GiB (3906250KiB)"),
            (Some(1_500_000_001), "1.39 GiB", "1.39 GiB (1500000001 B)"),
            (Some(1536 << 20), "1536MiB", "1536MiB"),
            (None, "none", "none"),
        ] {
            assert_eq!([limit(quota), exact_limit(quota)], [glance, exact]);
        }
    }

    #[test]
    fn shares_and_spans_have_readable_units() {
        for (permille, shown) in [(0, "0%"), (298, "29.8%"), (1000, "100%"), (1005, "100.5%")] {
            assert_eq!(percent(permille), shown);
        }
        for (nanoseconds, shown) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (3_109_999, "3.10 ms"),
            (12_400_000_000, "12.40 s"),
            (20_000, "20.00 us"),
        ] {
            assert_eq!(span(nanoseconds), shown);
        }
    }

    #[test]
    fn ages_are_whole_and_never_look_longer_than_they_are() {
        let ages = [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h")];
        for (seconds, shown) in ages.into_iter().chain([(172_799, "47 h"), (172_800, "2 days")]) {
            assert_eq!(age(seconds), shown);
        }
    }

    #[test]
    fn nothing_that_others_wrote_steers_a_terminal() {
        assert_eq!(printable("a\x1b[2J\u{9b}b\n"), "a?[2J?b?");
        for letter in
            ['\u{ad}', '\u{200b}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}', '\u{2028}']
        {
            assert_eq!(printable(&format!("a{letter}b")), "a?b", "{letter:?}");
        }
        assert_eq!(printable("Größe 大 €"), "Größe 大 €");
    }

    #[test]
    fn a_bar_always_has_the_width_that_the_caller_asks_for() {
        assert_eq!(bar(0, 8, 4), "[....]");
        assert_eq!(bar(7, 8, 4), "[###.]");
        assert_eq!(bar(9, 8, 4), "[####]");
        assert_eq!(bar(1, 0, 4), "[....]");
    }

    #[test]
    fn columns_stand_under_each_other_with_numbers_to_the_right() {
        let rows = [["NAME", "N"], ["x", "100"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows, &[1]), "NAME    N\nx     100\n");
    }
}
