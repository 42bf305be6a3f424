//! RabbitMQ's alarms, raised and cleared by its own command line, and what its log says of them.
//!
//! The memory that it may use is set below what it uses, or the disk that has to stay free above what there is. From then on
//! it reads nothing from connections that publish.

use crate::host::clock::Clock;
use crate::host::process::Launch;
use crate::scenario::Act;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A call takes 1.6 s, and several times that on a busy machine.
const ANSWER: Duration = Duration::from_secs(60);
/// From the answer until the log has it.
const LOG: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// What an alarm is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resource {
    /// The memory that the broker uses.
    #[default]
    Memory,
    /// What is free on the disk that it writes to.
    Disk,
}

impl Resource {
    /// What the alarm of an act is about; `None` for an act that raises none.
    #[must_use]
    pub fn of(act: Act) -> Option<Self> {
        match act {
            Act::AlarmBroker => Some(Self::Memory),
            Act::AlarmDisk => Some(Self::Disk),
            _ => None,
        }
    }

    /// Its name, as the broker's log has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }

    /// The words of `rabbitmqctl` that set the limit where the broker is beyond it.
    fn beyond(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &["set_vm_memory_high_watermark", "absolute", "1MB"],
            // 9 PB: more than any disk has. It is looked at as soon as it is set.
            Self::Disk => &["set_disk_free_limit", "9000000000000000"],
        }
    }

    /// Those that set it back to what the run's configuration says: RabbitMQ's own share of the memory, and what
    /// `configuration` (`rabbitmq.rs`) writes of the disk.
    fn usual(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &["set_vm_memory_high_watermark", "0.4"],
            Self::Disk => &["set_disk_free_limit", DISK_FREE],
        }
    }

    /// Whether it is in force, by the last word of a log (`rabbit_alarm.erl`).
    fn last_word(self, log: &str) -> bool {
        let last = |what: &str| log.rfind(&format!("{} resource limit alarm {what}", self.name()));
        last("set") > last("cleared")
    }
}

/// What has to be free of the disk while no alarm is raised. A run's files lie in memory; what counts as little space on a
/// server would stop it here.
pub(super) const DISK_FREE: &str = "1MB";

/// The alarm of one broker over one resource.
#[derive(Debug)]
pub struct Alarm {
    pub(super) resource: Resource,
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
        self.order(self.resource.beyond())?;
        self.wait_until(true, clock)
    }

    /// Ends it, and waits until the broker says so.
    ///
    /// # Errors
    /// As [`Self::raise`].
    pub fn clear(&self, clock: Clock) -> io::Result<()> {
        self.order(self.resource.usual())?;
        self.wait_until(false, clock)
    }

    /// Whether it is in force, by the last word of the log.
    ///
    /// # Errors
    /// When the log can't be read.
    pub fn in_force(&self) -> io::Result<bool> {
        Ok(self.resource.last_word(&String::from_utf8_lossy(&std::fs::read(&self.log)?)))
    }

    fn order(&self, words: &[&str]) -> io::Result<()> {
        let mut process = self.control.clone().args(words.iter().copied()).spawn()?;
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
                let name = self.resource.name();
                return Err(io::Error::other(format!("the broker's log does not say that its {name} alarm changed")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_of_the_log_on_the_same_resource_counts() {
        let memory = |log: &str| Resource::Memory.last_word(log);
        assert!(!memory("started\n"));
        let set = "[warning] memory resource limit alarm set on node x.\n";
        assert!(memory(set));
        assert!(!memory(&format!("{set}memory resource limit alarm cleared on node x\n")));
        assert!(memory(&format!("{set}memory resource limit alarm cleared on node x\n{set}")));
        assert!(!Resource::Disk.last_word(set));
        let disk = "[warning] disk resource limit alarm set on node x.\n";
        assert!(Resource::Disk.last_word(&format!("{disk}memory resource limit alarm cleared on node x\n")));
    }

    #[test]
    fn an_alarm_is_an_act_s_and_back() {
        let alarmed: Vec<Act> = Act::ALL.into_iter().filter(|act| Resource::of(*act).is_some()).collect();
        let named: Vec<Act> = Act::ALL.into_iter().filter(|act| act.alarms()).collect();
        assert_eq!(alarmed, named);
    }
}
