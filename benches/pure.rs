//! What the pure rooms cost: one prediction of the timers, the verdict over a simulated run, the ledger of 10,000 messages.
//!
//! `cargo bench`; numbers of one machine stand in docs/ledger.md. What is left out: everything with a socket, whose time is
//! the timers' own and not ours.
#![allow(missing_docs, reason = "the macros' own functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use halfopen::engine::model;
use halfopen::events::{Event, Kind, Source};
use halfopen::ledger::{Record, Terms, check};
use halfopen::plan::{self, Overrides};
use halfopen::scenario;
use halfopen::timers::{
    BrokerKind, Case, Conditions, Environment, Fault, FaultKind, Keepalive, Phases, Settings, Subject, predict, step,
};
use halfopen::units::Offset;
use halfopen::verdict;
use std::hint::black_box;

fn timers(c: &mut Criterion) {
    let mut settings = Settings::stock(Subject::ALL[0], BrokerKind::ALL[0]);
    settings.keepalive = Some(Keepalive::from_secs(60, 10, 9));
    let case = Case::new(settings, Environment::default(), Fault::of(FaultKind::Both), Conditions::default());
    c.bench_function("timers/predict", |b| b.iter(|| predict(black_box(&case))));
    let phases = Phases::from_uniform(|| 0.5);
    c.bench_function("timers/step", |b| b.iter(|| step(black_box(&case), black_box(&phases))));
}

const SCENARIO: &str = r#"# Who notices?
[scenario]
name = "bench"
horizon = "30s"
trials = 500

[load]
rate = "1/s"

[fault]
profile = "blackhole"

[[arm]]
name = "heartbeat"
subject = "lapin"
heartbeat = "4s"
"#;

fn judge(c: &mut Criterion) {
    let scenario = scenario::read("bench.toml", SCENARIO).expect("a scenario");
    let plan = plan::build(scenario, &Overrides::default()).expect("a plan");
    let events = model::simulate(&plan, &model::reference_machine()).expect("a run");
    let mut group = c.benchmark_group("verdict");
    group.sample_size(20).throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("judge 500 trials", |b| b.iter(|| verdict::judge(black_box(&plan), black_box(&events))));
    group.finish();
}

const MESSAGES: u64 = 10_000;

/// Every message is published, confirmed, delivered, begun, done and acknowledged; every tenth comes twice.
fn history() -> Vec<Event> {
    let mut all = Vec::new();
    for message in 0..MESSAGES {
        let mut at = i64::try_from(message).unwrap_or(0) * 1_000_000;
        let mut say = |kind| {
            at += 10_000;
            all.push(Event::of_trial(Offset(at), Source::Subject, 0, kind));
        };
        say(Kind::Published { message });
        say(Kind::Confirmed { message });
        for redelivered in [false, true].into_iter().take(1 + usize::from(message % 10 == 0)) {
            say(Kind::Delivered { attempt: 0, message, redelivered });
            say(Kind::Started { attempt: 0, message });
            say(Kind::Effect { message });
            say(Kind::Acked { attempt: 0, message });
        }
    }
    all
}

fn ledger(c: &mut Criterion) {
    let events = history();
    let mut group = c.benchmark_group("ledger");
    group.sample_size(20).throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("check 10,000 messages", |b| {
        b.iter(|| check(0, &Record::new(black_box(&events)), black_box(&Terms::default())));
    });
    group.finish();
}

criterion_group!(pure, timers, judge, ledger);
criterion_main!(pure);
