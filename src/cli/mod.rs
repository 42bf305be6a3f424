//! The command line: arguments, progress, exit codes, wiring; nothing else.

/// A line on standard error. Whoever reads it may be gone (a closed terminal, `| head`): that must never end a
/// measurement, so a line that can't be written is lost.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}

mod args;
mod attribute;
mod baseline;
mod clean;
mod compare;
mod conformance;
mod docker;
mod doctor;
mod dry_run;
mod engine;
mod exit;
mod firewall;
mod guest;
mod inspect;
mod inspect_serve;
mod inspect_watch;
mod jobs;
mod list;
mod machine;
mod merge;
mod own_program;
mod predict;
mod progress;
mod reap;
mod redact;
mod report;
mod run;
mod usage;
mod vm;
mod waves;

pub use exit::{Exit, Failure};

use args::{Cli, Command};
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;

/// Runs the command and returns its exit code. The hidden roles of the same binary come first, without clap: they are
/// not for people, and PID 1 should do as little as it can.
#[must_use]
pub fn main(args: &[OsString]) -> u8 {
    if let Some(role) = args.get(1).and_then(|a| a.to_str()).filter(|a| a.starts_with("__")) {
        return hidden(role, &args[2..]);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Predict(args) => predict::predict(&args),
        Command::Attribute(args) => attribute::attribute(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Conformance(args) => conformance::conformance(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Merge(args) => merge::merge(&args),
        Command::Report(args) => report::report(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Clean(args) => clean::clean(&args),
        Command::Vm(args) => return vm::vm(&args),
        Command::Reap(args) => reap::reap(&args),
        Command::Schema => print(&pretty(&crate::scenario::schema())),
        Command::List(args) => list::list(&args),
    };
    match result {
        Ok(exit) => exit.code(),
        Err(failure) => {
            say!("halfopen: {}", redact::redact(&failure.text));
            failure.exit.code()
        }
    }
}

/// Help and version are no errors, and `halfopen` alone is answered with help; all else is one line.
fn refuse(error: &clap::Error) -> u8 {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Exit::Held.code()
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage.code()
        }
        _ => {
            say!("halfopen: {}", redact::redact(&usage::one_line(error)));
            Exit::Usage.code()
        }
    }
}

fn hidden(role: &str, args: &[OsString]) -> u8 {
    let texts = || -> Vec<String> { args.iter().map(|a| a.to_string_lossy().into_owned()).collect() };
    let code = match role {
        "__init" => crate::host::init::init_main(args),
        "__supervise" => crate::host::supervise::supervise_main(args),
        crate::lab::vm::SUBCOMMAND => crate::lab::vm::guest_main(&texts()),
        crate::doctor::PROBE => crate::doctor::probe_main(args),
        crate::lab::docker::HOLD => crate::lab::docker::hold_main(),
        "__engine" => engine::engine_main(args),
        "__subject" => crate::subject::subject_main(&texts()),
        "__producer" => crate::subject::producer_main(&texts()),
        "__proxy" => crate::subject::proxy_main(&texts()),
        "__relay" => crate::subject::relay_main(&texts()),
        "__resolver" => crate::subject::resolver_main(&texts()),
        "__peer" => crate::subject::peer_main(&texts()),
        "__provider" => crate::subject::provider_main(&texts()),
        "__reaper" => crate::subject::reaper_main(&texts()),
        "__user" => crate::subject::user_main(&texts()),
        _ => {
            say!("halfopen: unknown command `{role}`; see `halfopen --help`");
            i32::from(Exit::Usage.code())
        }
    };
    u8::try_from(code).unwrap_or(Exit::Harness.code())
}

/// Results go to standard output. A reader that went away (`| head`) is no failure of ours.
fn print(text: &str) -> Result<Exit, Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Harness, format!("can't write to standard output: {error}")))
        }
        _ => Ok(Exit::Held),
    }
}

fn pretty(value: &serde_json::Value) -> String {
    // A JSON value has nothing that could fail to print.
    serde_json::to_string_pretty(value).unwrap_or_default()
}
