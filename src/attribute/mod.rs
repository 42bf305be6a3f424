//! Which timer made these durations: a sample against a library of timers and one's own → named, indistinguishable or
//! unexplained.
//!
//! Pure. Four things are kept apart: how a sample is read (`input`), what a timer's durations look like (`timer`,
//! `library`), what the evidence says (`ordinary`, `evidence`, `shape`), and what follows for the layers (`answer`, `layers`).
//! The rule of evidence and its proof are in docs/attribute.md. What is left out: durations that are a small part of a
//! sample of healthy work (give the stuck ones), and where files come from.

mod answer;
mod evidence;
mod input;
mod law;
mod layers;
mod library;
mod modelled;
mod ordinary;
mod published;
mod sample;
mod shape;
mod tell;
mod text;
mod timer;

pub use answer::{Answer, Component, Consistent, Rest, Silent, Verdict, attribute};
pub use input::{Hints, InputError, Read, read};
pub use layers::LayerWord;
pub use library::library;
pub use modelled::from_plan;
pub use published::{Published, PublishedAnswer, PublishedLine, answer_published};
pub use sample::{Sample, Summary};
pub use shape::{EffectiveCheck, Fit};
pub use text::{list, render, render_published};
pub use timer::{Layer, Timer, TimerError, parse_timer};
