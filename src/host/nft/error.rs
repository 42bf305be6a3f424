//! What can go wrong with nftables, with the operation that it went wrong at.

use std::io;
use thiserror::Error;

/// Why the kernel did not do what it was asked.
#[derive(Debug, Error)]
pub enum NftError {
    /// The netlink socket could not be opened or used.
    #[error("nftables in network namespace `{namespace}`: {operation}: {source}")]
    Socket {
        /// The namespace's name.
        namespace: String,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel refused an operation; nothing of its batch was applied.
    #[error("nftables in network namespace `{namespace}`: {operation}: {source}{}", in_brackets(.told))]
    Refused {
        /// The namespace's name.
        namespace: String,
        /// The operation, with the element where there is one.
        operation: String,
        /// Why.
        source: io::Error,
        /// The kernel's own words, where it had any.
        told: String,
    },
    /// The kernel's answer lacks something that it has to have.
    #[error("nftables in network namespace `{namespace}`: {operation}: the answer has no {missing}")]
    Incomplete {
        /// The namespace's name.
        namespace: String,
        /// What was tried.
        operation: &'static str,
        /// What the answer lacks.
        missing: &'static str,
    },
}

fn in_brackets(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" ({words})") }
}

impl NftError {
    /// The error number, where the kernel gave one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket { source, .. } | Self::Refused { source, .. } => source.raw_os_error(),
            Self::Incomplete { .. } => None,
        }
    }
}
