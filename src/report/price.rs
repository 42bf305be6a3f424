//! What the settings cost: alarms without a fault, attempts, repeated work, and what a healthy idle connection sends.

use super::document::{Block, Section, Table};
use super::sentences;
use super::summary::{CellSummary, Summary};
use super::text::{NOTHING, plain};
use crate::events::EffectiveOptions;
use crate::stats::Share;
use crate::store::ArmOptions;

/// The table, one row an arm and fault.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let row = |c: &CellSummary| {
        let counted = c.counts.trials - c.counts.void;
        let alarms = Share::of(c.counts.false_alarm, counted);
        let false_alarms = match counted {
            0 => NOTHING.to_string(),
            n => format!("{} of {n}, at most {}", alarms.k, percent(alarms.hi)),
        };
        let attempts = c.attempts_mean.map_or_else(|| NOTHING.to_string(), |mean| format!("{mean:.2}"));
        let messages = |n: fn(&super::MessageCounts) -> usize| {
            c.messages.as_ref().map_or_else(|| NOTHING.to_string(), |m| n(m).to_string())
        };
        let arm = summary.arms.iter().find(|a| a.arm == c.arm);
        vec![
            plain(&c.arm),
            sentences::fault(c, &|text| plain(text)),
            false_alarms,
            attempts,
            messages(|m| m.duplicated),
            messages(|m| m.unresolved),
            arm.map_or_else(|| NOTHING.to_string(), idle),
        ]
    };
    let rows: Vec<_> = summary.cells.iter().map(row).collect();
    let header = [
        "arm",
        "fault",
        "false alarms",
        "attempts a trial",
        "delivered twice",
        "unresolved",
        "sent while idle and healthy",
    ];
    let note: &[&str] = &[
        "",
        "False alarms",
        " with the upper end of the exact 95 % interval: none in 20 trials still allows one in six. ",
        "Attempts",
        " count the connection under test. What an idle connection sends follows from its effective options, both ways together.",
    ];
    let some = !rows.is_empty();
    let blocks = vec![Block::Table(Table::new(&header, rows)), Block::Note(note)];
    some.then_some(Section { id: "price", title: "The price", blocks })
}

/// Frames and probes of an arm's most frequent set of options.
fn idle(arm: &ArmOptions) -> String {
    let Some(o) = arm.effective.first().map(|e| &e.options) else { return NOTHING.to_string() };
    let sent = [heartbeats(o), probes(o)];
    let said: Vec<String> = sent.into_iter().flatten().collect();
    if said.is_empty() { "nothing".to_string() } else { said.join(", ") }
}

/// Either end sends a frame each half of the heartbeat.
fn heartbeats(o: &EffectiveOptions) -> Option<String> {
    let heartbeat = f64::from(o.heartbeat_s.filter(|s| *s > 0)?);
    Some(format!("{} heartbeats a minute", rate(4.0 * 60.0 / heartbeat)))
}

/// One probe and its answer each idle time.
fn probes(o: &EffectiveOptions) -> Option<String> {
    let idle = f64::from(o.keepalive_idle_s.filter(|s| *s > 0 && o.keepalive == Some(true))?);
    Some(format!("{} keepalive segments a minute", rate(2.0 * 60.0 / idle)))
}

/// A share without "0.0 %", which would be a promise.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 0.1 { format!("{percent:.1} %") } else { format!("{percent:.4} %") }
}

fn rate(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_idle_connection_sends() {
        let o = EffectiveOptions {
            heartbeat_s: Some(60),
            keepalive: Some(true),
            keepalive_idle_s: Some(45),
            ..EffectiveOptions::default()
        };
        assert_eq!(heartbeats(&o).unwrap(), "4 heartbeats a minute");
        assert_eq!(probes(&o).unwrap(), "2.67 keepalive segments a minute");
        assert_eq!(heartbeats(&EffectiveOptions { heartbeat_s: Some(0), ..o.clone() }), None);
        assert_eq!(probes(&EffectiveOptions { keepalive: Some(false), ..o }), None);
    }
}
