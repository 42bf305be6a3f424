//! A scenario whose gates hold under any fault at all would show nothing. What a run recorded is judged again as if another
//! fault had been asked for, or as if a RST had come where the path should be silent: each time a gate must fail.

use halfopen::events::{Event, Kind};
use halfopen::plan::Plan;
use halfopen::scenario::{Act, Directions, Fault, Middlebox, profile};
use halfopen::store;
use halfopen::verdict::gate::judge_gates;
use halfopen::verdict::judge;
use std::path::Path;

/// Under a name for people, another fault in the place of this one.
fn others(fault: &Fault) -> Vec<(String, Fault)> {
    let way = |to_broker, to_client| Directions { to_broker, to_client };
    let drops = [("blackhole", way(true, true)), ("to-broker", way(true, false)), ("to-client", way(false, true))];
    let dropping = drops.into_iter().map(|(name, drop)| {
        (name.to_string(), Fault { drop, act: None, middlebox: None, idle: None, ..fault.clone() })
    });
    let nothing = Directions::default();
    let boxes = ["nat-expired", "nat-reset", "nat-loose", "firewall-forgets"].into_iter().map(|name| {
        let middlebox: Option<Middlebox> = profile::builtin(name).and_then(|profile| profile.middlebox);
        let changed = Fault { drop: nothing, act: Some(Act::ForgetEntry), middlebox, ..fault.clone() };
        (name.to_string(), changed)
    });
    // What vouches for an act is a look at that act: another act in its place would go by a look at something else.
    let boxes = boxes.filter(|_| fault.act.is_none_or(|act| act == Act::ForgetEntry));
    let same = |other: &Fault| {
        // A firewall without translation that forgets a connection is a black hole for it: there is no difference to notice.
        let dark = |f: &Fault| f.drop == way(true, true) || f.middlebox.is_some_and(|b| !b.nat && b.silent());
        (other.drop, other.act, other.middlebox) == (fault.drop, fault.act, fault.middlebox)
            || (dark(other) && dark(fault))
    };
    dropping.chain(boxes).filter(|(_, other)| !same(other)).collect()
}

/// Whether every gate holds that looks at what these events show.
fn holds(plan: &Plan, events: &[Event]) -> bool {
    judge_gates(&plan.scenario.gates, &judge(plan, events).trials, None)
        .iter()
        .all(|gate| gate.verdict.name() == "held")
}

/// What was changed without any gate failing, a line each.
pub fn unnoticed(run: &Path) -> String {
    let recorded = store::read(run).expect("the recorded run");
    let (plan, events) = (&recorded.run.plan, &recorded.events);
    let name = &plan.scenario.name;
    assert!(holds(plan, events), "{name}: the run itself holds its gates");
    let mut lines = String::new();
    for (index, fault) in plan.scenario.faults.iter().enumerate().filter(|(_, fault)| !fault.is_control()) {
        for (other, changed) in others(fault) {
            let mut plan = plan.clone();
            plan.scenario.faults[index] = changed;
            if holds(&plan, events) {
                lines += &format!("{name}: {} judged as {other} holds every gate\n", fault.name());
            }
        }
        // Killed or reset in earnest, the client is told: that is the point there.
        let told = !fault.silent() && fault.middlebox.is_none();
        if !told && fault.middlebox.is_none_or(|middlebox| !middlebox.resets && !middlebox.loose) {
            let answered: Vec<Event> = events.iter().cloned().map(with_a_reset).collect();
            if holds(plan, &answered) {
                lines += &format!("{name}: a RST where {} is silent leaves every gate held\n", fault.name());
            }
        }
        if !fault.scope.lets_reconnect() {
            // A reconnect that comes through where the addresses are cut.
            let passed: Vec<Event> = events.iter().cloned().map(with_a_packet_through).collect();
            if holds(plan, &passed) {
                lines += &format!("{name}: a packet between the hosts leaves every gate of {} held\n", fault.name());
            }
        }
    }
    lines
}

fn with_a_reset(mut event: Event) -> Event {
    if let Kind::Certificate { counters, .. } = &mut event.kind {
        counters.rst_to_client += 1;
        counters.offered_to_client += 1;
        counters.passed_to_client += 1;
    }
    event
}

fn with_a_packet_through(mut event: Event) -> Event {
    if let Kind::Certificate { counters, .. } = &mut event.kind {
        counters.offered_to_broker += 1;
        counters.passed_to_broker += 1;
    }
    event
}
