//! Publishing to Redis: one thread and one connection a broker, `LPUSH` after `LPUSH` in the order of their deadlines.

use super::kombu::{self, Visibility};
use super::message;
use super::producer::Wanted;
use super::protocol::{Routing, Target};
use super::redis_client::login;
use super::report::Reporter;
use super::schedule::Schedule;
use super::stop::Stop;
use super::tasks::TaskLog;
use crate::clients::Message;
use crate::events::Kind;
use crate::units::{Offset, TrialId};
use redis::io::tcp::TcpSettings;
use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo, RedisResult};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Bound on connecting and on each `LPUSH`: this link is never cut, so silence means that the broker is gone.
const LIMIT: Duration = Duration::from_secs(5);

/// Between two attempts to reach a broker that is gone.
const PAUSE: Duration = Duration::from_secs(1);

enum Order {
    Publish {
        trial: TrialId,
        queue: String,
        interval: Duration,
        form: Message,
        first_due: Option<Offset>,
        routing: Box<Routing>,
        tracked: bool,
    },
    Reissue {
        trial: TrialId,
        of: u64,
    },
    Republish {
        trial: TrialId,
        message: u64,
    },
    Close {
        trial: TrialId,
    },
}

pub(super) struct Publisher {
    reporter: Reporter,
    tasks: Option<TaskLog>,
    /// By server and database.
    brokers: HashMap<(SocketAddrV4, u32), Sender<Order>>,
    /// The second consumers, by trial.
    seconds: HashMap<TrialId, Arc<Stop>>,
}

#[path = "second_redis.rs"]
mod second_redis;
use second_redis::Second;

impl Publisher {
    pub fn start(reporter: Reporter, tasks: Option<TaskLog>) -> io::Result<Self> {
        Ok(Self { reporter, tasks, brokers: HashMap::new(), seconds: HashMap::new() })
    }

    pub fn publish(&mut self, trial: TrialId, target: Target, wanted: Wanted) -> io::Result<()> {
        let Wanted { interval, task, routing, second, tracked } = wanted;
        let server = (target.server, target.db);
        if let Some(from) = second {
            let stop = Arc::new(Stop::default());
            let (target, reporter) = (target.clone(), self.reporter.clone());
            let rule = Visibility::of(routing.delivery.visibility_timeout);
            Second { trial, target, rule, from, stop: stop.clone(), reporter }.start()?;
            self.seconds.insert(trial, stop);
        }
        let first_due = task.as_ref().and_then(|task| task.first_due);
        let form = task.map_or_else(|| Message::Text("{message}".to_string()), |task| task.message);
        let order = Order::Publish { trial, queue: target.queue.clone(), interval, form, first_due, routing, tracked };
        if let Entry::Vacant(place) = self.brokers.entry(server) {
            let (orders, receiver) = mpsc::channel();
            let worker = Worker::new(target, self.reporter.clone(), self.tasks.clone());
            thread::Builder::new().name("producer-redis".into()).spawn(move || worker.run(&receiver))?;
            place.insert(orders);
        }
        self.tell(server, order)
    }

    /// Publishes a message of a trial once more; nothing where the trial is not one of Redis'.
    pub fn republish(&self, trial: TrialId, message: u64) -> io::Result<()> {
        self.tell_all(|| Order::Republish { trial, message })
    }

    /// Publishes a new message because the work of this one was asked for once more; nothing where the trial is not one of
    /// Redis'.
    pub fn reissue(&self, trial: TrialId, of: u64) -> io::Result<()> {
        self.tell_all(|| Order::Reissue { trial, of })
    }

    pub fn close(&mut self, trial: TrialId) -> io::Result<()> {
        if let Some(second) = self.seconds.remove(&trial) {
            second.stop();
        }
        self.tell_all(|| Order::Close { trial })
    }

    fn tell_all(&self, order: impl Fn() -> Order) -> io::Result<()> {
        self.brokers.keys().try_for_each(|server| self.tell(*server, order()))
    }

    fn tell(&self, server: (SocketAddrV4, u32), order: Order) -> io::Result<()> {
        let worker = self.brokers.get(&server);
        let told = worker.is_some_and(|orders| orders.send(order).is_ok());
        told.then_some(()).ok_or_else(|| io::Error::other(format!("the thread for {} has ended", server.0)))
    }
}

/// One trial's messages.
struct Numbered {
    queue: String,
    form: Message,
    routing: Box<Routing>,
    /// When the first message falls due, where it is a Celery task with an ETA; nanoseconds since 1970.
    first_due: Option<i64>,
    schedule: Schedule,
    next: u64,
    /// Whether each message is a task, where there is a task store.
    tracked: bool,
}

struct Worker {
    target: Target,
    reporter: Reporter,
    tasks: Option<TaskLog>,
    trials: HashMap<TrialId, Numbered>,
    /// Deadlines, earliest first; entries of closed trials are skipped when their turn comes.
    due: BinaryHeap<Reverse<(Offset, TrialId)>>,
    connection: Option<Connection>,
}

impl Worker {
    fn new(target: Target, reporter: Reporter, tasks: Option<TaskLog>) -> Self {
        Self { target, reporter, tasks, trials: HashMap::new(), due: BinaryHeap::new(), connection: None }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.due.peek() {
                Some(Reverse((due, _))) => orders.recv_timeout(due.since(self.reporter.now())),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Publish { trial, queue, interval, form, first_due, routing, tracked }) => {
                    let first_due = first_due.map(|due| self.reporter.wall_of(due));
                    let schedule = Schedule::staggered(self.reporter.now(), interval, trial);
                    self.due.push(Reverse((schedule.due(), trial)));
                    self.trials.insert(trial, Numbered { queue, form, routing, first_due, schedule, next: 0, tracked });
                    // A task with an ETA has to be in the worker's hands before the cut: it goes ahead of the schedule.
                    while first_due.is_some() && !self.publish_next(trial) {
                        thread::sleep(PAUSE);
                    }
                }
                Ok(Order::Republish { trial, message }) => self.again(trial, message),
                Ok(Order::Reissue { trial, of }) => self.reissue(trial, of),
                Ok(Order::Close { trial }) => drop(self.trials.remove(&trial)),
                Err(RecvTimeoutError::Timeout) => self.push_due(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The same message once more: its task is in the store already.
    fn again(&mut self, trial: TrialId, message: u64) {
        let Some(numbered) = self.trials.get(&trial) else { return };
        match push(&mut self.connection, &self.target, numbered, trial, message) {
            Ok(()) => self.reporter.event(self.reporter.now(), trial, Kind::Confirmed { message }),
            Err(error) => {
                self.reporter.note(format!("producer: {error}"));
                self.connection = None;
            }
        }
    }

    /// A new message, because somebody asked for the work of another one once more.
    fn reissue(&mut self, trial: TrialId, of: u64) {
        let Some(numbered) = self.trials.get_mut(&trial) else { return };
        let (message, at) = (numbered.next, self.reporter.now());
        let tasks = self.tasks.as_ref().filter(|_| numbered.tracked);
        let queued = tasks.map_or(Ok(()), |tasks| tasks.queue(trial, message, at)).map_err(|error| error.to_string());
        match queued.and_then(|()| push(&mut self.connection, &self.target, numbered, trial, message)) {
            Ok(()) => {
                numbered.next += 1;
                self.reporter.event(at, trial, Kind::Reissued { message, of });
                self.reporter.event(at, trial, Kind::Published { message });
                self.reporter.event(self.reporter.now(), trial, Kind::Confirmed { message });
            }
            Err(error) => {
                self.reporter.note(format!("producer: {error}"));
                self.connection = None;
            }
        }
    }

    fn push_due(&mut self) {
        let now = self.reporter.now();
        while let Some(Reverse((due, trial))) = self.due.peek().copied().filter(|Reverse((due, _))| *due <= now) {
            self.due.pop();
            let is_due = |numbered: &Numbered| numbered.schedule.due() == due && numbered.routing.has(numbered.next);
            if !self.trials.get(&trial).is_some_and(is_due) {
                continue;
            }
            let published = self.publish_next(trial);
            if !published {
                thread::sleep(PAUSE);
            }
            let Some(numbered) = self.trials.get_mut(&trial) else { continue };
            if published {
                numbered.schedule.advance();
            } else {
                numbered.schedule.skip_missed(self.reporter.now());
            }
            if numbered.routing.has(numbered.next) {
                self.due.push(Reverse((numbered.schedule.due(), trial)));
            }
        }
    }

    /// Publishes the next message of a trial; whether that worked.
    fn publish_next(&mut self, trial: TrialId) -> bool {
        let Some(numbered) = self.trials.get_mut(&trial) else { return true };
        let message = numbered.next;
        let at = self.reporter.now();
        let tasks = self.tasks.as_ref().filter(|_| numbered.tracked);
        let queued = tasks.map_or(Ok(()), |tasks| tasks.queue(trial, message, at));
        let pushed = queued
            .map_err(|error| error.to_string())
            .and_then(|()| push(&mut self.connection, &self.target, numbered, trial, message));
        match pushed {
            Ok(()) => {
                self.reporter.event(at, trial, Kind::Published { message });
                self.reporter.event(self.reporter.now(), trial, Kind::Confirmed { message });
                numbered.next += 1;
                true
            }
            Err(error) => {
                self.reporter.note(format!("producer: {error}"));
                self.connection = None;
                false
            }
        }
    }
}

/// # Errors
/// In words, with the broker's address.
fn push(
    connection: &mut Option<Connection>,
    target: &Target,
    numbered: &Numbered,
    trial: TrialId,
    message: u64,
) -> Result<(), String> {
    let queue = numbered.queue.as_str();
    let due = numbered.first_due.filter(|_| message == 0);
    let job = numbered.routing.job_of(message);
    let body = message::redis(&numbered.form, trial, queue, message, due, job);
    // kombu's lists of a queue; what is no task of kombu's has one.
    let list = match (&numbered.form, job) {
        (Message::Celery(_), Some(job)) => kombu::list(queue, job.priority.into()),
        _ => queue.to_string(),
    };
    let mut pushed = || -> RedisResult<()> {
        let link = match connection {
            Some(link) => link,
            None => connection.insert(connect(target)?),
        };
        redis::cmd("LPUSH").arg(&list).arg(&body).query(link)
    };
    pushed().map_err(|error| format!("LPUSH to {}: {error}", target.server))
}

fn connect(target: &Target) -> RedisResult<Connection> {
    let info = ConnectionAddr::Tcp(target.server.ip().to_string(), target.server.port()).into_connection_info()?;
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client =
        Client::open(info.set_redis_settings(login(&target.user, &target.password).set_db(i64::from(target.db))))?;
    let connection = client.get_connection_with_timeout(LIMIT)?;
    connection.set_read_timeout(Some(LIMIT))?;
    connection.set_write_timeout(Some(LIMIT))?;
    Ok(connection)
}
