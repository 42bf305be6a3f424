//! Progress of a run on standard error: a line that is redrawn on a terminal, a line each half minute elsewhere.

use crate::engine::kernel::Progress;
use crate::host::clock::Clock;
use crate::units::Offset;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Draws what the engine reports.
pub struct Drawn {
    bar: Option<ProgressBar>,
    clock: Clock,
    said: String,
    said_at: Offset,
}

const EVERY: Duration = Duration::from_secs(30);

impl Drawn {
    /// A display for standard error as it is.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:24}] {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_prefix(name.to_string());
            bar
        });
        Self { bar, clock: Clock::start(), said: String::new(), said_at: Offset::ZERO }
    }

    /// Shows where the run stands.
    pub fn show(&mut self, progress: &Progress) {
        let left = progress.left.map(|(share, left)| (share, format!("about {} s left", left.as_secs())));
        if let Some(bar) = &self.bar {
            if let Some((share, _)) = &left {
                bar.set_position((share * 1000.0) as u64);
            }
            bar.set_message(match left {
                Some((_, left)) => format!("{}; {left}", progress.stage),
                None => progress.stage.clone(),
            });
            return;
        }
        let now = self.clock.now();
        let due = self.said.is_empty() || now.since(self.said_at) >= EVERY;
        if progress.left.is_none() || due {
            match left {
                Some((_, left)) => say!("halfopen: {}; {left}", progress.stage),
                None => say!("halfopen: {}", progress.stage),
            }
            self.said.clone_from(&progress.stage);
            self.said_at = now;
        }
    }
}

impl Drop for Drawn {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
