//! The `halfopen` command.

use halfopen::subject;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The roles of a run's own processes, before the command line for people is looked at.
    let status = match args.first().map(String::as_str) {
        Some("__subject") => subject::subject_main(&args[1..]),
        Some("__producer") => subject::producer_main(&args[1..]),
        Some("__peer") => subject::peer_main(&args[1..]),
        _ => 2,
    };
    ExitCode::from(u8::try_from(status).unwrap_or(5))
}
