//! The fault, and what the connection was doing when it came.

use std::time::Duration;

/// What the path or the peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Packets are dropped both ways.
    Both,
    /// Only packets from the client to the broker are dropped.
    ToBroker,
    /// Only packets from the broker to the client are dropped.
    ToClient,
    /// The broker's process is stopped: its kernel still acknowledges, nobody reads.
    FrozenPeer,
    /// A proxy between the two is stopped: both kernels are acknowledged, both applications hear nothing.
    FrozenProxy,
    /// No fault: what fires is a false alarm.
    None,
}

impl FaultKind {
    /// Whether packets are lost at all.
    #[must_use]
    pub fn drops(self) -> bool {
        matches!(self, Self::Both | Self::ToBroker | Self::ToClient)
    }

    /// Whether segments from the broker reach the client.
    #[must_use]
    pub fn client_hears(self) -> bool {
        !matches!(self, Self::Both | Self::ToClient)
    }

    /// Whether somebody stands still above TCP.
    #[must_use]
    pub fn freezes(self) -> bool {
        matches!(self, Self::FrozenPeer | Self::FrozenProxy)
    }
}

/// How much is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultScope {
    /// This connection only: the worker's other connections live, and it can reconnect.
    Flow,
    /// All that goes between the client's host and the broker's: it can't reconnect, and what it has to do with others goes on.
    Pair,
    /// The whole host.
    Host,
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What the path or the peer does.
    pub kind: FaultKind,
    /// How much is cut.
    pub scope: FaultScope,
    /// When it heals; none: never.
    pub duration: Option<Duration>,
}

impl Fault {
    /// A lasting fault of one connection.
    #[must_use]
    pub fn of(kind: FaultKind) -> Self {
        Self { kind, scope: FaultScope::Flow, duration: None }
    }
}

/// What the client's socket was doing at the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing unacknowledged.
    Idle,
    /// A segment left at the fault and is lost: windows count from that send.
    InFlight,
    /// The peer's window was closed, and the client has bytes for it.
    ZeroWindow,
}

/// Periodic traffic of the applications, beside heartbeats (which follow from the settings).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// The client sends on its own account this often.
    pub client_messages: Option<Duration>,
    /// The broker sends this often.
    pub broker_messages: Option<Duration>,
    /// The client answers each of the broker's messages (an acknowledgement of the application).
    pub client_acks: bool,
    /// How long the client works on a message before it answers.
    pub ack_after: Duration,
}

/// What the scheduler's store says about the work at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Row {
    /// Airflow: queued.
    Queued,
    /// Airflow: running.
    Running,
    /// Task table: PENDING.
    Pending,
    /// Task table: PROCESSING.
    Processing,
}

/// The state of the connection at the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// What the client's socket was doing.
    pub state: State,
    /// Time since the last segment arrived at the client; none: any that the traffic allows.
    pub age_at_fault: Option<Duration>,
    /// Zero window: how long it had been closed; none: any.
    pub window_closed_for: Option<Duration>,
    /// Zero window: how much longer than that it may have been closed.
    pub window_closed_spread: Duration,
    /// Keepalive has probed before the fault. If not, the last segment heard is data, and with an interval longer than the
    /// idle time the first probe is due after the idle time.
    pub keepalive_probed: bool,
    /// Who sends what.
    pub traffic: Traffic,
    /// The client waits in a synchronous call for the broker's reply.
    pub synchronous_call: bool,
    /// The application does not look at its socket or its timers (a long computation on the same thread).
    pub application_busy: bool,
    /// A delivery is unacknowledged at the broker.
    pub unacked_delivery: bool,
    /// What the scheduler's store says; none: no store is asked.
    pub row: Option<Row>,
    /// A middlebox forgets a flow that was silent for this long.
    pub nat_idle: Option<Duration>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            state: State::Idle,
            age_at_fault: None,
            window_closed_for: None,
            window_closed_spread: Duration::ZERO,
            keepalive_probed: true,
            traffic: Traffic::default(),
            synchronous_call: false,
            application_busy: false,
            unacked_delivery: false,
            row: None,
            nat_idle: None,
        }
    }
}

/// Everything that a prediction depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The arm's options.
    pub settings: super::Settings,
    /// The client's kernel and path.
    pub client: super::Environment,
    /// The broker's kernel.
    pub broker: super::Environment,
    /// What happens.
    pub fault: Fault,
    /// What the connection was doing.
    pub conditions: Conditions,
}

impl Case {
    /// A case on one kind of machine at both ends.
    #[must_use]
    pub fn new(settings: super::Settings, env: super::Environment, fault: Fault, conditions: Conditions) -> Self {
        Self { settings, broker: env.clone(), client: env, fault, conditions }
    }
}
