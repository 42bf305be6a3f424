//! The scenario file: its schema, and reading it with errors that name file, line, key and mend.
//!
//! Pure: text in, [`Scenario`] or a list of errors out. One table of keys (`table`) drives reading, errors, the JSON
//! schema and the documentation. What is left out: anything drawn or predicted, which is the plan's.

mod aftermath;
mod checks;
mod columns;
mod command;
mod delivery;
mod docs;
mod error;
mod fallback;
mod fault;
mod faults;
mod gates;
mod idle_keys;
mod injection;
mod keys;
mod link;
pub mod matrix;
mod middlebox;
mod model;
mod options;
pub mod profile;
mod read;
mod routing;
mod schema;
mod settings;
mod subject_kind;
mod sysctl;
mod table;
mod table_reaper;
mod target;
mod timing;
mod tree;
mod unmodelled;
mod value;
mod walk;
mod worker;

pub use aftermath::{
    BrakeSettings, LivenessRule, LivenessStore, PatienceFrom, ReaperGeneration, ReaperSettings, Retry, StorePath,
    TableClock, TaskHeartbeat, TaskStoreKind, User,
};
pub use command::{CommandLine, ReadyWhen};
pub use delivery::{Backoff, Delivery, Exchange, Format, Job, RECONNECT_PAUSE, job_of};
pub use docs::reference;
pub use error::{Place, ScenarioError, ScenarioErrors};
pub use fault::{Act, Directions, Fault, Repeat, Scope, Trigger};
pub use injection::Injection;
pub use link::Link;
pub use middlebox::Middlebox;
pub use model::{
    Ack, Arm, BrokerKind, BrokerSettings, Gate, HeartbeatThread, Keepalive, Measure, NoWorse, Published, Reference,
    Scenario, Settings, SubjectKind, SyncCall, Tasks,
};
pub use read::{ListEntry, from_sets, list_entry, read, read_bytes, refuse_distorted};
pub use routing::{DEFAULT_QUEUE, Match, glob, topic};
pub use schema::schema;
pub use sysctl::range as sysctl_range;
pub use table::{MAX_ARMS, MAX_TLS_TRIALS, MAX_TRIALS};
pub use target::{ComposeTarget, time_cut, too_long};
pub use timing::heartbeat_in_force;
pub use worker::{Begins, Effects, WorkerId};
