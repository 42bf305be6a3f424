//! A recorded mini-run: three arms, one of them with an awkward name, under a black hole and without a fault.

use super::{Setup, plan};
use halfopen::events::{Cause, Counters, EffectiveOptions, Event, How, Kind, SocketSnapshot, Source, Tuple};
use halfopen::plan::{Plan, Window};
use halfopen::scenario::{Fault, Gate, Measure};
use halfopen::store::{Machine, MemoryUse, RunInfo, ScenarioSource, Tool};
use halfopen::units::{Offset, TrialId};
use std::net::SocketAddrV4;

const HORIZON_S: f64 = 60.0;

fn gate(arm: Option<&str>, metric: &str, measure: Measure, max: f64) -> Gate {
    Gate { arm: arm.map(Into::into), max: Some(max), ..Gate::new(metric, measure) }
}

/// Three arms (one with an awkward name) under a black hole and without a fault.
pub fn mini_plan() -> Plan {
    let keepalive = Setup::default();
    let never = Setup { keepalive: false, ..Setup::default() };
    let lapin = Setup { subject: "lapin".into(), heartbeat_s: Some(4.0), keepalive: false, ..Setup::default() };
    let control: Fault = Setup { fault: "none".into(), ..Setup::default() }.fault();
    let gates = vec![
        gate(Some("keepalive"), "ttd_s", Measure::Quantile(0.99), 8.5),
        gate(Some("never|ever\n<b>"), "ttd_s", Measure::Quantile(0.5), 30.0),
        gate(Some("lapin"), "ttd_s", Measure::Quantile(1.0), 30.0),
        gate(None, "false_alarm", Measure::Count(Some("true".into())), 0.0),
    ];
    let arms = vec![keepalive.arm("keepalive", 3), never.arm("never|ever\n<b>", 2), lapin.arm("lapin", 3)];
    let mut plan = plan(arms, vec![keepalive.fault(), control], HORIZON_S, gates);
    for trial in plan.trials.iter_mut().filter(|t| t.arm == 0 && t.fault == 0) {
        trial.predicted = Some(Window { lo_s: Some(8.0), hi_s: Some(8.35) });
    }
    plan
}

/// Writes the events of one trial, times in seconds after its start.
struct Script {
    events: Vec<Event>,
    trial: TrialId,
    tuple: Tuple,
    start: f64,
    keepalive: bool,
}

impl Script {
    fn at(&mut self, seconds: f64, source: Source, kind: Kind) {
        self.events.push(Event::of_trial(Offset::from_secs(self.start + seconds), source, self.trial, kind));
    }

    fn connect(&mut self, seconds: f64, attempt: u32) {
        let port = 40_001 + u16::try_from(attempt).unwrap();
        let tuple = Tuple { local: SocketAddrV4::new(*self.tuple.local.ip(), port), ..self.tuple };
        let effective = EffectiveOptions {
            so_rcvtimeo_ms: Some(0),
            keepalive: Some(self.keepalive),
            keepalive_idle_s: Some(5),
            keepalive_interval_s: Some(1),
            keepalive_probes: Some(3),
            tcp_user_timeout_ms: Some(0),
            ..EffectiveOptions::default()
        };
        self.at(seconds, Source::Subject, Kind::Connecting { attempt });
        self.at(seconds + 0.001, Source::Subject, Kind::Connected { attempt, tuple });
        self.at(seconds + 0.001, Source::Subject, Kind::Options { attempt, effective });
        self.at(seconds + 0.002, Source::Subject, Kind::Ready { attempt });
    }

    fn cut(&mut self, seconds: f64, bracket_s: f64) {
        let after = Offset::from_secs(self.start + seconds);
        let before = Offset::from_secs(self.start + seconds - bracket_s);
        let kind = Kind::FaultApplied { tuple: self.tuple, before, after, age_at_fault_s: Some(0.25) };
        self.at(seconds, Source::Harness, kind);
    }

    fn notice(&mut self, seconds: f64, how: How, errno: Option<i32>) {
        self.at(
            seconds,
            Source::Subject,
            Kind::Notice { attempt: 0, cause: Cause { how, errno, text: String::new() } },
        );
    }

    fn look(&mut self, seconds: f64, timer: u8) {
        let socket = SocketSnapshot { state: 1, timer, ..SocketSnapshot::default() };
        self.at(seconds, Source::Kernel, Kind::Snapshot { tuple: self.tuple, socket });
    }

    fn end(&mut self, seconds: f64, why: &str) {
        let counters = Counters { offered_to_broker: 3, dropped_to_broker: 3, ..Counters::default() };
        self.at(seconds, Source::Harness, Kind::Certificate { counters, intact: true });
        self.at(seconds, Source::Harness, Kind::TrialEnded { why: why.into() });
    }
}

pub fn mini_events(plan: &Plan) -> Vec<Event> {
    let mut events = vec![Event::of_run(
        Offset::from_secs(0.1),
        Source::Harness,
        Kind::Note { text: "tracepoints are not allowed here; the kernel's side comes from sock_diag".into() },
    )];
    for trial in &plan.trials {
        let tuple =
            Tuple { local: SocketAddrV4::new(trial.client, 40_001), peer: SocketAddrV4::new(trial.server, 7000) };
        let mut s = Script {
            events: Vec::new(),
            trial: trial.id,
            tuple,
            start: 1.0 + f64::from(trial.id) * 0.01,
            keepalive: trial.arm == 0,
        };
        s.connect(0.0, 0);
        let spread = f64::from(trial.id) * 0.07;
        match (trial.arm, trial.fault) {
            (_, 1) => {
                s.at(70.0, Source::Harness, Kind::TrialEnded { why: "horizon".into() });
            }
            (0, _) => {
                s.cut(4.0, 0.0002 + 0.0001 * f64::from(trial.id));
                s.look(11.9, 2);
                s.notice(12.05 + spread, How::Errno, Some(110));
                s.connect(12.06 + spread, 1);
                s.end(13.0, "complete");
            }
            (1, _) => {
                s.cut(4.0, 0.0004);
                s.end(64.1, "horizon");
            }
            // One of lapin's trials has no certificate.
            _ => {
                s.cut(4.0, 0.0004);
                message(&mut s, 3.0, 1, Some((3.01, 0)));
                message(&mut s, 6.0, 2, Some((13.0 + spread, 1)));
                s.notice(11.0 + spread, How::AmqpHeartbeat, None);
                s.connect(11.1 + spread, 1);
                if trial.id % 2 == 0 {
                    s.end(14.0, "complete");
                } else {
                    s.at(14.0, Source::Harness, Kind::TrialEnded { why: "complete".into() });
                }
            }
        }
        events.extend(s.events);
    }
    events
}

fn message(s: &mut Script, published: f64, message: u64, reached: Option<(f64, u32)>) {
    s.at(published, Source::Producer, Kind::Published { message });
    s.at(published + 0.002, Source::Producer, Kind::Confirmed { message });
    if let Some((at, attempt)) = reached {
        s.at(at, Source::Subject, Kind::Delivered { attempt, message, redelivered: false });
        s.at(at + 0.01, Source::Subject, Kind::Acked { attempt, message });
    }
}

pub fn run_info(plan: Plan) -> RunInfo {
    let scenario = ScenarioSource::new("scenarios/recorded.toml", "# Who notices?\n");
    let mut run = RunInfo::new(plan, scenario, "netns", 1_796_041_740);
    run.tool = Tool { name: "halfopen".into(), version: "0.0.0-test".into() };
    run.machine = Machine {
        kernel: "6.18.0".into(),
        arch: "x86_64".into(),
        hz: Some(250),
        cpus: Some(2),
        memory_bytes: Some(24_000_000_000),
        ..Machine::default()
    };
    run.brokers.insert("rabbitmq".into(), "3.10.8".into());
    run.clients.insert("lapin".into(), "4.12.3".into());
    run.sources = vec!["sock_diag".into(), "rabbitmq-log".into()];
    run.memory = vec![MemoryUse { role: "subject lapin".into(), processes: 1, peak_rss_bytes: 70_000_000 }];
    run.complete = true;
    run
}

pub fn mini_run() -> (RunInfo, Vec<Event>) {
    let plan = mini_plan();
    let events = mini_events(&plan);
    (run_info(plan), events)
}
