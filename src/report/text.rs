//! How numbers and foreign text stand in a report.

use crate::stats::Spread;

/// What stands where there is nothing to say.
pub(super) const NOTHING: &str = "–";

/// What stands where too many trials are censored.
pub(super) const NOT_REACHED: &str = "not reached";

/// Seconds with about three significant digits: `0.412`, `8.10`, `18.1`, `940`.
#[must_use]
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v < 0.9995 => format!("{value:.3}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A length that somebody chose: `60`, `0.5`.
pub(super) fn whole_seconds(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { seconds(value) }
}

/// A quantile of a spread: the number, `not reached` because too many are censored, or nothing at all.
pub(super) fn quantile(spread: &Spread, value: Option<f64>) -> String {
    match value {
        Some(value) => seconds(value),
        None if spread.n > 0 => NOT_REACHED.to_string(),
        None => NOTHING.to_string(),
    }
}

/// Text of somebody else on one line: control characters (line ends, terminal escapes) become spaces.
#[must_use]
pub fn plain(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() || is_invisible(c) { ' ' } else { c }).collect();
    spaced.trim().to_string()
}

/// Somebody else's text with its lines and its indentation: other control characters become spaces.
pub(super) fn plain_lines(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || !(c.is_control() || is_invisible(c)) { c } else { ' ' }).collect()
}

/// Line and paragraph separators and the marks that turn the direction of text around.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of somebody else inside Markdown, also in a table: shown as it is, never taken as markup.
#[must_use]
pub fn escape_markdown(text: &str) -> String {
    let text = plain(text);
    let chars: Vec<char> = text.chars().collect();
    let mut escaped = String::with_capacity(text.len());
    for (i, c) in chars.iter().enumerate() {
        let inside_word =
            i > 0 && chars[i - 1].is_alphanumeric() && chars.get(i + 1).is_some_and(|next| next.is_alphanumeric());
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '_' if inside_word => escaped.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' => {
                escaped.push('\\');
                escaped.push(*c);
            }
            c => escaped.push(*c),
        }
    }
    escaped
}

/// Seconds since 1970 as `2026-11-30 12:29:00 UTC`, by the proleptic Gregorian calendar (days-to-civil algorithm of
/// H. Hinnant, 2013).
#[must_use]
pub fn utc_date_time(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Bytes in the unit that people think in.
pub(super) fn bytes(n: u64) -> String {
    let n = n as f64;
    if n < 1e9 { format!("{:.0} MB", n / 1e6) } else { format!("{:.2} GB", n / 1e9) }
}

/// A short time in milliseconds.
pub(super) fn milliseconds(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_keep_three_digits() {
        let shown: Vec<String> =
            [0.0, 0.4123, 0.9999, 8.1, 9.999, 18.14, 99.97, 939.4].map(seconds).into_iter().collect();
        assert_eq!(shown, ["0.000", "0.412", "1.00", "8.10", "10.0", "18.1", "100", "939"]);
    }

    #[test]
    fn foreign_text_can_break_neither_table_nor_terminal() {
        assert_eq!(escape_markdown("a|b\nc"), "a\\|b c");
        assert_eq!(escape_markdown("<script>*x*</script>"), "&lt;script&gt;\\*x\\*&lt;/script&gt;");
        assert_eq!(escape_markdown("heartbeat_10 _em_"), "heartbeat_10 \\_em\\_");
        assert_eq!(plain("\u{1b}[31mred\u{202e}"), "[31mred");
    }

    #[test]
    fn dates_of_the_calendar() {
        assert_eq!(utc_date_time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc_date_time(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc_date_time(1_796_041_740), "2026-11-30 12:29:00 UTC");
        assert_eq!(utc_date_time(-1), "1969-12-31 23:59:59 UTC");
    }
}
