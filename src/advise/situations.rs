//! The standard set of faults, and how a question narrows it.

use super::arm::Arm;
use crate::timers::{BrokerKind, Conditions, Fault, FaultKind, FaultScope, Row, State, Subject};
use crate::units::print_duration;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A fault by the name that scenario files use for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultName {
    /// Packets are dropped both ways.
    Blackhole,
    /// Only packets to the broker are dropped.
    ToBroker,
    /// Only packets to the client are dropped.
    ToClient,
    /// The broker's process is stopped, its kernel acknowledges.
    FrozenPeer,
    /// A proxy between the two is stopped.
    FrozenProxy,
    /// No fault.
    None,
}

impl FaultName {
    /// Every fault.
    pub const ALL: [Self; 6] =
        [Self::Blackhole, Self::ToBroker, Self::ToClient, Self::FrozenPeer, Self::FrozenProxy, Self::None];

    /// Its name in files and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blackhole => "blackhole",
            Self::ToBroker => "to-broker",
            Self::ToClient => "to-client",
            Self::FrozenPeer => "frozen-peer",
            Self::FrozenProxy => "frozen-proxy",
            Self::None => "none",
        }
    }

    /// What the model calls it.
    #[must_use]
    pub fn kind(self) -> FaultKind {
        match self {
            Self::Blackhole => FaultKind::Both,
            Self::ToBroker => FaultKind::ToBroker,
            Self::ToClient => FaultKind::ToClient,
            Self::FrozenPeer => FaultKind::FrozenPeer,
            Self::FrozenProxy => FaultKind::FrozenProxy,
            Self::None => FaultKind::None,
        }
    }

    fn spoken(self) -> &'static str {
        match self {
            Self::Blackhole => "cut both ways",
            Self::ToBroker => "cut to broker",
            Self::ToClient => "cut to client",
            Self::FrozenPeer => "frozen peer",
            Self::FrozenProxy => "frozen proxy",
            Self::None => "no fault",
        }
    }
}

impl fmt::Display for FaultName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FaultName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|f| f.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|f| f.name()).collect();
            format!("`{text}` is not a fault; faults are {}", names.join(", "))
        })
    }
}

/// What a verdict calls a situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Idle,
    Busy,
    Call,
    Frozen,
    FrozenCall,
    /// Part of the standard set, and not of the verdict's line.
    Matrix,
    /// Asked for by itself.
    Asked,
}

/// One fault under one set of conditions.
#[derive(Debug, Clone)]
pub(super) struct Situation {
    pub(super) title: String,
    pub(super) name: FaultName,
    pub(super) role: Role,
    pub(super) fault: Fault,
    pub(super) conditions: Conditions,
    /// How long a scenario watches.
    pub(super) horizon: Option<Duration>,
}

/// Name, role, scope, state, synchronous call.
type Spec = (FaultName, Role, FaultScope, State, bool);

const STANDARD: [Spec; 8] = [
    (FaultName::Blackhole, Role::Idle, FaultScope::Flow, State::Idle, false),
    (FaultName::Blackhole, Role::Busy, FaultScope::Flow, State::InFlight, false),
    (FaultName::Blackhole, Role::Call, FaultScope::Flow, State::InFlight, true),
    (FaultName::Blackhole, Role::Matrix, FaultScope::Host, State::Idle, false),
    (FaultName::ToBroker, Role::Matrix, FaultScope::Flow, State::Idle, false),
    (FaultName::ToClient, Role::Matrix, FaultScope::Flow, State::Idle, false),
    (FaultName::FrozenPeer, Role::Frozen, FaultScope::Flow, State::Idle, false),
    (FaultName::FrozenPeer, Role::FrozenCall, FaultScope::Flow, State::Idle, true),
];

/// The situations of an arm: the standard set, or what the question leaves of it.
pub(super) fn of(arm: &Arm) -> Vec<Situation> {
    let ask = &arm.ask;
    if ask.state.is_some() || ask.call.is_some() {
        let all = [FaultName::Blackhole, FaultName::ToBroker, FaultName::ToClient, FaultName::FrozenPeer];
        let names = ask.fault.map_or(all.to_vec(), |f| vec![f]);
        let (state, call) = (ask.state.unwrap_or(State::Idle), ask.call.unwrap_or(false));
        let scope = ask.scope.unwrap_or(FaultScope::Flow);
        return names.into_iter().map(|name| build(arm, (name, Role::Asked, scope, state, call))).collect();
    }
    let like = |asked: FaultName| match asked {
        FaultName::FrozenProxy => FaultName::FrozenPeer,
        other => other,
    };
    let tcp = matches!(arm.settings.subject, Subject::TcpReader | Subject::TcpWriter);
    let mut found: Vec<Situation> = STANDARD
        .into_iter()
        .filter(|(name, ..)| ask.fault.is_none_or(|asked| like(asked) == *name))
        .filter(|(_, role, ..)| match role {
            Role::Call => arm.call_blocks_the_checks(),
            // Celery on Redis is in a call as soon as its next event waits for a reply.
            Role::FrozenCall => !tcp && !arm.celery_on_redis(),
            _ => true,
        })
        .filter(|(_, _, scope, ..)| ask.scope.is_none() || *scope == FaultScope::Flow)
        .map(|(name, role, scope, state, call)| {
            // Its event connection is cut or frozen too, and the next event waits for a reply.
            let all_connections = ask.scope.unwrap_or(scope) != FaultScope::Flow || role == Role::Frozen;
            let (state, call) = match arm.celery_on_redis() && all_connections {
                true if role == Role::Frozen => (state, true),
                true => (State::InFlight, true),
                false => (state, call),
            };
            build(arm, (ask.fault.unwrap_or(name), role, ask.scope.unwrap_or(scope), state, call))
        })
        .collect();
    // Where every connection is cut, what differs between two of them may be gone.
    found.dedup_by(|later, earlier| later.title == earlier.title);
    if ask.fault == Some(FaultName::None) {
        let scope = ask.scope.unwrap_or(FaultScope::Flow);
        found.push(build(arm, (FaultName::None, Role::Asked, scope, State::Idle, false)));
    }
    found
}

fn build(arm: &Arm, (name, role, scope, state, call): Spec) -> Situation {
    let mut conditions = arm.conditions;
    conditions.state = state;
    conditions.synchronous_call = call;
    conditions.row = arm.ask.row.unwrap_or_else(|| usual_row(arm, scope));
    // What a consumer holds is the work that is stuck; a bare connection holds none.
    conditions.unacked_delivery = arm.ask.unacked.unwrap_or(arm.settings.broker != BrokerKind::None);
    let duration = arm.ask.duration.unwrap_or(None);
    let mut title = title(arm, name, scope, state, call, duration);
    if arm.settings.reaper.airflow.is_some() && conditions.row == Some(Row::Running) {
        title.push_str(", task running");
    }
    Situation { title, name, role, fault: Fault { kind: name.kind(), scope, duration }, conditions, horizon: None }
}

/// The row that the stall is about: queued, or, where the whole host is gone, running.
pub(super) fn usual_row(arm: &Arm, scope: FaultScope) -> Option<Row> {
    let reaper = &arm.settings.reaper;
    match scope {
        _ if reaper.airflow.is_some() && scope == FaultScope::Host => Some(Row::Running),
        _ if reaper.airflow.is_some() => Some(Row::Queued),
        _ if reaper.liveness.is_some() || reaper.ages.is_some() => Some(Row::Processing),
        _ => None,
    }
}

fn title(
    arm: &Arm,
    name: FaultName,
    scope: FaultScope,
    state: State,
    call: bool,
    duration: Option<Duration>,
) -> String {
    let mut title = name.spoken().to_string();
    title = match (scope, name) {
        (FaultScope::Flow, _) => title,
        (FaultScope::Pair, FaultName::Blackhole) => "all to the broker cut".to_string(),
        (FaultScope::Pair, other) => format!("{}, all connections", other.spoken()),
        (FaultScope::Host, FaultName::Blackhole) => "whole host cut".to_string(),
        (FaultScope::Host, other) => format!("{}, whole host", other.spoken()),
    };
    let state = match state {
        State::Idle if call => "",
        State::Idle => ", idle",
        State::InFlight if call => "",
        State::InFlight if arm.settings.negotiated_heartbeat().is_some() => ", heartbeat in flight",
        State::InFlight => ", data in flight",
        State::ZeroWindow => ", window closed",
    };
    title.push_str(state);
    if call {
        title.push_str(", in a synchronous call");
    }
    if let Some(time) = duration {
        title.push_str(&format!(", heals after {}", print_duration(time)));
    }
    title
}
