//! Free host memory, from the kernel's files.

/// Returns the bytes that are available without swapping, from `/proc/meminfo`. `None`: the text does not tell.
#[must_use]
pub fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the bytes left of a control group's limit, from `memory.max`, `memory.current` and `memory.stat`. `None`: the
/// group has no limit. File pages that were not used for long do not count as used, because the kernel can drop them.
#[must_use]
pub fn left_of_group(most: &str, current: &str, stat: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let idle = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")).and_then(number);
    Some(number(most)?.saturating_sub(number(current)?.saturating_sub(idle.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_the_memory_that_it_says_is_available() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    12345 kB\n"), Some(12_345 << 10));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn a_group_has_its_limit_less_the_memory_it_cannot_give_up() {
        assert_eq!(left_of_group("1000\n", "700\n", "anon 1\ninactive_file 200\n"), Some(500));
        assert_eq!(left_of_group("1000\n", "1700\n", "anon 1\n"), Some(0));
        assert_eq!(left_of_group("max\n", "700\n", ""), None);
    }
}
