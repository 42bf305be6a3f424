//! What can go wrong with a run directory, each with the path.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a run directory can't be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The directory has files of somebody else.
    #[error(
        "{} is not empty and not a run of halfopen; choose another --out or empty it yourself", .path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// Another run is writing into it.
    #[error("{} belongs to a run that is going on; choose another --out or wait for its end", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// There is no run here.
    #[error("{} is not a run of halfopen: it has no {missing}", .path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
        /// The file that is missing.
        missing: &'static str,
    },
    /// Written by a later version.
    #[error("{} has {what} {found}, this version reads up to {known}; use a newer halfopen", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Which version: `format` or `events_version`.
        what: &'static str,
        /// What the file says.
        found: u64,
        /// What this version knows.
        known: u32,
    },
    /// A file's content is broken.
    #[error("{}{}: {why}", .path.display(), .line.map(|n| format!(":{n}")).unwrap_or_default())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1, where there is one.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// The system refused.
    #[error("{what} {}: {source}", .path.display())]
    Io {
        /// What was tried: `create`, `write` …
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl StoreError {
    /// Binds what was tried, for `map_err`.
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
