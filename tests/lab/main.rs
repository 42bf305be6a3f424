//! Tests that need namespaces, and most of them root. Where they can't run they fail and say so; none is skipped.

#![expect(clippy::disallowed_methods, reason = "a test times what it waits for and starts the program under test")]

mod common;
mod lab;
mod supervisor;
