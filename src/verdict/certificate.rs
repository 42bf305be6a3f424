//! Whether the router vouches for a trial: the fault was in force, complete and silent.

use super::VoidReason;
use super::timeline::Timeline;
use crate::events::Counters;
use crate::scenario::Fault;
use crate::units::Setting;

/// What the router counted while the fault was in force. Counts only grow, so the largest of several readings is the
/// last, in whatever order they were recorded. `None` when nothing was read in time.
pub(super) fn counters(timeline: &Timeline, fault: &Fault) -> Option<(Counters, bool)> {
    let valid_until = timeline.healed.map(|(before, _)| before);
    let in_force: Vec<_> =
        timeline.certificates.iter().filter(|(at, ..)| valid_until.is_none_or(|healed| *at <= healed)).collect();
    // A fault that is healed on purpose lets packets pass afterwards: only a reading before that can vouch for it.
    // Without such a plan the only healing is the harness tidying up, and any reading will do.
    let readings = if in_force.is_empty() && fault.duration == Setting::None {
        timeline.certificates.iter().collect()
    } else {
        in_force
    };
    readings.into_iter().fold(None, |sum, (_, c, intact)| {
        let (all, all_intact) = sum.unwrap_or((Counters::default(), true));
        Some((largest(all, *c), all_intact && *intact))
    })
}

fn largest(a: Counters, b: Counters) -> Counters {
    Counters {
        offered_to_broker: a.offered_to_broker.max(b.offered_to_broker),
        offered_to_client: a.offered_to_client.max(b.offered_to_client),
        dropped_to_broker: a.dropped_to_broker.max(b.dropped_to_broker),
        dropped_to_client: a.dropped_to_client.max(b.dropped_to_client),
        passed_to_broker: a.passed_to_broker.max(b.passed_to_broker),
        passed_to_client: a.passed_to_client.max(b.passed_to_client),
        rst_to_client: a.rst_to_client.max(b.rst_to_client),
        fin_to_client: a.fin_to_client.max(b.fin_to_client),
        icmp_to_client: a.icmp_to_client.max(b.icmp_to_client),
    }
}

/// Why the certificate voids the trial, if it does. The most telling reason first: a RST that passed is also a packet
/// that passed. A direction in which nothing was offered is unexercised, not void; and where only the way to the broker
/// is cut, the broker's own RST or FIN may reach the client.
pub(super) fn objection(certificate: Option<(Counters, bool)>, fault: &Fault) -> Option<VoidReason> {
    let drop = fault.drop;
    let Some((c, intact)) = certificate else {
        return (!drop.is_none()).then_some(VoidReason::CertificateMissing);
    };
    let dropped_outside = (!drop.to_broker && c.dropped_to_broker > 0) || (!drop.to_client && c.dropped_to_client > 0);
    let lost_otherwise = (drop.to_broker && c.lost_to_broker() > 0) || (drop.to_client && c.lost_to_client() > 0);
    let checks = [
        (!drop.is_none() && !intact, VoidReason::RulesNotIntact),
        (!drop.is_none() && c.icmp_to_client > 0, VoidReason::IcmpReachedClient),
        (drop.to_client && c.rst_to_client > 0, VoidReason::RstReachedClient),
        (drop.to_client && c.fin_to_client > 0, VoidReason::FinReachedClient),
        (drop.to_broker && c.passed_to_broker > 0, VoidReason::PassedToBroker),
        (drop.to_client && c.passed_to_client > 0, VoidReason::PassedToClient),
        (dropped_outside, VoidReason::DroppedOutsideFault),
        (lost_otherwise, VoidReason::LostOtherwise),
    ];
    checks.into_iter().find_map(|(objects, reason)| objects.then_some(reason))
}
