//! What can go wrong with the virtual-time lab, each with what mends it.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why there is no kernel, or no result from a guest.
#[derive(Debug, Error)]
pub enum VmError {
    /// No kernel was built yet.
    #[error("no virtual-time kernel in {0}; build it once with `halfopen vm build` (7–9 minutes on 2 cores)")]
    NoKernel(PathBuf),
    /// No source to build from.
    #[error("no kernel source below /usr/src; `{mend}`")]
    NoSource {
        /// The command.
        mend: String,
    },
    /// Build tools are missing.
    #[error("building the kernel needs {}; `{mend}`", .missing.join(", "))]
    NoTools {
        /// Packages.
        missing: Vec<String>,
        /// The command.
        mend: String,
    },
    /// Too little room.
    #[error(
        "building needs {need_mib} MiB in {dir}, {free_mib} MiB are free; free some, or set XDG_CACHE_HOME elsewhere"
    )]
    NoRoom {
        /// The cache.
        dir: PathBuf,
        /// MiB wanted.
        need_mib: u64,
        /// MiB there.
        free_mib: u64,
    },
    /// Another build of the same kernel is running.
    #[error("another build of this kernel is running (it holds {0})")]
    Busy(PathBuf),
    /// A step of the build failed.
    #[error("building the kernel failed at `{step}`: {why}; the log is {log}")]
    Step {
        /// The step's name.
        step: &'static str,
        /// Why.
        why: String,
        /// The log.
        log: PathBuf,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME`.
    #[error("no cache directory: set HOME or XDG_CACHE_HOME")]
    NoCacheDir,
    /// The guest can't run here.
    #[error("a guest can't run on this machine: {0}")]
    Unfit(String),
    /// The guest ended without a result.
    #[error("the guest ended without a result (status {status}); its console's last lines:\n{console}")]
    Died {
        /// Exit status of the kernel's process.
        status: i32,
        /// Tail of the console.
        console: String,
    },
    /// The guest was stopped by the watchdog in the last mode that there was.
    #[error("the guest was stopped: {0}")]
    Stopped(super::watch::Stall),
    /// A signal came and the guest was killed.
    #[error("interrupted; the guest was stopped")]
    Interrupted,
    /// A path that can't be given to a guest.
    #[error("{0} can't be handed to the guest: its path has a character that a kernel command line can't carry")]
    Path(PathBuf),
    /// Anything else from the system.
    #[error("can't {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Turns an input/output error into one that says what was tried.
pub(super) fn io_at<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> VmError {
    let what = what.into();
    move |e| VmError::Io { what, source: e.into() }
}
