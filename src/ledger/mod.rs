//! The ledger: what became of every numbered message, and what went wrong on the way.
//!
//! Pure: events in, an [`Account`] out. A *life* is what the record says of one message ([`Life`]); the *terms* are what its
//! transport and its consumer promise ([`Terms`]); the account gives each published message exactly one *fate* and lists
//! what is wrong, with the message and the evidence. The order of the events and repeated records make no difference.
//!
//! A checker that errs is worse than none, so it says "waiting" wherever the record does not prove a loss: a message
//! that is still with a broker that keeps it, or in the hands of a worker that may be about to finish, is not lost.
//! What is left out: how long anything took (`verdict`), and whether a fault was in force.

mod account;
mod check;
mod life;

pub use account::{Account, Anomaly, AnomalyKind, Fate};
pub use check::{Terms, check};
pub use life::{Delivery, Life, MessageId, Record, Step};
