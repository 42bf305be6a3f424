//! What this machine can do for a run, which way each lab goes, and the command that mends each lack.
//!
//! `facts` tries things out, by the very supervisor that a run uses; `judge` and `text` are pure. Nothing on the machine
//! is changed: the namespaces are made and dropped again. What is left out: mending anything.

mod facts;
mod judge;
mod probe;
mod text;

pub use facts::{Facts, Refused, VmFacts, gather};
pub use judge::{Answer, LabLine, Line, Way, judge};
pub use probe::{Inside, PROBE, probe_main};
pub use text::text;
