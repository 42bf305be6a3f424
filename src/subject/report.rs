//! The way out: events from any thread or task, written by one thread, one JSON line each, flushed when it runs dry.

use super::protocol::Report;
use crate::events::{Event, Kind, Source};
use crate::host::clock::Clock;
use crate::units::{Offset, TrialId};
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// A handle to report with; clones share the writer.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    clock: Clock,
    source: Source,
    lines: Sender<Report>,
}

impl Reporter {
    /// Starts the writer. The handle returned ends with the [`Report::Bye`] of [`Reporter::bye`].
    pub fn start(clock: Clock, source: Source, out: impl Write + Send + 'static) -> (Self, JoinHandle<()>) {
        let (lines, receiver) = mpsc::channel();
        // A reader that went away is not an error of ours: end of input follows, and with it the end of the process.
        let writer = thread::spawn(move || drop(write_lines(&receiver, out)));
        (Self { clock, source, lines }, writer)
    }

    /// The run's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Now, on the run's clock.
    pub fn now(&self) -> Offset {
        self.clock.now()
    }

    /// The wall clock at an instant of the run, in nanoseconds since 1970.
    pub fn wall_of(&self, at: Offset) -> i64 {
        self.clock.wall_of(at)
    }

    /// An absolute reading of `CLOCK_MONOTONIC` on the run's clock.
    pub fn offset_of_monotonic(&self, monotonic_ns: i64) -> Offset {
        self.clock.offset_of_monotonic(monotonic_ns)
    }

    /// Reports what happened at `offset`.
    pub fn event(&self, offset: Offset, trial: TrialId, kind: Kind) {
        self.report(Report::Event { event: Event::of_trial(offset, self.source, trial, kind) });
    }

    /// Reports what happened at `offset`, outside any trial.
    pub fn run_event(&self, offset: Offset, kind: Kind) {
        self.report(Report::Event { event: Event::of_run(offset, self.source, kind) });
    }

    /// A line for people, outside any trial.
    pub fn note(&self, text: String) {
        self.run_event(self.now(), Kind::Note { text });
    }

    /// Sends a line as it is.
    pub fn report(&self, report: Report) {
        let _ = self.lines.send(report);
    }

    /// The last line: the writer flushes and ends.
    pub fn bye(&self) {
        self.report(Report::Bye);
    }
}

fn write_lines(lines: &Receiver<Report>, out: impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(64 * 1024, out);
    while let Ok(first) = lines.recv() {
        let mut next = Some(first);
        while let Some(report) = next {
            serde_json::to_writer(&mut out, &report)?;
            out.write_all(b"\n")?;
            if report == Report::Bye {
                return out.flush();
            }
            next = lines.try_recv().ok();
        }
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_keep_the_offset_of_the_moment_and_end_with_bye() {
        let out = Shared::default();
        let (reporter, writer) = Reporter::start(Clock::from_zero(0), Source::Subject, out.clone());
        reporter.event(Offset(42), 7, Kind::Ready { attempt: 1 });
        reporter.bye();
        reporter.event(Offset(43), 7, Kind::Ready { attempt: 2 });
        writer.join().unwrap();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let reports: Vec<Report> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let event = Event::of_trial(Offset(42), Source::Subject, 7, Kind::Ready { attempt: 1 });
        assert_eq!(reports, [Report::Event { event }, Report::Bye]);
    }
}
