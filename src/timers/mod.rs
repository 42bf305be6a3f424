//! What each watcher does: kernel, AMQP, Redis, reapers → a predicted window and a reason.
//!
//! [`predict`] answers for all phases at once; [`step`] answers for one drawn set of phases, by the same rules. Neither
//! has a clock or randomness. The formulas, their sources and their exceptions are in `docs/timers.md`.
//!
//! Left out: everything that happens after the detection (reconnecting, redelivery), and reading settings from files.

pub mod application;
mod compose;
mod conditions;
mod draw;
mod environment;
pub mod kernel;
mod perturb;
mod prediction;
mod settings;
mod span;
mod watcher;

pub use compose::{OFF, predict, step};
pub use conditions::{Case, Conditions, Fault, FaultKind, FaultScope, Row, State, Traffic};
pub use draw::Phases;
pub use environment::{Environment, KernelVersion, parse_hz, sysctl_since};
pub use kernel::keepalive::Keepalive;
pub use perturb::Perturbation;
pub use prediction::{Detection, FalseAlarm, Instant, Prediction, Trace, WatcherPrediction, WatcherState};
pub use settings::{BrokerKind, HeartbeatThread, Peer, ReadTimeoutKind, Reaper, Settings, Subject};
pub use span::{Span, Window};
pub use watcher::{Side, UnknownWatcher, Watcher};
