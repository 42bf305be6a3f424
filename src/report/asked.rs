//! What an arm asked of somebody else's client, beside what the kernel says is set.

use crate::clients;
use crate::events::EffectiveOptions;
use crate::plan::Plan;
use crate::store::ArmOptions;
use crate::verdict::{Outcome, TrialRow};
use serde_json::Value;

/// Lines for arms whose client is watched from outside: what bounds its reads, and each option without effect.
pub(super) fn findings(arms: &[ArmOptions]) -> Vec<String> {
    arms.iter().filter(|arm| arm.asked.subject.is_command()).flat_map(lines).collect()
}

/// A line for each arm whose client ended by itself, with where its last words are.
pub(super) fn ended(plan: &Plan, rows: &[TrialRow]) -> Vec<String> {
    let outside = plan.scenario.arms.iter().filter(|arm| arm.settings.subject.is_command());
    let line = |name: &String| {
        let own = || rows.iter().filter(|row| row.arm == *name && row.outcome != Outcome::Void);
        let mut died = own().filter(|row| row.client_exited_s.is_some());
        let first = died.next()?;
        let (n, all, how, trial) = (1 + died.count(), own().count(), &first.client_exit, first.trial);
        Some(format!(
            "{name}: the client ended by itself in {n} of {all} trials; the first: {how}, its last words are in \
             logs/trial-{trial}.log"
        ))
    };
    outside.filter_map(|arm| line(&arm.name)).collect()
}

fn lines(arm: &ArmOptions) -> Vec<String> {
    let name = &arm.arm;
    // Sets that differ in something else say the same here.
    let mut sets: Vec<(String, usize)> = Vec::new();
    for set in &arm.effective {
        let text = shown(&set.options, "so_rcvtimeo");
        match sets.iter_mut().find(|(known, _)| *known == text) {
            Some((_, n)) => *n += set.n,
            None => sets.push((text, set.n)),
        }
    }
    let line = |(text, n): (String, usize)| {
        format!("{name}: effective {text} ({})", super::sentences::plural(n, "connection"))
    };
    let mut lines: Vec<String> = sets.into_iter().map(line).collect();
    if lines.is_empty() {
        lines.push(format!("{name}: the effective options of its connection could not be read"));
    }
    for (option, value, claim) in clients::asked(&arm.asked) {
        let idle = arm.effective.iter().filter(|set| is_idle(&set.options, &claim, &value)).count();
        if idle > 0 && idle == arm.effective.len() {
            lines.push(format!(
                "{name}: asked {option} = {value}, effective {}",
                shown(&arm.effective[0].options, &claim)
            ));
        }
    }
    lines
}

/// Whether an option that claims to set this did not: nothing is set although something was asked for.
fn is_idle(options: &EffectiveOptions, claim: &str, asked: &Value) -> bool {
    let asks = !matches!(asked, Value::Null | Value::Bool(false)) && asked.as_f64() != Some(0.0);
    let set = match claim {
        "so_rcvtimeo" => options.so_rcvtimeo_ms.map(|ms| ms > 0),
        "so_sndtimeo" => options.so_sndtimeo_ms.map(|ms| ms > 0),
        "keepalive" => options.keepalive,
        _ => None,
    };
    asks && set == Some(false)
}

fn shown(options: &EffectiveOptions, claim: &str) -> String {
    let time = |name: &str, ms: Option<u64>| match ms {
        None => format!("{name} unknown"),
        Some(0) => format!("{name} 0 (none)"),
        Some(ms) => format!("{name} {} s", ms as f64 / 1e3),
    };
    match claim {
        "so_rcvtimeo" => time("SO_RCVTIMEO", options.so_rcvtimeo_ms),
        "so_sndtimeo" => time("SO_SNDTIMEO", options.so_sndtimeo_ms),
        _ => format!("SO_KEEPALIVE {}", options.keepalive.map_or("unknown", |on| if on { "on" } else { "off" })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::EffectiveCount;

    fn arm(sets: &[(&str, &str)], so_rcvtimeo_ms: u64) -> ArmOptions {
        let sets: Vec<(String, String)> = sets.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let options = EffectiveOptions { so_rcvtimeo_ms: Some(so_rcvtimeo_ms), ..EffectiveOptions::default() };
        let asked = crate::scenario::from_sets(&sets).unwrap();
        ArmOptions { arm: "a".into(), asked, effective: vec![EffectiveCount { n: 1, options }] }
    }

    #[test]
    fn an_option_without_effect_is_named_and_one_with_effect_is_not() {
        let ignored = arm(&[("subject", "celery"), ("client.broker_transport_options.socket_timeout", "60")], 0);
        assert_eq!(
            findings(&[ignored]),
            [
                "a: effective SO_RCVTIMEO 0 (none) (1 connection)",
                "a: asked broker_transport_options.socket_timeout = 60, effective SO_RCVTIMEO 0 (none)",
            ]
        );
        let works = arm(&[("subject", "celery"), ("read_timeout", "60s")], 60_000);
        assert_eq!(findings(&[works]), ["a: effective SO_RCVTIMEO 60 s (1 connection)"]);
        assert!(findings(&[arm(&[("subject", "tcp-reader")], 0)]).is_empty());
        let mut differ = arm(&[("subject", "celery")], 0);
        let options = EffectiveOptions { nonblocking: Some(true), ..differ.effective[0].options.clone() };
        differ.effective.push(EffectiveCount { n: 2, options });
        assert_eq!(findings(&[differ]), ["a: effective SO_RCVTIMEO 0 (none) (3 connections)"]);
    }
}
