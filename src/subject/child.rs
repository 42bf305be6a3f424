//! What the three kinds of child have in common: arguments, hello, the loop over commands, and the orderly end.

use super::protocol::{Command, Report};
use super::report::Reporter;
use crate::events::Source;
use crate::host::clock::Clock;
use std::collections::BTreeMap;
use std::io::{self, BufRead};

/// Exit status of an orderly end.
const OK: i32 = 0;
/// Exit status for wrong arguments.
const USAGE: i32 = 2;
/// Exit status when the harness itself failed: the process can't start, or its parent speaks another protocol.
const FAILED: i32 = 5;

/// A kind of child process.
pub(super) trait Role {
    /// Carries out a command. Must not block: thousands follow each other.
    fn command(&mut self, command: Command);
}

/// The value of `--name value`.
pub(super) fn flag<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).map(String::as_str)
}

/// Runs a child from hello to bye. `start` makes the role ready to take commands before hello is said.
pub(super) fn run<R: Role>(
    args: &[String],
    source: Source,
    libraries: &[(&str, &str)],
    start: impl FnOnce(&Reporter) -> io::Result<R>,
) -> i32 {
    let Some(zero_ns) = flag(args, "--zero-ns").and_then(|text| text.parse().ok()) else {
        eprintln!("--zero-ns N is needed: the clock's zero in nanoseconds");
        return USAGE;
    };
    let (reporter, writer) = Reporter::start(Clock::from_zero(zero_ns), source, io::stdout());
    let mut role = match start(&reporter) {
        Ok(role) => role,
        Err(error) => {
            eprintln!("cannot start: {error}");
            return FAILED;
        }
    };
    reporter.report(Report::Hello { versions: versions(libraries) });
    let status = obey(&mut role, &reporter, io::stdin().lock());
    reporter.bye();
    let _ = writer.join();
    status
}

fn versions(libraries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = [("halfopen", env!("CARGO_PKG_VERSION"))];
    own.iter().chain(libraries).map(|(name, version)| ((*name).to_string(), (*version).to_string())).collect()
}

fn obey(role: &mut impl Role, reporter: &Reporter, input: impl BufRead) -> i32 {
    for line in input.lines() {
        let Ok(line) = line else { break };
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(Command::Quit) => break,
            Ok(command) => role.command(command),
            Err(error) => {
                reporter.note(format!("unreadable command, giving up: {error}"));
                return FAILED;
            }
        }
    }
    OK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<Command>);

    impl Role for Heard {
        fn command(&mut self, command: Command) {
            self.0.push(command);
        }
    }

    fn obeyed(input: &str) -> (i32, Vec<Command>) {
        let (reporter, _writer) = Reporter::start(Clock::from_zero(0), Source::Subject, io::sink());
        let mut role = Heard::default();
        let status = obey(&mut role, &reporter, input.as_bytes());
        (status, role.0)
    }

    #[test]
    fn quit_and_the_end_of_input_end_it_and_nonsense_fails_it() {
        let close = r#"{"op":"close","trial":3}"#;
        assert_eq!(
            obeyed(&format!("{close}\n\n{{\"op\":\"quit\"}}\n{close}\n")),
            (OK, vec![Command::Close { trial: 3 }])
        );
        assert_eq!(obeyed(close), (OK, vec![Command::Close { trial: 3 }]));
        assert_eq!(obeyed("hello\n"), (FAILED, vec![]));
    }

    #[test]
    fn flags_are_read_by_name() {
        let args = ["--listen", "127.0.0.1:0", "--zero-ns", "-5"].map(String::from);
        assert_eq!(flag(&args, "--zero-ns"), Some("-5"));
        assert_eq!(flag(&args, "--other"), None);
    }
}
