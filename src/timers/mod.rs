//! The timer model.
pub(crate) mod draw;
mod environment;
pub mod kernel;
mod span;
mod watcher;
pub use draw::Phases;
pub use environment::{Environment, KernelVersion};
pub use span::{Span, Window};
pub use watcher::{Side, UnknownWatcher, Watcher};
