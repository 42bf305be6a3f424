//! A pair in a sentence.

use super::lines::{MetricLine, PairLine};
use super::words;
use crate::report::plain;
use crate::stats::Standing;
use crate::verdict::metric::Metric;

/// `proposed against current under blackhole (flow)`.
pub(super) fn pair_name(pair: &PairLine) -> String {
    let short = |text: &str| plain(text).chars().take(100).collect::<String>();
    let sides = if pair.a.arm == pair.b.arm {
        format!("{}, B against A", short(&pair.a.arm))
    } else {
        format!("{} against {}", short(&pair.b.arm), short(&pair.a.arm))
    };
    format!("{sides} under {} ({})", short(&pair.fault), short(&pair.scope))
}

/// `71.2 s → 16.1 s, difference −57.0 s to −53.1 s, p < 0.001`.
pub(super) fn sentence(m: &MetricLine) -> String {
    let shown = |v: Option<f64>| words::value(m.metric, v.unwrap_or(f64::INFINITY));
    let p = m.p_adjusted.or(m.p).map(|p| match words::p_value(p) {
        text if text.starts_with('<') => format!(", p {text}"),
        text => format!(", p = {text}"),
    });
    format!(
        "{} → {}, difference {}{}",
        shown(m.a),
        shown(m.b),
        words::span(m.metric, m.interval),
        p.unwrap_or_default()
    )
}

/// The answer for one pair: what decides, in which direction, and what is needed where it is open.
pub(super) fn answer(pair: &PairLine) -> String {
    let alarms = || pair.metrics.iter().find(|m| m.metric == Metric::FalseAlarms);
    let Some(m) = pair.metrics.iter().find(|m| m.decides).or_else(alarms) else {
        return format!("{}: nothing to compare.", pair_name(pair));
    };
    let verdict = match m.verdict {
        Standing::Better => "better".to_string(),
        Standing::Worse => "worse".to_string(),
        Standing::Equal => format!("equal within {}", words::margin(m.metric, m.margin)),
        Standing::Inconclusive => {
            let needed =
                m.needed.map_or("more trials".to_string(), |n| format!("about {n} {} a side", m.metric.counted()));
            format!("inconclusive: {needed} would tell a difference of {}", words::margin(m.metric, m.margin))
        }
    };
    format!("{}: {}: {}: {verdict}.", pair_name(pair), m.metric.words(), sentence(m))
}
