//! The scenario file: its schema, and reading it with errors that name file, line, key and mend.
//!
//! Pure: text in, [`Scenario`] or a list of errors out. One table of keys (`table`) drives reading, errors, the JSON
//! schema and the documentation. What is left out: anything drawn or predicted, which is the plan's.

mod checks;
mod columns;
mod docs;
mod error;
mod fallback;
mod gates;
mod keys;
pub mod matrix;
mod model;
pub mod profile;
mod read;
mod schema;
mod settings;
mod sysctl;
mod table;
mod timing;
mod tree;
mod value;
mod walk;

pub use docs::reference;
pub use error::{Place, ScenarioError, ScenarioErrors};
pub use model::{
    Ack, Arm, BrokerKind, BrokerSettings, Directions, Fault, Gate, HeartbeatThread, Keepalive, Measure, Published,
    ReaperGeneration, ReaperSettings, Scenario, Scope, Settings, SubjectKind, SyncCall, Tasks,
};
pub use read::{ListEntry, from_sets, list_entry, read, read_bytes};
pub use schema::schema;
pub use sysctl::range as sysctl_range;
pub use table::{MAX_ARMS, MAX_TRIALS};
pub use timing::heartbeat_in_force;
