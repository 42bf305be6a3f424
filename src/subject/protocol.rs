//! The lines between the engine and the processes that it starts: one JSON document a line, commands in, reports out.
//!
//! Five roles share it: the *subject* (consumers under test), the *producer* (numbered messages to the real brokers),
//! the *peer* (the far end of bare TCP subjects), the *reaper* (which cleans the task store up) and the *user* (who waits for
//! tasks). One process hosts one to thousands of connections.

use crate::clients::{Message, Program};
use crate::events::{Event, Tuple};
use crate::scenario::{
    BrokerKind, Delivery, Job, LivenessRule, LivenessStore, ReaperSettings, Settings, TaskHeartbeat, Trigger, User,
    job_of,
};
use crate::units::{Offset, TrialId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Where a connection goes and how it logs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The broker's address as this client knows it. The client's own address follows from the route to it.
    pub server: SocketAddrV4,
    /// RabbitMQ's virtual host.
    #[serde(default = "root_vhost")]
    pub vhost: String,
    /// The number of Redis' database.
    #[serde(default)]
    pub db: u32,
    /// Queue (RabbitMQ) or list (Redis) of this trial; unused by bare TCP.
    pub queue: String,
    /// Whether that queue, and the messages in it, outlive the broker.
    #[serde(default)]
    pub durable: bool,
    /// Login; empty for none.
    pub user: String,
    /// Password; empty for none. Never written to a run directory.
    pub password: String,
    /// The authority's certificate by which the broker's is checked, where the connection is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The name by which the client looks the broker's address up, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Target {
    /// The server's address, by its name where it has one: for as long as the system's resolver takes.
    ///
    /// # Errors
    /// The resolver's.
    pub fn look_up(&self) -> io::Result<SocketAddrV4> {
        let Some(name) = &self.name else { return Ok(self.server) };
        let found = (name.as_str(), self.server.port()).to_socket_addrs()?;
        let v4 = |address| match address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        };
        found.into_iter().find_map(v4).ok_or_else(|| io::Error::other("the name has no address"))
    }
}

fn root_vhost() -> String {
    "/".to_string()
}

/// Messages for a program of somebody else's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What each of them is.
    pub message: Message,
    /// Whether the producer declares the queue (durable); if not it waits until the client has.
    pub declare: bool,
    /// When the first one is due, where it has an ETA.
    pub first_due: Option<Offset>,
}

/// What kinds of work a trial's messages stand for, and how they get to their consumers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Routing {
    /// The kinds of work, in turns; none: all are alike.
    pub jobs: Vec<Job>,
    /// The arm's options.
    pub delivery: Delivery,
    /// How many messages there are; `None` is without end.
    pub count: Option<u64>,
}

impl Routing {
    /// The job of a message; `None` where there are none.
    #[must_use]
    pub fn job_of(&self, message: u64) -> Option<&Job> {
        job_of(&self.jobs, message)
    }

    /// Whether there is a message of this number.
    #[must_use]
    pub fn has(&self, message: u64) -> bool {
        self.count.is_none_or(|count| message < count)
    }

    /// Whether a consumer has to say which queue a message came out of.
    #[must_use]
    pub fn has_routes(&self) -> bool {
        self.delivery.routes_at_all(&self.jobs)
    }
}

/// How a worker gives signs of life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beats {
    /// How often, for how long, and to whom; `None` where the reaper does not go by them.
    #[serde(default)]
    pub rule: Option<LivenessRule>,
    /// The Redis, as this client reaches it; unused where the signs are in the task store.
    pub target: Target,
    /// How far the worker's own clock is ahead, in milliseconds.
    #[serde(default)]
    pub ahead_ms: i64,
    /// From how long after the first sign of life on.
    #[serde(default)]
    pub steps_after: Duration,
    /// The watcher of running rows, whose heartbeats it writes for each of its tasks.
    #[serde(default)]
    pub running: Option<TaskHeartbeat>,
}

/// What a sweep goes by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sweeps {
    /// What is too old, and how often to look.
    pub settings: ReaperSettings,
    /// Where the workers' keys are, where they are in Redis: a URL with the run's password.
    #[serde(default)]
    pub redis: Option<String>,
    /// The trials whose workers give their signs of life elsewhere than the rule says.
    #[serde(default)]
    pub elsewhere: Vec<(TrialId, LivenessStore)>,
}

/// Which of a trial's workers it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Worker {
    /// Its name; empty for the trial's own.
    pub name: String,
    /// The number of its first connection.
    pub first_attempt: u32,
}

/// Engine to child.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Command {
    /// Subject: open a connection, consume, report, reconnect after each notice until closed.
    Open {
        /// The trial.
        trial: TrialId,
        /// Where to.
        target: Target,
        /// The arm's options.
        settings: Box<Settings>,
        /// Interval of a bare TCP writer's messages, and of the messages that a bare TCP reader asks its peer for.
        #[serde(default)]
        load_interval: Option<Duration>,
        /// The program to start, for a subject that is one of somebody else's.
        #[serde(default)]
        program: Option<Box<Program>>,
        /// The kinds of work.
        #[serde(default)]
        jobs: Vec<Job>,
        /// How its worker gives signs of life, where a reaper goes by them.
        #[serde(default)]
        beats: Option<Box<Beats>>,
        /// The name of its worker, and the number of its first connection: a worker that is started again goes on counting.
        #[serde(default)]
        worker: Worker,
        /// The task store as this client reaches it, where that is another way than its process's.
        #[serde(default)]
        store: Option<String>,
        /// Its messages are sweeps, each of which it carries out by this.
        #[serde(default)]
        sweeps: Option<Box<Sweeps>>,
    },
    /// Subject: say which options the kernel has for a connection of this trial's program.
    Inspect {
        /// The trial.
        trial: TrialId,
        /// The number of the connection among the trial's.
        attempt: u32,
        /// The connection.
        tuple: Tuple,
    },
    /// Subject: a bare TCP writer whose peer does not read may begin to fill the peer's window.
    Fill {
        /// The trial.
        trial: TrialId,
    },
    /// Subject: the trial's worker stops at this point of the next task that it begins, says so and waits.
    HaltAt {
        /// The trial.
        trial: TrialId,
        /// The point.
        point: Trigger,
        /// From then on.
        from: Offset,
    },
    /// Subject: the trial's worker goes on.
    GoOn {
        /// The trial.
        trial: TrialId,
    },
    /// Subject: make the synchronous call of the arm now.
    Call {
        /// The trial.
        trial: TrialId,
    },
    /// Producer: declare the trial's queue and publish a numbered message each interval until closed.
    Publish {
        /// The trial.
        trial: TrialId,
        /// RabbitMQ or Redis.
        broker: BrokerKind,
        /// Where to.
        target: Target,
        /// Time between two messages.
        interval: Duration,
        /// What the messages are, where they are more than their numbers.
        #[serde(default)]
        task: Option<Task>,
        /// The kinds of work, and where they go.
        #[serde(default)]
        routing: Box<Routing>,
        /// Whether a second, healthy consumer is to be on the queue.
        #[serde(default)]
        second_consumer: bool,
        /// When it begins; `None` is at once.
        #[serde(default)]
        second_from: Option<Offset>,
        /// Its messages are no tasks: nothing of them is written down.
        #[serde(default)]
        untracked: bool,
    },
    /// Producer: publish a new message now, because a user asked for the work of this one once more.
    Reissue {
        /// The trial.
        trial: TrialId,
        /// The predecessor.
        of: u64,
    },
    /// User: wait for tasks from now on.
    Attend {
        /// How.
        user: User,
    },
    /// User: wait for this message's task, which was published at `at`.
    Await {
        /// The trial.
        trial: TrialId,
        /// The message.
        message: u64,
        /// When it was published.
        at: Offset,
        /// The message whose work it was asked for once more.
        #[serde(default)]
        of: Option<u64>,
    },
    /// Producer: publish this message once more, now.
    Republish {
        /// The trial.
        trial: TrialId,
        /// The message.
        message: u64,
    },
    /// Reaper, or a subject whose worker has one inside: sweep the task store from now on.
    Reap {
        /// By what.
        #[serde(flatten)]
        sweeps: Sweeps,
        /// From now to the first sweep.
        first: Duration,
        /// The tasks of this trial alone.
        #[serde(default)]
        only: Option<TrialId>,
    },
    /// Any: end this trial's connection without a further report and without reconnecting.
    Close {
        /// The trial.
        trial: TrialId,
    },
    /// Any: end all connections, say [`Report::Bye`], exit 0. End of input means the same.
    Quit,
}

/// Child to engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// First line: the process is up and takes commands.
    Hello {
        /// Names and versions of the client libraries inside.
        versions: BTreeMap<String, String>,
    },
    /// Something happened.
    Event {
        /// What.
        event: Event,
    },
    /// Last line: orderly end.
    Bye,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Kind, Source, Tuple};
    use crate::scenario::{Keepalive, PatienceFrom, ReaperGeneration, SubjectKind, TableClock, TaskStoreKind};
    use crate::units::{Offset, Setting};

    fn again<T: Serialize + for<'de> Deserialize<'de>>(value: &T) -> T {
        let line = serde_json::to_string(value).unwrap();
        assert!(!line.contains('\n'), "{line}");
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn commands_survive_the_line() {
        let server = "10.128.128.1:5672".parse().unwrap();
        let target = Target {
            server,
            vhost: "/".into(),
            db: 0,
            queue: "q".into(),
            durable: true,
            user: "u\n".into(),
            password: "p".into(),
            ca_file: Some("/run/ca.pem".into()),
            name: Some("broker-1.halfopen.test".into()),
        };
        let settings = Settings {
            subject: SubjectKind::Lapin,
            connect_timeout: Setting::After(Duration::from_millis(1500)),
            read_timeout: Setting::None,
            keepalive: Some(Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 9 }),
            tcp_user_timeout: Setting::None,
            heartbeat: Some(Setting::None),
            prefetch: Some(4),
            work: None,
            ack: None,
            frame_max: None,
            peer_reads: false,
            tls: true,
            ping: None,
            link: None,
            heartbeat_thread: None,
            sync_call: None,
            worker_id: None,
            begins: None,
            effects: None,
            sysctl: [("tcp_retries2".to_string(), 5)].into(),
            client: serde_json::Map::new(),
            command: None,
            delivery: crate::scenario::Delivery::default(),
        };
        let load_interval = Some(Duration::from_micros(333_333));
        for command in [
            Command::Open {
                trial: 1,
                target: target.clone(),
                settings: Box::new(settings),
                load_interval,
                program: None,
                jobs: vec![Job { priority: 3, ..Job::default() }],
                beats: Some(Box::new(Beats {
                    rule: Some(LivenessRule {
                        store: LivenessStore::Redis,
                        period: Duration::from_secs(30),
                        ttl: Duration::from_secs(90),
                        processing: Duration::from_secs(1200),
                        grace: Duration::ZERO,
                        clock: TableClock::Worker,
                    }),
                    target: target.clone(),
                    ahead_ms: -300_000,
                    steps_after: Duration::from_secs(6),
                    running: Some(TaskHeartbeat::default()),
                })),
                store: Some("postgres:/x".to_string()),
                sweeps: Some(Box::new(Sweeps {
                    settings: ReaperSettings::queued(Duration::from_secs(5), Duration::from_secs(1)),
                    redis: Some("redis://u:p@h".to_string()),
                    elsewhere: vec![(7, LivenessStore::Table)],
                })),
                worker: Worker { name: "w-2".into(), first_attempt: 3 },
            },
            Command::Publish {
                trial: 2,
                broker: BrokerKind::Redis,
                target,
                interval: Duration::from_secs(1),
                task: Some(Task { message: Message::Celery("t".into()), declare: true, first_due: Some(Offset(7)) }),
                routing: Box::default(),
                second_consumer: true,
                second_from: Some(Offset(8)),
                untracked: true,
            },
            Command::Inspect { trial: 5, attempt: 2, tuple: Tuple { local: server, peer: server } },
            Command::Fill { trial: 4 },
            Command::Republish { trial: 5, message: 6 },
            Command::Reissue { trial: 5, of: 6 },
            Command::Attend {
                user: User {
                    poll: Duration::from_secs(5),
                    reissue_after: None,
                    from: PatienceFrom::PendingSince,
                    reopens: Some(Duration::from_secs(60)),
                    reissues: 1,
                },
            },
            Command::Await { trial: 5, message: 6, at: Offset(7), of: Some(3) },
            Command::Reap {
                sweeps: Sweeps {
                    settings: ReaperSettings {
                        generation: ReaperGeneration::RequeuesTwice,
                        store: TaskStoreKind::Postgres,
                        reapers: 2,
                        ..ReaperSettings::queued(Duration::from_secs(1200), Duration::from_millis(1500))
                    },
                    redis: None,
                    elsewhere: vec![(1, LivenessStore::None)],
                },
                first: Duration::from_micros(1),
                only: Some(4),
            },
            Command::HaltAt { trial: 5, point: Trigger::AfterEffect, from: Offset(8) },
            Command::GoOn { trial: 5 },
            Command::Call { trial: 5 },
            Command::Close { trial: 3 },
            Command::Quit,
        ] {
            assert_eq!(again(&command), command);
        }
    }

    #[test]
    fn asking_for_no_heartbeat_is_not_the_same_as_not_asking() {
        assert_ne!(again(&Some(Setting::None)), None::<Setting>);
    }

    #[test]
    fn reports_survive_the_line() {
        let tuple = Tuple { local: "10.64.128.1:40000".parse().unwrap(), peer: "10.128.128.1:5672".parse().unwrap() };
        let kind = Kind::Connected { attempt: 2, tuple };
        let event = Event::of_trial(Offset(-5), Source::Subject, 7, kind);
        let note = Event::of_run(Offset(6), Source::Peer, Kind::Note { text: "two\nlines".into() });
        for report in [
            Report::Hello { versions: [("lapin".to_string(), "4.12.3".to_string())].into() },
            Report::Event { event },
            Report::Event { event: note },
            Report::Bye,
        ] {
            assert_eq!(again(&report), report);
        }
    }
}
