//! Tests that need namespaces, and most of them root. Where they can't run they fail and say so; none is skipped.

mod common;
mod lab;
mod supervisor;
