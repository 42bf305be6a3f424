//! `report.md`.

use super::distortion;
use super::document::{self, Block, Cell, Table};
use super::sentences;
use super::summary::Summary;
use super::text::escape_markdown;

/// The whole report.
pub(super) fn render(summary: &Summary) -> String {
    let mut out = Lines::default();
    out.line(&format!("# {}", escape_markdown(&summary.scenario.name)));
    out.paragraph(&escape_markdown(&summary.scenario.question));
    out.paragraph(&escape_markdown(&sentences::answer(summary)));
    out.paragraph(&format!("**{}**", sentences::headline(summary)));
    if let Some(label) = distortion::label(summary, &|text| escape_markdown(text)) {
        out.paragraph(&format!("**{label}**"));
    }
    for finding in document::findings(summary) {
        out.line(&format!("- {}", escape_markdown(&finding)));
    }
    for section in document::sections(summary) {
        out.section(section.title);
        for block in &section.blocks {
            out.block(block);
        }
    }
    out.text
}

/// Lines with the blank ones that Markdown needs.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn paragraph(&mut self, text: &str) {
        if !text.is_empty() {
            self.blank();
            self.line(text);
            self.blank();
        }
    }

    fn section(&mut self, title: &str) {
        self.blank();
        self.line(&format!("## {title}"));
        self.blank();
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::List(lines) => lines.iter().for_each(|line| self.line(&format!("- {}", escape_markdown(line)))),
            Block::Note(pieces) => {
                let shown =
                    |(i, piece): (usize, &&str)| if i % 2 == 1 { format!("*{piece}*") } else { piece.to_string() };
                self.paragraph(&pieces.iter().enumerate().map(shown).collect::<String>());
            }
            Block::Table(table) => self.cells(table),
            Block::More(title, table) => {
                self.blank();
                self.line(&format!("### {title}"));
                self.blank();
                self.cells(table);
            }
        }
    }

    fn cells(&mut self, table: &Table) {
        let cell = |cell: &Cell| match cell.is_verdict() {
            true => format!("**{}**", escape_markdown(&cell.text)),
            false => escape_markdown(&cell.text),
        };
        let rows: Vec<Vec<String>> = table.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        self.table(&table.header, &rows);
    }

    fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        self.line(&format!("| {} |", header.join(" | ")));
        self.line(&format!("|{}", "---|".repeat(header.len())));
        for row in rows {
            self.line(&format!("| {} |", row.join(" | ")));
        }
        self.blank();
    }
}
