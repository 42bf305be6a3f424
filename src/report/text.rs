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
}
