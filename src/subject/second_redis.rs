//! A second, healthy consumer beside the client under test on Redis: a worker that goes by kombu's rules.
//!
//! The server gives nothing back. What a dead worker has taken and not acknowledged lies in kombu's hash until a worker that is
//! well looks for what is older than `visibility_timeout`, and puts it back into its list; this one looks, and takes from the
//! list like any other. It works on nothing: a message is done when it comes. What is left out: clients that keep no such
//! hash; what they pop is gone.

use crate::events::Kind;
use crate::subject::kombu::{self, Envelope, Visibility};
use crate::subject::protocol::Target;
use crate::subject::report::Reporter;
use crate::subject::stop::Stop;
use crate::units::{Offset, TrialId};
use redis::{Connection, RedisResult};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a pop waits at the most. kombu asks each second; a message comes at once either way.
const WAIT: Duration = Duration::from_secs(4);
/// And at the least: 0 would be for ever.
const LEAST: Duration = Duration::from_millis(10);
/// Its multiples lie evenly spread between whole numbers.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// Between two attempts to reach a server that is gone.
const PAUSE: Duration = Duration::from_secs(1);

/// The second consumer of one trial's list.
pub(super) struct Second {
    pub trial: TrialId,
    pub target: Target,
    pub rule: Visibility,
    /// When it begins.
    pub from: Offset,
    pub stop: Arc<Stop>,
    pub reporter: Reporter,
}

impl Second {
    /// Consumes on a thread of its own until it is stopped.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(self) -> io::Result<()> {
        thread::Builder::new().name(format!("second-{}", self.trial)).spawn(move || self.consume_for_ever()).map(drop)
    }

    fn consume_for_ever(&self) {
        if self.stop.wait(self.from.since(self.reporter.now())) {
            return;
        }
        // Workers start at any time, and look from then on: spread over the trials.
        let phase = (f64::from(self.trial) * GOLDEN).fract();
        let mut next_look = self.from + self.rule.every.mul_f64(phase);
        while !self.stop.is_stopped() {
            if let Err(error) = self.consume(&mut next_look) {
                self.reporter.note(format!("second consumer of trial {}: {error}", self.trial));
                if self.stop.wait(PAUSE) {
                    return;
                }
            }
        }
    }

    fn consume(&self, next_look: &mut Offset) -> RedisResult<()> {
        let mut link = kombu::connect(&self.target)?;
        let lists = kombu::lists(&self.target.queue);
        while !self.stop.is_stopped() {
            if self.reporter.now() >= *next_look {
                let ceiling = self.wall_s() - self.rule.timeout.as_secs_f64();
                kombu::look(&mut link, &format!("second-{}", self.trial), ceiling)?;
                *next_look = *next_look + self.rule.every;
            }
            let wait = next_look.since(self.reporter.now()).clamp(LEAST, WAIT);
            let popped: Option<(String, String)> =
                redis::cmd("BRPOP").arg(&lists[..]).arg(wait.as_secs_f64()).query(&mut link)?;
            if let Some((_, text)) = popped {
                self.take(&mut link, &text)?;
            }
        }
        Ok(())
    }

    fn take(&self, link: &mut Connection, text: &str) -> RedisResult<()> {
        let at = self.reporter.now();
        let Some(envelope) = Envelope::parse(text) else {
            self.reporter.note(format!("second consumer of trial {}: a message without a number", self.trial));
            return Ok(());
        };
        envelope.keep(link, self.wall_s())?;
        envelope.ack(link)?;
        let (message, redelivered) = (envelope.message, envelope.redelivered);
        self.reporter.event(at, self.trial, Kind::Elsewhere { message, redelivered });
        Ok(())
    }

    fn wall_s(&self) -> f64 {
        self.reporter.wall_of(self.reporter.now()) as f64 / 1e9
    }
}
