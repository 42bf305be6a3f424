//! The `halfopen` command.

fn main() {}
