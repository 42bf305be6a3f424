//! The CSV files.

use crate::verdict::{ConnectionRow, MessageRow, TrialRow};

/// `trials.csv`.
#[must_use]
pub fn trials_csv(rows: &[TrialRow]) -> Vec<u8> {
    table(TrialRow::COLUMNS, rows.iter().map(TrialRow::cells))
}

/// `connections.csv`.
#[must_use]
pub fn connections_csv(rows: &[ConnectionRow]) -> Vec<u8> {
    table(ConnectionRow::COLUMNS, rows.iter().map(ConnectionRow::cells))
}

/// `messages.csv`.
#[must_use]
pub fn messages_csv(rows: &[MessageRow]) -> Vec<u8> {
    table(MessageRow::COLUMNS, rows.iter().map(MessageRow::cells))
}

/// RFC 4180 with line feeds; quoted where needed.
fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory can't fail, and every row has as many cells as there are columns.
    let _ = writer.write_record(columns);
    for row in rows {
        let _ = writer.write_record(row);
    }
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_quotes_and_line_ends_come_back_whole() {
        let name = "a,\"b\"\n|c";
        let row = TrialRow { arm: name.to_string(), ..TrialRow::default() };
        let bytes = trials_csv(&[row]);
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), TrialRow::COLUMNS);
        let record = reader.records().next().unwrap().unwrap();
        assert_eq!((&record[1], record.len()), (name, TrialRow::COLUMNS.len()));
    }
}
