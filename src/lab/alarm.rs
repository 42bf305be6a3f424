//! RabbitMQ's memory alarm, raised and cleared by its own command line, and what its log says of it.
//!
//! Its limit is set below what it uses. From then on it reads nothing from connections that publish. What is left out: the
//! alarm of the disk, which does the same.

use crate::host::clock::Clock;
use crate::host::process::Launch;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What its log says when the alarm goes off, and when it is over (`rabbit_alarm.erl`).
const SET: &str = "memory resource limit alarm set";
const CLEARED: &str = "memory resource limit alarm cleared";
/// RabbitMQ's own share of the memory.
const USUAL: &str = "0.4";
/// A call takes 1.6 s, and several times that on a busy machine.
const ANSWER: Duration = Duration::from_secs(60);
/// From the answer until the log has it.
const LOG: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// The alarm of one broker.
#[derive(Debug)]
pub struct Alarm {
    /// `rabbitmqctl` with the broker's own environment.
    pub(super) control: Launch,
    pub(super) log: PathBuf,
}

impl Alarm {
    /// Lets it go off, and waits until the broker says that it has.
    ///
    /// # Errors
    /// When the command line fails, or the log stays silent.
    pub fn raise(&self, clock: Clock) -> io::Result<()> {
        self.limit(&["absolute", "1MB"])?;
        self.wait_until(true, clock)
    }

    /// Ends it, and waits until the broker says so.
    ///
    /// # Errors
    /// As [`Self::raise`].
    pub fn clear(&self, clock: Clock) -> io::Result<()> {
        self.limit(&[USUAL])?;
        self.wait_until(false, clock)
    }

    /// Whether it is in force, by the last word of the log.
    ///
    /// # Errors
    /// When the log can't be read.
    pub fn in_force(&self) -> io::Result<bool> {
        let text = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        Ok(last_word(&text))
    }

    fn limit(&self, words: &[&str]) -> io::Result<()> {
        let all = ["set_vm_memory_high_watermark"].into_iter().chain(words.iter().copied());
        let mut process = self.control.clone().args(all).spawn()?;
        match process.wait_at_most(ANSWER)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(io::Error::other(format!("rabbitmqctl ended with {status}"))),
            None => {
                process.kill()?;
                Err(io::Error::other(format!("rabbitmqctl did not answer within {} s", ANSWER.as_secs())))
            }
        }
    }

    fn wait_until(&self, set: bool, clock: Clock) -> io::Result<()> {
        let started = clock.now();
        while self.in_force()? != set {
            if clock.now().since(started) > LOG {
                return Err(io::Error::other("the broker's log does not say that its memory alarm changed"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

fn last_word(log: &str) -> bool {
    let last = |what: &str| log.rfind(what);
    last(SET) > last(CLEARED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_the_log_counts() {
        assert!(!last_word("started\n"));
        let set = "[warning] memory resource limit alarm set on node x.\n";
        assert!(last_word(set));
        assert!(!last_word(&format!("{set}memory resource limit alarm cleared on node x\n")));
        assert!(last_word(&format!("{set}memory resource limit alarm cleared on node x\n{set}")));
    }
}
