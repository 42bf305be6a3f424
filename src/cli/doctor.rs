//! `halfopen doctor`.

use super::args::JsonArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::doctor::{gather, judge, text};
use std::io::IsTerminal;

/// Says what this machine can do. Exit code 3 where no run with real sockets is possible.
pub fn doctor(args: &JsonArgs) -> Result<Exit, Failure> {
    let answer = judge(&gather());
    if args.json {
        let value = serde_json::to_value(&answer).map_err(|e| Failure::new(Exit::Harness, e.to_string()))?;
        print(&pretty(&value))?;
    } else {
        let terminal = terminal_size::terminal_size().filter(|_| std::io::stdout().is_terminal());
        let width = terminal.map_or(110, |(width, _)| width.0);
        print(&text(&answer, width.clamp(60, 160)))?;
    }
    Ok(if answer.able { Exit::Held } else { Exit::Cannot })
}
