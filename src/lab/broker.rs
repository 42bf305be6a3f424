//! A broker that runs, and what all kinds have in common: waiting until it answers, and ending it.

use super::netns::ADMIN;
use super::running::{Recipe, Running};
use super::{Alarm, LabError, Resource, Tables};
use crate::host::clock::Clock;
use crate::host::netns::NetNs;
use crate::host::process::Launch;
use crate::host::procfs::{Usage, tree_usage};
use crate::scenario::BrokerKind;
use crate::units::Pace;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a broker may take until it answers. RabbitMQ takes 4 to 8 s, and several times that on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Time between two attempts to reach a broker that starts, by the time since its start.
const PACE: Pace = Pace::new(Duration::from_millis(20), 20).at_most(Duration::from_millis(500));

/// How long one attempt waits for each answer, by the time since the start: a connection that was made too early may never
/// be answered, and must not cost more than the start itself did.
const ANSWER: Pace = Pace::new(Duration::from_millis(500), 2).at_most(Duration::from_secs(10));

/// A broker that runs in the lab. Dropped, it is killed; [`super::Lab::close`] also says what went wrong.
#[derive(Debug)]
pub struct Broker {
    /// Which.
    pub kind: BrokerKind,
    /// The port that it listens on, on every address of the server namespace.
    pub port: u16,
    /// Login.
    pub user: String,
    /// Password of this run. Never written to a run directory.
    pub password: String,
    /// Version, where it tells.
    pub version: Option<String>,
    /// From the start of its process to the first answered login.
    pub startup: Duration,
    /// In what its start differs from the package's own, apart from where its files and its port are; `None` when in nothing.
    pub unlike_stock: Option<String>,
    /// Its log.
    pub log: PathBuf,
    pub(super) process: Running,
    /// How it was started.
    pub(super) recipe: Recipe,
    /// Its own command line, where it has one.
    pub(super) control: Option<Launch>,
    /// Processes that it needs; ended after it.
    pub(super) helpers: Vec<Running>,
    /// Its private directory; removed at the end.
    pub(super) dir: PathBuf,
}

impl Broker {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its address for the producer and the harness, outside of all trials.
    #[must_use]
    pub fn admin(&self) -> SocketAddrV4 {
        SocketAddrV4::new(ADMIN, self.port)
    }

    /// Kills its process, where that still runs, and starts it again on the same files; nobody waits until it answers.
    ///
    /// # Errors
    /// When the old one does not go or the new one can't be started.
    pub fn restart(&mut self) -> io::Result<()> {
        self.recipe.start_again(&mut self.process)
    }

    /// What waits until it answers after a restart.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        let Self { kind, port, user, password, .. } = self;
        let (kind, port, user, password) = (*kind, *port, user.clone(), password.clone());
        let ns = self.recipe.netns();
        Waiter::new(kind.to_string(), move |within| {
            let attempt = || {
                let mut stream = TcpStream::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
                stream.set_read_timeout(Some(within))?;
                stream.set_write_timeout(Some(within))?;
                match kind {
                    BrokerKind::Rabbitmq => super::amqp::log_in(&mut stream, &user, &password),
                    _ => super::redis::log_in(&mut stream, &password),
                }
            };
            match &ns {
                Some(ns) => ns.run(attempt),
                None => attempt(),
            }
        })
    }

    /// Its alarm over a resource, where it has one.
    #[must_use]
    pub fn alarm(&self, resource: Resource) -> Option<Alarm> {
        let control = self.control.clone()?;
        Some(Alarm { resource, control, log: self.log.clone() })
    }

    /// Its own tables, where its command line is at hand.
    #[must_use]
    pub fn tables(&self) -> Option<Tables> {
        Some(Tables { control: self.control.clone()? })
    }

    /// Memory and processor time that it used so far, with its own children.
    #[must_use]
    pub fn usage(&self) -> Usage {
        tree_usage(self.pid())
    }

    /// How it ended, in words, where it did.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub fn ended(&mut self) -> io::Result<Option<String>> {
        Ok(self.process.try_wait()?.map(|status| status.to_string()))
    }

    /// The end of its log, for a message.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_words(&[&self.log])
    }

    pub(super) fn close(mut self) -> Vec<LabError> {
        let kind = self.kind;
        let mut errors = Vec::new();
        let mut note = |what: &'static str, result: io::Result<()>| {
            if let Err(source) = result {
                errors.push(LabError::Io { kind, what, source });
            }
        };
        note("end it", self.process.kill().map(drop));
        for helper in &mut self.helpers {
            note("end its helper", helper.kill().map(drop));
        }
        note("remove its files", std::fs::remove_dir_all(&self.dir));
        errors
    }
}

/// One attempt to log in, whose answers may take so long.
type Attempt = Box<dyn Fn(Duration) -> io::Result<()> + Send>;

/// Waits until a server that was started again answers.
pub struct Waiter {
    what: String,
    attempt: Attempt,
}

impl Waiter {
    pub(super) fn new(what: String, attempt: impl Fn(Duration) -> io::Result<()> + Send + 'static) -> Self {
        Self { what, attempt: Box::new(attempt) }
    }

    /// Blocks until it lets somebody in.
    ///
    /// # Errors
    /// In words, when it has not within two minutes.
    pub fn wait(&self, clock: Clock) -> Result<(), String> {
        let started = clock.now();
        loop {
            let took = clock.now().since(started);
            match (self.attempt)(ANSWER.after(took)) {
                Ok(()) => return Ok(()),
                Err(error) if took > READY_WITHIN => {
                    return Err(format!("{} did not answer within {} s ({error})", self.what, READY_WITHIN.as_secs()));
                }
                Err(_) => std::thread::sleep(PACE.after(took)),
            }
        }
    }
}

/// By which clock a broker is waited for, and what ends the wait early.
#[derive(Debug, Clone)]
pub struct Patience {
    /// The run's clock.
    pub clock: Clock,
    /// Set by a signal: nobody wants the lab any more.
    pub interrupted: Arc<AtomicBool>,
}

impl Patience {
    /// Nothing but the deadline ends the wait.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, interrupted: Arc::default() }
    }
}

/// Waits until `handshake` succeeds on a connection to the port, made inside the namespace. Returns the time it took.
///
/// # Errors
/// As soon as the process ends, or at the deadline; with the end of `logs`.
pub(super) fn wait_ready(
    kind: BrokerKind,
    port: u16,
    process: &mut Running,
    ns: &NetNs,
    patience: &Patience,
    logs: &[&Path],
    handshake: impl Fn(&mut TcpStream) -> io::Result<()> + Sync,
) -> Result<Duration, LabError> {
    let clock = patience.clock;
    let started = clock.now();
    let broken = |what: String| LabError::Broker { kind, what, log: last_words(logs) };
    loop {
        let answer_within = ANSWER.after(clock.now().since(started));
        let attempt = ns.run(|| {
            let mut stream = TcpStream::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
            stream.set_read_timeout(Some(answer_within))?;
            stream.set_write_timeout(Some(answer_within))?;
            handshake(&mut stream)
        });
        let took = clock.now().since(started);
        let Err(error) = attempt else { return Ok(took) };
        // The pause between two attempts is also the watch for an early end.
        if let Some(status) = process.wait_at_most(PACE.after(took)).map_err(|source| LabError::Io {
            kind,
            what: "wait for it",
            source,
        })? {
            return Err(broken(format!("ended while it started ({status})")));
        }
        if patience.interrupted.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        if took > READY_WITHIN {
            return Err(broken(format!("did not answer within {} s ({error})", READY_WITHIN.as_secs())));
        }
    }
}

/// The last lines of some files, at most 15 each.
fn last_words(files: &[&Path]) -> String {
    let tail = |path: &Path| -> io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(4096)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        Ok(lines[lines.len().saturating_sub(15)..].join("\n"))
    };
    let words: Vec<String> = files.iter().filter_map(|f| tail(f).ok()).filter(|t| !t.is_empty()).collect();
    if words.is_empty() { "(nothing)".into() } else { words.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_ends_early_is_an_error_at_once_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut launch = crate::host::process::Launch::new("/bin/sh").args(["-c", "echo 'no such port'; exit 3"]);
        launch.stdout = crate::host::process::Stream::File(log.clone());
        let mut process = Running::from(launch.spawn().unwrap());
        let ns = NetNs::current("here").unwrap();
        // Port 1 refuses; the end of the process is what ends the wait, long before the deadline.
        let clock = Clock::start();
        let result = wait_ready(BrokerKind::Redis, 1, &mut process, &ns, &Patience::new(clock), &[&log], |_| Ok(()));
        let text = result.unwrap_err().to_string();
        assert!(text.contains("exit status: 3") && text.contains("no such port"), "{text}");
        assert!(clock.now().as_secs() < 10.0);
    }

    #[test]
    fn last_words_are_the_last_lines_of_each_file() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&a, (0..40).map(|i| format!("line {i}\n\n")).collect::<String>()).unwrap();
        std::fs::write(&b, "").unwrap();
        let words = last_words(&[&a, &b, Path::new("/nonexistent/c")]);
        assert_eq!(words.lines().count(), 15);
        assert!(words.starts_with("line 25") && words.ends_with("line 39"));
        assert_eq!(last_words(&[&b]), "(nothing)");
    }
}
