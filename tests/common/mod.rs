//! A plan for the tests that start from recorded events.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod mini;

use halfopen::events::Event;
use halfopen::plan::{Plan, Trial, Window};
use halfopen::scenario::{
    Ack, Act, Arm, BrokerSettings, Directions, Fault, Gate, Keepalive, Repeat, Scenario, Scope, Settings, SubjectKind,
};
use halfopen::units::{Setting, TrialId};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// What a recorded timeline was planned as. Everything has a default: a keepalive reader in a black hole.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    pub subject: String,
    pub fault: String,
    pub scope: String,
    pub horizon_s: f64,
    pub healed_after_s: Option<f64>,
    /// How often the fault comes, where it comes again.
    pub times: Option<u32>,
    pub keepalive: bool,
    pub user_timeout_s: Option<f64>,
    pub read_timeout_s: Option<f64>,
    pub heartbeat_s: Option<f64>,
    pub predicted: Option<(Option<f64>, Option<f64>)>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            subject: "tcp-reader".into(),
            fault: "blackhole".into(),
            scope: "flow".into(),
            horizon_s: 60.0,
            healed_after_s: None,
            times: None,
            keepalive: true,
            user_timeout_s: None,
            read_timeout_s: None,
            heartbeat_s: None,
            predicted: None,
        }
    }
}

fn setting(seconds: Option<f64>) -> Setting {
    seconds.map_or(Setting::None, |s| Setting::After(Duration::from_secs_f64(s)))
}

impl Setup {
    pub fn arm(&self, name: &str, trials: u32) -> Arm {
        let subject = *SubjectKind::ALL.iter().find(|k| k.name() == self.subject).expect("a known subject");
        let lapin = matches!(subject, SubjectKind::Lapin | SubjectKind::AmqpBlocking);
        let keepalive = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(1), probes: 3 };
        let settings = Settings {
            subject,
            connect_timeout: setting(Some(10.0)),
            read_timeout: setting(self.read_timeout_s),
            keepalive: self.keepalive.then_some(keepalive),
            tcp_user_timeout: setting(self.user_timeout_s),
            heartbeat: lapin.then(|| setting(self.heartbeat_s)),
            prefetch: lapin.then_some(4),
            ack: lapin.then_some(Ack::Late),
            work: None,
            frame_max: lapin.then_some(4096),
            peer_reads: true,
            tls: false,
            ping: None,
            link: None,
            heartbeat_thread: None,
            sync_call: None,
            worker_id: None,
            begins: None,
            effects: None,
            sysctl: BTreeMap::new(),
            client: serde_json::Map::new(),
            command: None,
            delivery: halfopen::scenario::Delivery::default(),
        };
        Arm {
            name: name.into(),
            settings,
            trials,
            load: true,
            liveness: None,
            clock_ahead_ms: 0,
            clock_steps_after: Duration::ZERO,
        }
    }

    pub fn fault(&self) -> Fault {
        let (to_broker, to_client) = match self.fault.as_str() {
            "blackhole" => (true, true),
            "to-broker" => (true, false),
            "to-client" => (false, true),
            "none" | "frozen-broker" => (false, false),
            other => panic!("no such fault: {other}"),
        };
        Fault {
            name: self.fault.clone(),
            profile: self.fault.clone(),
            middlebox: None,
            idle: None,
            injection: halfopen::scenario::Injection::Router,
            act: (self.fault == "frozen-broker").then_some(Act::FreezeBroker),
            repeat: self.times.map(|times| Repeat { times, pause: Duration::from_secs(3) }),
            trigger: None,
            connection: None,
            drop: Directions { to_broker, to_client },
            scope: if self.scope == "host" { Scope::Host } else { Scope::Flow },
            duration: setting(self.healed_after_s),
            phase_window: None,
            at: None,
        }
    }

    /// One trial, number 0.
    pub fn plan(&self) -> Plan {
        let mut plan = plan(vec![self.arm("arm", 1)], vec![self.fault()], self.horizon_s, vec![]);
        plan.trials[0].predicted = self.predicted.map(|(lo_s, hi_s)| Window { lo_s, hi_s });
        plan
    }
}

/// Arms × faults × trials, as the planner would number them.
pub fn plan(arms: Vec<Arm>, faults: Vec<Fault>, horizon_s: f64, gates: Vec<Gate>) -> Plan {
    let mut trials = Vec::new();
    for (a, arm) in arms.iter().enumerate() {
        for (f, _) in faults.iter().enumerate() {
            for j in 0..arm.trials {
                trials.push(trial(trials.len() as TrialId, a, f, j));
            }
        }
    }
    let scenario = Scenario {
        name: "recorded".into(),
        question: "Who notices?".into(),
        horizon: Duration::from_secs_f64(horizon_s),
        seed: 7,
        at_once: None,
        ci: true,
        settle: Duration::from_secs(2),
        broker: BrokerSettings::default(),
        arms,
        faults,
        load_interval: None,
        load_count: None,
        jobs: Vec::new(),
        eta: None,
        second_consumer: false,
        durable: false,
        gates,
        reaper: None,
        user: None,
        tasks: None,
        published: None,
        warnings: Vec::new(),
    };
    Plan {
        scenario,
        trials,
        estimate: Duration::from_secs(90),
        doubts: Vec::new(),
        outlooks: Vec::new(),
        unanswered: Vec::new(),
        left_out: Vec::new(),
    }
}

fn trial(id: TrialId, arm: usize, fault: usize, j: u32) -> Trial {
    let last = u8::try_from(1 + j).expect("few trials");
    let a = u8::try_from(arm).expect("few arms");
    let f = u8::try_from(fault).expect("few faults");
    Trial {
        id,
        arm,
        fault,
        phase: Duration::from_millis(1000 + 250 * u64::from(j)),
        client: Ipv4Addr::new(10, 64 + a, 128 + f, last),
        server: Ipv4Addr::new(10, 128 + a, 128 + f, last),
        predicted: None,
        predicted_watchers: Vec::new(),
    }
}

/// Events of a `.jsonl` text.
pub fn events(text: &str) -> Vec<Event> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}
