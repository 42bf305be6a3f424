//! The `halfopen` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    // The hidden commands are started by the harness itself and never reach the parser of the others.
    match args.get(1).and_then(|a| a.to_str()) {
        Some("__init") => exit_code(halfopen::host::init::init_main(&args[2..])),
        Some("__supervise") => exit_code(halfopen::host::supervise::supervise_main(&args[2..])),
        _ => ExitCode::SUCCESS,
    }
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
