//! The scenario file: its schema, and reading it with errors that name file, line, key and mend.
//!
//! Pure: text in, [`Scenario`] or a list of errors out. One table of keys (`table`) drives reading, errors, the JSON
//! schema and the documentation. What is left out: anything drawn or predicted, which is the plan's.

mod aftermath;
mod checks;
mod columns;
mod command;
mod docs;
mod error;
mod fallback;
mod fault;
mod faults;
mod gates;
mod keys;
mod link;
pub mod matrix;
mod middlebox;
mod model;
mod options;
pub mod profile;
mod read;
mod schema;
mod settings;
mod sysctl;
mod table;
mod table_reaper;
mod timing;
mod tree;
mod value;
mod walk;

pub use aftermath::{
    BrakeSettings, LivenessRule, LivenessStore, PatienceFrom, ReaperGeneration, ReaperSettings, Retry, StorePath,
    TableClock, TaskHeartbeat, TaskStoreKind, User,
};
pub use command::{CommandLine, ReadyWhen};
pub use docs::reference;
pub use error::{Place, ScenarioError, ScenarioErrors};
pub use fault::{Act, Directions, Fault, Repeat, Scope, Trigger};
pub use link::Link;
pub use middlebox::Middlebox;
pub use model::{
    Ack, Arm, BrokerKind, BrokerSettings, Gate, HeartbeatThread, Keepalive, Measure, NoWorse, Published, Reference,
    Scenario, Settings, SubjectKind, SyncCall, Tasks,
};
pub use read::{ListEntry, from_sets, list_entry, read, read_bytes};
pub use schema::schema;
pub use sysctl::range as sysctl_range;
pub use table::{MAX_ARMS, MAX_TRIALS};
pub use timing::heartbeat_in_force;
