//! From a scenario to its trials: arms × faults × trials, with addresses, phases and predictions, all fixed before
//! anything starts.
//!
//! Pure: the seed is an argument, the same scenario and seed give the same plan. What is left out: where and how the
//! trials run.

pub mod address;
mod build;
mod describe;
mod handshake;
mod model;
mod outlook;
pub mod phase;
mod place;
mod predict;
mod tasks;

pub use build::{Overrides, PlanError, build};
pub use describe::{ArmLine, Description, describe};
pub use handshake::leave_out;
pub use model::{LeftOut, Outlook, Outlooks, Plan, Trial, Window};
pub use phase::{first_sweep, lives_for};
pub use place::Place;
pub use predict::{Forecast, Machine, Variant, forecast, predict, scheduler, variants};
