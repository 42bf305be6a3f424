//! HDR histograms in the interval log format that other tools read (`*.hlog`), values in microseconds.
//!
//! One line a tag; the tag is the arm. Only events are recorded: a censored trial has no value, and its count stands in
//! the summary.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag};
use std::time::Duration;
use thiserror::Error;

/// Why a histogram log could not be written or read.
#[derive(Debug, Error)]
pub enum HlogError {
    /// A value is negative or not a number.
    #[error("`{0}` s is not a time that a histogram can hold")]
    Value(f64),
    /// The format's library refused.
    #[error("histogram log: {0}")]
    Format(String),
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct HlogEntry {
    /// The tag, empty for none.
    pub tag: String,
    /// The histogram, in microseconds.
    pub histogram: Histogram<u64>,
}

/// A name as the format allows it in a tag: comma, white space and control characters become `_`.
#[must_use]
pub fn tag_of(name: &str) -> String {
    name.chars().map(|c| if c == ',' || c.is_whitespace() || c.is_control() { '_' } else { c }).collect()
}

/// Three significant digits, any length of time.
fn histogram(seconds: &[f64]) -> Result<Histogram<u64>, HlogError> {
    let mut histogram = Histogram::new(3).map_err(|e| HlogError::Format(e.to_string()))?;
    for s in seconds {
        if !s.is_finite() || *s < 0.0 {
            return Err(HlogError::Value(*s));
        }
        histogram.record((s * 1e6).round() as u64).map_err(|e| HlogError::Format(e.to_string()))?;
    }
    Ok(histogram)
}

/// The log of some named samples (in seconds); `interval_s` is the length of the run, which the format asks for.
///
/// # Errors
/// [`HlogError::Value`] for a value that is not a time.
pub fn write_hlog(comment: &str, samples: &[(String, Vec<f64>)], interval_s: f64) -> Result<Vec<u8>, HlogError> {
    let entry =
        |(name, seconds): &(String, Vec<f64>)| Ok(HlogEntry { tag: tag_of(name), histogram: histogram(seconds)? });
    write_histograms(comment, &samples.iter().map(entry).collect::<Result<Vec<_>, _>>()?, interval_s)
}

fn write_histograms(comment: &str, entries: &[HlogEntry], interval_s: f64) -> Result<Vec<u8>, HlogError> {
    let format = |e: &dyn std::fmt::Display| HlogError::Format(e.to_string());
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(comment);
    let mut writer = builder.begin_log_with(&mut bytes, &mut serializer).map_err(|e| format(&e))?;
    let length = Duration::try_from_secs_f64(interval_s).unwrap_or_default();
    for HlogEntry { tag, histogram } in entries {
        let tag = if tag.is_empty() { None } else { Tag::new(tag) };
        writer.write_histogram(histogram, Duration::ZERO, length, tag).map_err(|e| format(&e))?;
    }
    Ok(bytes)
}

/// Logs of several runs or shards as one: the histograms of one tag are added up, value by value, so that a quantile of
/// the sum is the quantile of all trials together (which a mean of quantiles is not). Tags in order of their first line.
///
/// # Errors
/// [`HlogError::Format`] when a line is not one of the format.
pub fn merge_hlogs(comment: &str, logs: &[&[u8]], interval_s: f64) -> Result<Vec<u8>, HlogError> {
    let mut merged: Vec<HlogEntry> = Vec::new();
    for entry in logs.iter().map(|log| read_hlog(log)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        match merged.iter_mut().find(|known| known.tag == entry.tag) {
            Some(known) => known.histogram.add(&entry.histogram).map_err(|e| HlogError::Format(e.to_string()))?,
            None => merged.push(entry),
        }
    }
    write_histograms(comment, &merged, interval_s)
}

/// Reads a log back.
///
/// # Errors
/// [`HlogError::Format`] when a line is not one of the format.
pub fn read_hlog(bytes: &[u8]) -> Result<Vec<HlogEntry>, HlogError> {
    let mut entries = Vec::new();
    let mut deserializer = hdrhistogram::serialization::Deserializer::new();
    for entry in IntervalLogIterator::new(bytes) {
        match entry {
            Ok(LogEntry::Interval(line)) => {
                let encoded = decode_base64(line.encoded_histogram())
                    .ok_or_else(|| HlogError::Format("a histogram is not base64".to_string()))?;
                let histogram =
                    deserializer.deserialize(&mut encoded.as_slice()).map_err(|e| HlogError::Format(e.to_string()))?;
                let tag = line.tag().map(|t| t.as_str().to_string()).unwrap_or_default();
                entries.push(HlogEntry { tag, histogram });
            }
            Ok(_) => {}
            Err(error) => return Err(HlogError::Format(format!("{error:?}"))),
        }
    }
    Ok(entries)
}

/// Standard base64 with padding (RFC 4648 §4); the format's library decodes none.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut buffer, mut bits) = (0u32, 0u32);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = (buffer << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_back_within_three_digits() {
        let samples = vec![("heartbeat 10, quiet".to_string(), vec![15.5, 18.1, 21.2]), ("empty".to_string(), vec![])];
        let bytes = write_hlog("time to detect, microseconds", &samples, 60.0).unwrap();
        let entries = read_hlog(&bytes).unwrap();
        assert_eq!(entries.iter().map(|e| e.tag.as_str()).collect::<Vec<_>>(), ["heartbeat_10__quiet", "empty"]);
        let first = &entries[0].histogram;
        assert_eq!((first.len(), entries[1].histogram.len()), (3, 0));
        let median = first.value_at_quantile(0.5) as f64 / 1e6;
        assert!((median - 18.1).abs() < 18.1 * 1e-3, "{median}");
    }

    #[test]
    fn logs_of_shards_add_up_to_the_log_of_the_whole() {
        let all: Vec<f64> = (0..400).map(|i| 8.0 + f64::from(i * i % 397) / 100.0).collect();
        let part = |i: usize| vec![("a".to_string(), all.iter().copied().skip(i).step_by(3).collect::<Vec<_>>())];
        let logs: Vec<Vec<u8>> = (0..3).map(|i| write_hlog("c", &part(i), 60.0).unwrap()).collect();
        let logs: Vec<&[u8]> = logs.iter().map(Vec::as_slice).collect();
        let whole = write_hlog("c", &[("a".to_string(), all.clone())], 60.0).unwrap();
        assert_eq!(merge_hlogs("c", &logs, 60.0).unwrap(), whole);
    }

    #[test]
    fn the_same_samples_give_the_same_bytes_and_a_bad_one_is_refused() {
        let samples = vec![("a".to_string(), vec![1.0])];
        assert_eq!(write_hlog("c", &samples, 1.0).unwrap(), write_hlog("c", &samples, 1.0).unwrap());
        assert!(matches!(write_hlog("c", &[("a".into(), vec![-1.0])], 1.0), Err(HlogError::Value(_))));
        assert!(matches!(write_hlog("c", &[("a".into(), vec![f64::NAN])], 1.0), Err(HlogError::Value(_))));
    }
}
