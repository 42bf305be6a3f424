//! What a trial's worker does beside its messages: signs of life, and sweeps.

use super::TrialRow;
use super::timeline::Timeline;
use super::trial::span;
use crate::events::{Event, Kind};
use crate::units::Offset;

/// Fills the columns of signs of life and of sweeps.
pub(super) fn enter(row: &mut TrialRow, events: &[&Event], t: &Timeline) {
    let end = t.ended.map_or(Offset(i64::MAX), |(at, _)| at);
    let own = || events.iter().filter(|e| e.offset <= end);
    let beats = own().filter_map(|e| match e.kind {
        Kind::Beat { ok, took_us } => Some((e.offset, ok, took_us)),
        _ => None,
    });
    let beats: Vec<_> = beats.collect();
    let taken = beats.iter().filter(|(_, ok, _)| *ok).count();
    if let (Some((first, ..)), Some((last, ..))) = (beats.first(), beats.last()) {
        let watched = if end.0 == i64::MAX { *last } else { end }.since(*first).as_secs_f64();
        row.beats_per_s = (watched > 0.0).then(|| taken as f64 / watched);
        row.beats_failed_n = Some((beats.len() - taken) as u64);
        let slowest = beats.iter().filter(|(_, ok, _)| *ok).map(|(_, _, took_us)| *took_us).max();
        row.beats_slowest_s = slowest.map(|took_us| took_us as f64 / 1e6);
    }
    let mut sweeps: Vec<Offset> = own().filter(|e| matches!(e.kind, Kind::Swept { .. })).map(|e| e.offset).collect();
    if sweeps.is_empty() {
        return;
    }
    row.sweeps_n = Some(sweeps.len() as u64);
    if end.0 != i64::MAX {
        sweeps.push(end);
    }
    row.sweeps_gap_s = sweeps.windows(2).map(|pair| span(pair[1], pair[0])).max();
}
