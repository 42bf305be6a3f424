//! What the settings cost on a healthy connection, by what client and broker agreed on.

use crate::scenario::Settings;
use crate::store::{ArmOptions, RunHead};
use crate::units::Setting;
use serde::Serialize;

/// The price of an arm's settings on a quiet, healthy connection. Nominal: what the protocols send, not what was counted.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Price {
    /// AMQP heartbeat frames a second and connection, both ways together: each end sends one every half interval.
    pub heartbeats_per_s: Option<f64>,
    /// Keepalive probes a second and connection: one an idle time, while nothing else flows.
    pub keepalive_probes_per_s: Option<f64>,
    /// Messages a second and connection of the scenario's load: what the sides have to carry at any setting.
    pub messages_per_s: Option<f64>,
}

/// The price of one arm of a run.
#[must_use]
pub fn price(run: &RunHead, arm: &str) -> Price {
    let scenario = &run.plan.scenario;
    let Some(of) = scenario.arms.iter().find(|a| a.name == arm) else { return Price::default() };
    let options = run.arms.iter().find(|o| o.arm == arm);
    Price {
        heartbeats_per_s: heartbeat(&of.settings, options).map(|interval_s| 4.0 / interval_s),
        keepalive_probes_per_s: of.settings.keepalive.map(|k| 1.0 / k.idle.max(k.interval).as_secs_f64()),
        messages_per_s: scenario.load_of(of).map(|every| 1.0 / every.as_secs_f64()),
    }
}

/// The interval that was agreed on where that is known, else the one that was asked for; `None` without heartbeats.
fn heartbeat(settings: &Settings, options: Option<&ArmOptions>) -> Option<f64> {
    let agreed = options.and_then(|o| o.effective.first()).and_then(|e| e.options.heartbeat_s);
    let asked = settings.heartbeat.and_then(Setting::get).map(|d| d.as_secs_f64());
    agreed.map(f64::from).or(asked).filter(|s| *s > 0.0)
}
