//! The link between an arm's clients and the broker: what the path does to packets all the time, apart from the fault.

use super::error::Findings;
use super::settings::Options;
use super::value::Val;
use super::walk::Fields;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the path does, in each of its directions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// How long a packet takes more.
    pub delay: Duration,
    /// By how much that differs, at most, either way; every value is as likely.
    pub jitter: Duration,
    /// The share of packets that is lost, 0 to 1.
    pub loss: f64,
    /// The share of packets that overtakes the others: it is not delayed, 0 to 1.
    pub reorder: f64,
    /// Bits a second that fit through; none: as many as there are.
    pub rate_bits: Option<u64>,
    /// Whether packets from the client to the broker are meant.
    pub to_broker: bool,
    /// Whether packets from the broker to the client are meant.
    pub to_client: bool,
}

impl Link {
    /// The least and the most that it adds to a round trip.
    #[must_use]
    pub fn round_trip(&self) -> (Duration, Duration) {
        let ways = u32::from(self.to_broker) + u32::from(self.to_client);
        (self.delay.saturating_sub(self.jitter) * ways, (self.delay + self.jitter) * ways)
    }

    /// The most that it adds on the way to the client.
    #[must_use]
    pub fn to_client_at_most(&self) -> Duration {
        if self.to_client { self.delay + self.jitter } else { Duration::ZERO }
    }

    /// Why the timer model says nothing about what happens over it; none where it knows all of it.
    ///
    /// The model takes the round trip from the delay. Lost or overtaking packets make a kernel repeat segments before the
    /// fault, and a narrow link or much jitter makes its retransmission timeout anything: about those it knows nothing.
    #[must_use]
    pub fn unknown_to_the_model(&self) -> Option<&'static str> {
        if self.loss > 0.0 {
            Some("its link loses packets, about which the model knows nothing")
        } else if self.reorder > 0.0 {
            Some("its link reorders packets, about which the model knows nothing")
        } else if self.rate_bits.is_some() {
            Some("its link has a rate, and how long packets wait for it the model does not know")
        } else if self.round_trip().1.saturating_sub(self.round_trip().0) > MUCH_JITTER {
            Some("the jitter of its link moves the retransmission timeout, and how far the model does not know")
        } else {
            None
        }
    }
}

/// A fourth of the least retransmission timeout of 200 ms: four deviations stay below it
/// (`tcp_rtt_estimator` in `net/ipv4/tcp_input.c`).
const MUCH_JITTER: Duration = Duration::from_millis(50);

/// An arm's link, field by field: its own, then the defaults'.
pub(super) fn read(options: Options<'_>) -> Option<Link> {
    let table = |fields: &'_ Fields| match fields.get("link").map(|found| found.val.clone()) {
        Some(Val::Fields(inner)) => Some(inner),
        _ => None,
    };
    // The nearer section decides whether there is one at all.
    table(options.source("link")?)?;
    let layers: Vec<Fields> = [options.own, options.defaults].into_iter().filter_map(table).collect();
    let time = |key: &str| layers.iter().find_map(|fields| fields.time(key)).unwrap_or_default();
    let share = |key: &str| layers.iter().find_map(|fields| fields.number(key)).unwrap_or_default();
    let bits = layers.iter().find_map(|fields| match fields.get("rate").map(|found| &found.val) {
        Some(Val::BitRate(bits)) => Some(*bits),
        _ => None,
    });
    let direction = layers.iter().find_map(|fields| fields.text("direction")).unwrap_or("both");
    Some(Link {
        delay: time("delay"),
        jitter: time("jitter"),
        loss: share("loss"),
        reorder: share("reorder"),
        rate_bits: bits,
        to_broker: direction != "to_client",
        to_client: direction != "to_broker",
    })
}

/// A link that could not do what it says.
pub(super) fn check(options: Options<'_>, link: &Link, findings: &mut Findings) {
    let fields = options.source("link").unwrap_or(options.own);
    let (at, name) = (fields.at("link"), fields.name("link"));
    if link.jitter > link.delay {
        let problem = "a jitter above the delay would be cut off at none; raise the delay, or lower the jitter";
        findings.error(at, &name, problem);
    }
    if link.reorder > 0.0 && link.delay.is_zero() {
        let problem = "without a delay nothing can be overtaken; write for example `delay = \"10ms\"`";
        findings.error(at, &name, problem);
    }
    let nothing = link.delay.is_zero() && link.loss == 0.0 && link.reorder == 0.0 && link.rate_bits.is_none();
    if nothing {
        findings.error(at, &name, "does nothing; write `off`, or for example `{ delay = \"50ms\" }`");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Scenario, ScenarioErrors};
    use super::*;

    fn read(defaults: &str, arm: &str) -> Result<Scenario, ScenarioErrors> {
        let text = format!(
            "# Who?\n[scenario]\nname = \"x\"\nhorizon = \"1h\"\n[fault]\nprofile = \"none\"\n[defaults]\n{defaults}\n\
             [[arm]]\nname = \"a\"\nsubject = \"tcp-reader\"\n{arm}\n"
        );
        super::super::read("x.toml", &text)
    }

    fn link(defaults: &str, arm: &str) -> Option<Link> {
        read(defaults, arm).unwrap().arms[0].settings.link
    }

    #[test]
    fn fields_come_from_the_arm_then_from_the_defaults() {
        let link =
            link("link = { delay = \"50ms\", loss = \"30%\" }", "link = { loss = 0.1, rate = \"1.5mbit\" }").unwrap();
        assert_eq!((link.delay, link.loss, link.rate_bits), (Duration::from_millis(50), 0.1, Some(1_500_000)));
        assert!(link.to_broker && link.to_client);
        assert_eq!(link.round_trip(), (Duration::from_millis(100), Duration::from_millis(100)));
        assert_eq!(super::tests::link("link = { delay = \"50ms\" }", "link = \"off\""), None);
        assert_eq!(super::tests::link("", ""), None);
    }

    #[test]
    fn a_direction_leaves_the_other_alone() {
        let link = link("", "link = { delay = \"50ms\", jitter = \"10ms\", direction = \"to_client\" }").unwrap();
        assert!(!link.to_broker && link.to_client);
        assert_eq!(link.round_trip(), (Duration::from_millis(40), Duration::from_millis(60)));
        assert_eq!(link.to_client_at_most(), Duration::from_millis(60));
    }

    #[test]
    fn what_could_not_be_is_refused_with_the_mend() {
        let error = |arm: &str| read("", arm).unwrap_err().to_string();
        assert!(error("link = { delay = \"1ms\", jitter = \"2ms\" }").contains("raise the delay"));
        assert!(error("link = { reorder = \"25%\" }").contains("nothing can be overtaken"));
        assert!(error("link = { direction = \"to_client\" }").contains("does nothing"));
        assert!(error("link = { delay = \"50ms\", loss = 30 }").contains("write `\"30%\"`"));
        assert!(error("link = { rate = \"fast\" }").contains("1mbit"));
        assert!(error("link = { latency = \"50ms\" }").contains("did you mean `delay`?"));
    }

    #[test]
    fn the_model_knows_a_delay_and_nothing_else() {
        let unknown = |arm: &str| link("", arm).unwrap().unknown_to_the_model();
        assert_eq!(unknown("link = { delay = \"50ms\", jitter = \"5ms\" }"), None);
        for other in [
            "loss = \"1%\"",
            "delay = \"9ms\", reorder = \"1%\"",
            "rate = \"1mbit\"",
            "delay = \"1s\", jitter = \"1s\"",
        ] {
            assert!(unknown(&format!("link = {{ {other} }}")).is_some(), "{other}");
        }
    }
}
