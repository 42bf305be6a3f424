//! What `halfopen predict` says: settings from anywhere become cases of the timer model under a standard set of faults, and
//! the answers become one structure that is printed as a table or as JSON.
//!
//! Pure: text, facts and scenarios in, an [`Answer`] out; no files, no environment, no clock. Left out: the windows
//! themselves, which are the business of `timers`, reading settings, which is that of `config`, and everything that a run
//! would measure.

mod answer;
mod arm;
mod cleanup;
mod fact_list;
mod facts;
mod files;
mod keys;
mod lints;
mod request;
mod sets;
mod situations;
mod table;
mod text;
mod words;

pub use answer::{Answer, ArmLine, LintLine, NotPredicted, Predicted, SettingLine};
pub use arm::Arm;
pub use cleanup::{Cleanup, cleanup};
pub use keys::{KeyLine, key_lines};
pub use request::{AdviceError, MAX_ARMS, Request, advise};
pub use situations::FaultName;
pub use table::{Cell, layout};
pub use text::{Style, keys_text, render};
pub use words::{Verdict, VerdictPart, window};
