//! Whether the router vouches for a trial: the fault was in force, complete and silent.

use super::timeline::Timeline;
use super::{VoidReason, distorted, middlebox};
use crate::events::Counters;
use crate::scenario::{Act, Fault};
use crate::units::{Offset, Setting};

/// What the router counted while the fault was in force. Counts only grow, so the largest of several readings is the
/// last, in whatever order they were recorded. `None` when nothing was read in time.
///
/// A fault that comes again lets packets pass in between: what passed counts from the first reading of each cut, which
/// is taken right after it came into force.
pub(super) fn counters(timeline: &Timeline, fault: &Fault) -> Option<(Counters, bool)> {
    let mut sum: Option<(Counters, bool)> = None;
    for (number, (from, until)) in windows(timeline).into_iter().enumerate() {
        let of_it = |(at, ..): &&(Offset, Counters, bool)| *at >= from && until.is_none_or(|healed| *at <= healed);
        let mut readings: Vec<_> = timeline.certificates.iter().filter(of_it).collect();
        // Without a plan to heal the only healing is the harness tidying up, and any reading will do.
        if readings.is_empty() && fault.duration == Setting::None {
            readings = timeline.certificates.iter().collect();
        }
        let base = readings.first().filter(|_| number > 0).map(|(_, counters, _)| *counters);
        // Before the cut came wholly into force the first connection was ended in it.
        let base = base.or(timeline.hung_up).unwrap_or_default();
        let Some(in_it) = readings.iter().map(|(_, counters, _)| since(*counters, base)).reduce(largest) else {
            continue;
        };
        let intact = readings.iter().all(|(.., intact)| *intact);
        let (known, all_intact) = sum.unwrap_or((Counters::default(), true));
        sum = Some((together(known, in_it, u64::saturating_add), all_intact && intact));
    }
    sum
}

/// From when to when the fault was in force; an open end is the trial's.
fn windows(timeline: &Timeline) -> Vec<(Offset, Option<Offset>)> {
    let first = Offset(i64::MIN);
    let mut heals = timeline.heals.iter().copied().peekable();
    let mut windows = Vec::new();
    for from in std::iter::once(first).chain(timeline.repeated.iter().copied()) {
        let until = heals.by_ref().find(|healed| *healed >= from);
        windows.push((from, until));
    }
    windows
}

/// What was counted since the base.
fn since(now: Counters, base: Counters) -> Counters {
    together(now, base, u64::saturating_sub)
}

fn largest(a: Counters, b: Counters) -> Counters {
    together(a, b, u64::max)
}

fn together(a: Counters, b: Counters, with: impl Fn(u64, u64) -> u64) -> Counters {
    Counters {
        offered_to_broker: with(a.offered_to_broker, b.offered_to_broker),
        offered_to_client: with(a.offered_to_client, b.offered_to_client),
        dropped_to_broker: with(a.dropped_to_broker, b.dropped_to_broker),
        dropped_to_client: with(a.dropped_to_client, b.dropped_to_client),
        passed_to_broker: with(a.passed_to_broker, b.passed_to_broker),
        passed_to_client: with(a.passed_to_client, b.passed_to_client),
        rst_to_client: with(a.rst_to_client, b.rst_to_client),
        fin_to_client: with(a.fin_to_client, b.fin_to_client),
        icmp_to_client: with(a.icmp_to_client, b.icmp_to_client),
        rst_to_broker: with(a.rst_to_broker, b.rst_to_broker),
    }
}

/// Why the certificate voids the trial, if it does. The most telling reason first: a RST that passed is also a packet
/// that passed. A direction in which nothing was offered is unexercised, not void; and where only the way to the broker
/// is cut, the broker's own RST or FIN may reach the client.
///
/// A fault beyond the path drops nothing: what vouches for it is the look at the process, and, where it should be silent,
/// that neither RST nor FIN nor ICMP reached the client.
pub(super) fn objection(
    certificate: Option<(Counters, bool)>,
    proofs: &[(Offset, String, bool)],
    fault: &Fault,
) -> Option<VoidReason> {
    // What is done beside the router has to be seen.
    let looked_for = fault.act.map(Act::name).or_else(|| fault.injection.is_local().then(|| fault.injection.name()));
    if let Some(act) = looked_for {
        let failed = proofs.iter().find(|(.., holds)| !holds).map(|(_, what, _)| what.clone());
        let unproven = proofs.is_empty().then(|| format!("nobody looked whether {act} took effect"));
        if let Some(why) = failed.or(unproven) {
            return Some(VoidReason::ActNotInForce(why));
        }
    }
    let drop = fault.drop;
    if fault.is_control() && certificate.is_none() {
        return None;
    }
    let Some((c, intact)) = certificate else { return Some(VoidReason::CertificateMissing) };
    if let Some(middlebox) = fault.middlebox {
        return middlebox::objection(&c, intact, middlebox);
    }
    if !fault.injection.is_faithful() {
        return distorted::objection(&c, intact, fault.injection);
    }
    if fault.act == Some(Act::WithholdAnswer) && c.offered_to_broker > 0 {
        let why = format!("{} packets went to the broker before the answer", c.offered_to_broker);
        return Some(VoidReason::ActNotInForce(why));
    }
    let control = fault.is_control();
    let hears_nothing = drop.to_client || (fault.act.is_some() && fault.silent());
    // What is lost while the host forgets was looked at in the act's own proof.
    let moment = fault.act.is_some_and(Act::forgets);
    let dropped_outside =
        !moment && ((!drop.to_broker && c.dropped_to_broker > 0) || (!drop.to_client && c.dropped_to_client > 0));
    let lost_otherwise = (drop.to_broker && c.lost_to_broker() > 0) || (drop.to_client && c.lost_to_client() > 0);
    let checks = [
        (!control && !intact, VoidReason::RulesNotIntact),
        (!control && fault.silent() && c.icmp_to_client > 0, VoidReason::IcmpReachedClient),
        // One way cut, the broker's own RST may come; it was offered, and what was not came from something in between.
        (hears_nothing && c.rst_to_client > 0, VoidReason::RstReachedClient),
        (drop.to_broker && c.rst_to_client > c.offered_to_client, VoidReason::RstReachedClient),
        (hears_nothing && c.fin_to_client > 0, VoidReason::FinReachedClient),
        (drop.to_broker && c.passed_to_broker > 0, VoidReason::PassedToBroker),
        (drop.to_client && c.passed_to_client > 0, VoidReason::PassedToClient),
        (dropped_outside, VoidReason::DroppedOutsideFault),
        (lost_otherwise, VoidReason::LostOtherwise),
    ];
    checks.into_iter().find_map(|(objects, reason)| objects.then_some(reason))
}
