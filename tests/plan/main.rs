//! Scenario files and plans: what is read, what is refused and in which words, and what is planned.

mod broken;
mod documents;
mod plans;
mod properties;
