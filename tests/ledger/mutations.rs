//! Clean histories of many shapes, and what a single change to one of them must be called.

use super::{TRIAL, judge};
use halfopen::events::{Event, Kind, Source};
use halfopen::ledger::{AnomalyKind, Fate, MessageId, Terms};
use halfopen::units::Offset;
use proptest::prelude::*;

/// Milliseconds between two messages: more than the work takes.
const STEP_MS: i64 = 200;

#[derive(Debug, Clone)]
struct Shape {
    messages: u64,
    kept: bool,
    early: bool,
    recorded: bool,
    /// Of each message, how long things took, in milliseconds.
    delays: Vec<(i64, i64)>,
}

impl Shape {
    fn terms(&self) -> Terms {
        Terms { kept: self.kept, acknowledged: self.kept, recorded: self.recorded, ..Terms::default() }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut say = |ms: i64, kind: Kind| {
            events.push(Event::of_trial(Offset(ms * 1_000_000), Source::Subject, TRIAL, kind));
        };
        for (message, (delay, work)) in (0..self.messages).zip(&self.delays) {
            let at = i64::try_from(message).unwrap() * STEP_MS;
            let (begun, done) = (at + delay, at + delay + work);
            say(at, Kind::Published { message });
            say(at + 1, Kind::Confirmed { message });
            say(begun, Kind::Delivered { attempt: 0, message, redelivered: false });
            say(begun, Kind::Started { attempt: 0, message });
            say(done, Kind::Effect { message });
            if self.recorded {
                say(done, Kind::Finished { attempt: 0, message });
            }
            if self.kept {
                say(if self.early { begun } else { done + 1 }, Kind::Acked { attempt: 0, message });
            }
        }
        let end = i64::try_from(self.messages).unwrap() * STEP_MS + 5_000;
        say(end, Kind::TrialEnded { why: "horizon".to_string() });
        events
    }
}

/// A clean history and the number of one of its messages.
fn shapes() -> impl Strategy<Value = (Shape, u64)> {
    let parts = (2u64..30, any::<bool>(), any::<bool>(), any::<bool>());
    let shape = parts.prop_flat_map(|(messages, kept, early, recorded)| {
        let n = usize::try_from(messages).unwrap();
        prop::collection::vec((2i64..60, 1i64..120), n).prop_map(move |delays| Shape {
            messages,
            kept,
            early,
            recorded,
            delays,
        })
    });
    shape.prop_flat_map(|shape| {
        let messages = shape.messages;
        (Just(shape), 0..messages)
    })
}

fn is_of(kind: &Kind, wanted: u64) -> bool {
    matches!(kind, Kind::Published { message } | Kind::Confirmed { message } | Kind::Effect { message }
        | Kind::Delivered { message, .. } | Kind::Started { message, .. } | Kind::Finished { message, .. }
        | Kind::Acked { message, .. } if *message == wanted)
}

/// Anomalies as kind and message.
fn wrong(events: &[Event], shape: &Shape) -> Vec<(AnomalyKind, u64)> {
    judge(events, &shape.terms()).anomalies.iter().map(|a| (a.kind, a.id.message)).collect()
}

fn fate(events: &[Event], shape: &Shape, message: u64) -> Option<Fate> {
    judge(events, &shape.terms()).fates.get(&MessageId { trial: TRIAL, message }).copied()
}

proptest! {
    #[test]
    fn a_clean_history_is_clean_and_its_books_balance((shape, _) in shapes()) {
        let account = judge(&shape.events(), &shape.terms());
        prop_assert_eq!(&account.anomalies, &vec![]);
        prop_assert_eq!(account.count(Fate::Done), usize::try_from(shape.messages).unwrap());
    }

    #[test]
    fn one_dropped_acknowledgement_is_caught((shape, m) in shapes()) {
        prop_assume!(shape.kept);
        let mut events = shape.events();
        events.retain(|e| !(matches!(e.kind, Kind::Acked { .. }) && is_of(&e.kind, m)));
        prop_assert_eq!(wrong(&events, &shape), vec![(AnomalyKind::Zombie, m)]);
    }

    #[test]
    fn one_doubled_effect_is_caught((shape, m) in shapes(), later in 1i64..4_000) {
        let mut events = shape.events();
        let mut again = events.iter().find(|e| matches!(e.kind, Kind::Effect { .. }) && is_of(&e.kind, m)).cloned().unwrap();
        again.offset.0 += later * 1_000_000;
        events.push(again);
        prop_assert_eq!(wrong(&events, &shape), vec![(AnomalyKind::DuplicatedEffect, m)]);
    }

    #[test]
    fn one_doubled_delivery_is_caught((shape, m) in shapes(), later in 1i64..4_000) {
        let mut events = shape.events();
        let at = events.iter().find(|e| matches!(e.kind, Kind::Delivered { .. }) && is_of(&e.kind, m)).unwrap().offset;
        let kind = Kind::Delivered { attempt: 1, message: m, redelivered: true };
        events.push(Event::of_trial(Offset(at.0 + later * 1_000_000), Source::Subject, TRIAL, kind));
        prop_assert_eq!(wrong(&events, &shape), vec![(AnomalyKind::DuplicatedDelivery, m)]);
    }

    #[test]
    fn one_effect_that_never_came_is_a_loss((shape, m) in shapes()) {
        let mut events = shape.events();
        events.retain(|e| !(matches!(e.kind, Kind::Effect { .. } | Kind::Finished { .. }) && is_of(&e.kind, m)));
        prop_assert_eq!(wrong(&events, &shape), vec![(AnomalyKind::Lost, m)]);
        prop_assert_eq!(fate(&events, &shape, m), Some(Fate::Lost));
    }

    #[test]
    fn one_message_that_never_came_is_lost_where_nobody_keeps_it((shape, m) in shapes()) {
        let mut events = shape.events();
        let published = |e: &Event| matches!(e.kind, Kind::Published { .. } | Kind::Confirmed { .. });
        events.retain(|e| !is_of(&e.kind, m) || published(e));
        // The last one was overtaken by none.
        let lost = !shape.kept && m + 1 < shape.messages;
        let expected = if lost { vec![(AnomalyKind::Lost, m)] } else { vec![] };
        prop_assert_eq!(wrong(&events, &shape), expected);
        prop_assert_eq!(fate(&events, &shape, m), Some(if lost { Fate::Lost } else { Fate::Waiting }));
    }

    #[test]
    fn one_record_that_is_missing_is_caught((shape, m) in shapes()) {
        prop_assume!(shape.recorded);
        let mut events = shape.events();
        events.retain(|e| !(matches!(e.kind, Kind::Finished { .. }) && is_of(&e.kind, m)));
        prop_assert_eq!(wrong(&events, &shape), vec![(AnomalyKind::Zombie, m)]);
    }

    #[test]
    fn one_that_came_late_is_out_of_order((shape, m) in shapes()) {
        prop_assume!(m + 1 < shape.messages);
        let mut events = shape.events();
        // Everything but its publication after the next message's.
        for event in events.iter_mut().filter(|e| is_of(&e.kind, m)) {
            if !matches!(event.kind, Kind::Published { .. } | Kind::Confirmed { .. }) {
                event.offset.0 += (STEP_MS + 60) * 1_000_000;
            }
        }
        let mut expected = vec![(AnomalyKind::OutOfOrder, m)];
        // So late that the one after the next had come too: still this one alone is late.
        expected.dedup();
        prop_assert_eq!(wrong(&events, &shape), expected);
    }

    #[test]
    fn one_killed_at_work_is_falsely_killed((shape, m) in shapes()) {
        let mut events = shape.events();
        let at = |wanted: fn(&Kind) -> bool| {
            events.iter().find(|e| wanted(&e.kind) && is_of(&e.kind, m)).unwrap().offset
        };
        let (start, effect) = (at(|k| matches!(k, Kind::Started { .. })), at(|k| matches!(k, Kind::Effect { .. })));
        let kind = Kind::Reaped { message: m, rule: "processing_timeout".to_string(), retried: false };
        events.retain(|e| !(matches!(e.kind, Kind::Finished { .. }) && is_of(&e.kind, m)));
        events.push(Event::of_trial(Offset((start.0 + effect.0) / 2), Source::Reaper, TRIAL, kind));
        prop_assert_eq!(wrong(&events, &shape), vec![(AnomalyKind::FalselyKilled, m), (AnomalyKind::Zombie, m)]);
    }

    #[test]
    fn any_part_of_a_record_adds_up_and_no_part_panics((shape, _) in shapes(), keep in prop::collection::vec(any::<bool>(), 300)) {
        let events: Vec<Event> = shape.events().into_iter().zip(keep.iter().cycle()).filter(|(_, k)| **k).map(|(e, _)| e).collect();
        let published = events.iter().filter(|e| matches!(e.kind, Kind::Published { .. })).count();
        let account = judge(&events, &shape.terms());
        prop_assert_eq!(Fate::ALL.into_iter().map(|f| account.count(f)).sum::<usize>(), published);
    }
}
