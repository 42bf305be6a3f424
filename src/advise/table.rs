//! A plain table: columns padded to their widest cell, the last one wrapped to the width of the terminal.

/// One cell: text, and the colour that it has on a terminal.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// What stands in it.
    pub text: String,
    /// An SGR parameter, such as `31`.
    pub colour: Option<&'static str>,
}

impl Cell {
    /// Without a colour.
    #[must_use]
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), colour: None }
    }

    pub(super) fn coloured(text: impl Into<String>, colour: &'static str) -> Self {
        Self { text: text.into(), colour: Some(colour) }
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// The text in a colour, where colours are wanted.
pub(super) fn paint(text: &str, colour: Option<&str>, colours: bool) -> String {
    match colour.filter(|_| colours) {
        Some(colour) => format!("\x1b[{colour}m{text}\x1b[0m"),
        None => text.to_string(),
    }
}

/// Words in lines of at most `limit` characters; a longer word has a line of its own. A unit stays with its number.
pub(super) fn wrap(text: &str, limit: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let words: Vec<&str> = text.split(' ').collect();
    let mut next = 0;
    while next < words.len() {
        let mut word = words[next].to_string();
        next += 1;
        while let Some(unit) = words.get(next).filter(|w| w.trim_end_matches([',', ')', ';', '.']) == "s") {
            word = format!("{word} {unit}");
            next += 1;
        }
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(&word),
            Some(line) if width(line) + 1 + width(&word) <= limit => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// The width of the table's columns without the last, gaps included.
pub(super) fn left_width(rows: &[Vec<Cell>]) -> usize {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    (0..columns.saturating_sub(1)).map(|c| column_width(rows, c) + 2).sum()
}

fn column_width(rows: &[Vec<Cell>], column: usize) -> usize {
    rows.iter().filter_map(|row| row.get(column)).map(|cell| width(&cell.text)).max().unwrap_or(0)
}

/// The table with its first row as header, indented by two; no line ends in blanks.
#[must_use]
pub fn layout(rows: &[Vec<Cell>], limit: usize, colours: bool) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(|c| column_width(rows, c)).collect();
    let left = left_width(rows) + 2;
    let room = limit.saturating_sub(left).max(24);
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::from("  ");
        let mut rest = Vec::new();
        for (column, cell) in row.iter().enumerate() {
            let header = (number == 0).then_some("2");
            let colour = cell.colour.or(header);
            if column + 1 == columns {
                let mut lines = wrap(&cell.text, room).into_iter();
                line.push_str(&paint(&lines.next().unwrap_or_default(), colour, colours));
                rest = lines.collect();
            } else {
                line.push_str(&paint(&cell.text, colour, colours));
                line.push_str(&" ".repeat(widths[column] - width(&cell.text) + 2));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
        for more in rest {
            out.push_str(&" ".repeat(left));
            out.push_str(&more);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_wraps_and_units_stay_with_their_numbers() {
        let rows = vec![
            vec![Cell::plain("a"), Cell::plain("b")],
            vec![Cell::coloured("long", "31"), Cell::plain("words that end at 24 s, and go on")],
        ];
        assert_eq!(wrap("ends at 24 s", 10), ["ends at", "24 s"]);
        let text = layout(&rows, 32, false);
        assert_eq!(text, "  a     b\n  long  words that end at 24 s,\n        and go on\n");
        assert!(layout(&rows, 32, true).contains("\x1b[31mlong\x1b[0m"));
    }
}
