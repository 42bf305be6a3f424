//! Cutting connections in the middle of the path, and proving it.
//!
//! A cut is one atomic batch of set elements in a table of the router's namespace: elements that drop, and elements
//! that count what was offered, dropped and passed, per trial and direction. `render` is pure (what becomes which
//! rules), `apply` does it. What is left out: when to cut and whom, which is the engine's, and any judgement of the
//! counts, which is the verdict's.

mod apply;
mod error;
mod iptables;
mod iptables_rules;
mod layout;
mod local;
mod render;
mod rules;
mod table;

pub use apply::{Applied, FaultTable, TrialReading};
pub use error::FaultError;
pub use iptables::IptablesTable;
pub use iptables_rules::{MOST_TRIALS as MOST_TRIALS_OF_IPTABLES, render_iptables};
pub use layout::{Layout, NAT_OUTSIDE};
pub use local::LocalCut;
pub use render::{Counted, Cut, Placed, cut_ops, heal_ops, placed, render_bridge, render_text};
pub use rules::TABLE;
pub use table::Table;
