//! `halfopen doctor`.

use super::args::JsonArgs;
use super::exit::{Exit, Failure};

/// Says what this machine can do.
pub fn doctor(_args: &JsonArgs) -> Result<Exit, Failure> {
    Ok(Exit::Held)
}
