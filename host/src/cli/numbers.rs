//! Numbers as people read them.

use std::time::Duration;

/// With a comma before every three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Records per second, as a whole number.
pub(super) fn rate(records: u64, time: Duration) -> u64 {
    let rate = u128::from(records) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// `340 ms`, `12.3 s`, `1:02 min` or `1:02:03 h`.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) => format!("{} ms", time.as_millis()),
        (0, 0, _) => format!("{:.1} s", time.as_secs_f64()),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02} min"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02} h"),
    }
}

/// With the unit that leaves the fewest digits.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1000.0;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = if scaled < 9.95 { 1 } else { 0 };
    format!("{scaled:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let numbers = [0, 999, 1000, 12_345, 123_456, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345", "123,456", "1,234,567"]);
        let sizes = [0, 999, 1000, 12_345_678, 999_999, 2_500_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 KB", "12 MB", "1.0 MB", "2.5 GB"]);
        let times = [340, 12_345, 62_000, 3_723_000].map(|ms| time(Duration::from_millis(ms)));
        assert_eq!(times, ["340 ms", "12.3 s", "1:02 min", "1:02:03 h"]);
        assert_eq!(rate(500, Duration::from_millis(250)), 2000);
        assert_eq!(rate(5, Duration::ZERO), 5_000_000_000);
    }
}
