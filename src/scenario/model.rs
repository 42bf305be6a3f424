//! A scenario after reading: every default filled in, every unit resolved.

use super::aftermath::{LivenessStore, ReaperSettings, User};
use super::command::{CommandLine, ReadyWhen};
use super::delivery::{Delivery, Job, job_of};
use super::fault::Fault;
use super::link::Link;
pub use super::subject_kind::{BrokerKind, SubjectKind};
use super::worker::{Begins, Effects, WorkerId};
use crate::units::Setting;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// `SO_KEEPALIVE` with its three numbers, whole seconds as the kernel takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keepalive {
    /// `TCP_KEEPIDLE`.
    pub idle: Duration,
    /// `TCP_KEEPINTVL`.
    pub interval: Duration,
    /// `TCP_KEEPCNT`.
    pub probes: u32,
}

/// When a message is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// On receipt: a crash loses the task.
    Early,
    /// After the work: a crash repeats it.
    Late,
}

/// Which thread of a blocking client sends its AMQP heartbeats and checks the broker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeartbeatThread {
    /// One of its own, which runs whatever the consuming thread waits for.
    Own,
    /// The one that consumes: it looks when a message or a method has arrived, and at no other time.
    Same,
}

/// A call of the protocol that blocks its caller until the reply comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncCall {
    /// `basic.qos`, as Celery makes it for a task with an ETA.
    #[serde(rename = "basic.qos")]
    BasicQos,
}

/// The options of an arm. An option that the subject doesn't have is `None` here and an error in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Who consumes.
    pub subject: SubjectKind,
    /// The client's own bound on the handshake (TCP, and protocol where the client has one).
    pub connect_timeout: Setting,
    /// `SO_RCVTIMEO` on a blocking socket.
    pub read_timeout: Setting,
    /// Keepalive; `None` is off.
    pub keepalive: Option<Keepalive>,
    /// `TCP_USER_TIMEOUT`.
    pub tcp_user_timeout: Setting,
    /// AMQP heartbeat to ask for; `None` where the subject has no heartbeat; `Some(Setting::None)` asks for 0.
    pub heartbeat: Option<Setting>,
    /// Prefetch (`basic.qos`), where the subject has one.
    pub prefetch: Option<u16>,
    /// Acknowledgement, where the subject has one.
    pub ack: Option<Ack>,
    /// How long the work on a message takes, as asked; [`Self::work`] has what it is when nobody asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Duration>,
    /// AMQP `frame_max` to ask for, in bytes, where the subject has one.
    pub frame_max: Option<u32>,
    /// Whether the embedded peer reads what a bare TCP writer sends. If not, the writer fills the peer's window before
    /// the cut, and every later byte waits behind a closed one.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub peer_reads: bool,
    /// Whether the connections are encrypted.
    #[serde(default, skip_serializing_if = "is_no")]
    pub tls: bool,
    /// What the path between the arm's clients and the broker does to packets all the time; `None` is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Which thread ticks the AMQP heartbeat, where the subject has a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_thread: Option<HeartbeatThread>,
    /// The synchronous call that is in flight from the cut on; none: the client waits for messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_call: Option<SyncCall>,
    /// The client sends a PING this often, and nothing in between; `None`: it waits for messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<Duration>,
    /// Under which name a worker comes back that was killed; `None` where the subject has no say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Which tasks the worker begins; `None`: only pending ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<Begins>,
    /// How the worker makes a task's effect at an external provider; `None`: the end of the work is the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<Effects>,
    /// Sysctls of the subject's own network namespace, by name without the `net.ipv4.` prefix
    /// (`tcp_retries2`), as `sysctl.tcp_retries2 = 5`.
    pub sysctl: BTreeMap<String, i64>,
    /// Options in the client's own words, for a subject that is a program of somebody else's. They go to it as they stand.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub client: Map<String, Value>,
    /// The command line, where the subject is one of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Box<CommandLine>>,
    /// How messages get to their consumers, and what becomes of those that fail.
    #[serde(default, skip_serializing_if = "Delivery::is_plain")]
    pub delivery: Delivery,
}

impl Settings {
    /// Whether the messages must flow before the subject can be called ready.
    #[must_use]
    pub fn is_ready_by_message(&self) -> bool {
        self.command.as_ref().is_some_and(|command| command.ready == ReadyWhen::Message)
    }
}

/// The work on a message from RabbitMQ when nobody asks for another: long enough to tell the delivery from its
/// acknowledgement, short beside every timer.
const WORK: Duration = Duration::from_millis(50);

impl Settings {
    /// What bounds each read of a blocking client on a connection that stands. `SO_RCVTIMEO`; but py-amqp behind TLS keeps its
    /// connect timeout on the socket for that, and `SO_RCVTIMEO` does nothing there (docs/timers.md).
    #[must_use]
    pub fn read_bound(&self) -> Setting {
        if self.tls && self.subject == SubjectKind::AmqpBlocking { self.connect_timeout } else { self.read_timeout }
    }

    /// kombu's on Redis, where it is set: as an option of the harness's own, or as Celery is told it.
    #[must_use]
    pub fn visibility_timeout(&self) -> Option<Duration> {
        let told = self.client.get("broker_transport_options").and_then(|options| options.get("visibility_timeout"));
        let told = told.and_then(Value::as_f64).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        self.delivery.visibility_timeout.or(told)
    }

    /// The TCP port at which this client finds its broker.
    #[must_use]
    pub fn port(&self) -> u16 {
        let broker = self.subject.broker();
        if self.tls { broker.tls_port() } else { broker.port() }
    }

    /// How long the work on a message takes. A `BRPOP` has nothing to acknowledge afterwards, so there it takes no time
    /// unless asked.
    #[must_use]
    pub fn work(&self) -> Duration {
        let usual = if self.subject.broker() == BrokerKind::Rabbitmq { WORK } else { Duration::ZERO };
        self.work.unwrap_or(usual)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_no(value: &bool) -> bool {
    !*value
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// One arm of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name in reports.
    pub name: String,
    /// Its options.
    pub settings: Settings,
    /// Trials of this arm for each fault.
    pub trials: u32,
    /// Whether the scenario's messages flow on its connections.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub load: bool,
    /// Where its workers give their signs of life, where that is not the reaper's choice for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness: Option<LivenessStore>,
    /// How far its workers' clocks are ahead, in milliseconds; behind where negative.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_ahead_ms: i64,
    /// How long after its worker's first sign of life the clock steps by that; 0 where it is wrong from the beginning.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub clock_steps_after: Duration,
}

/// What a gate looks at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// A quantile (0 to 1) of a numeric column; a censored trial counts as beyond every bound.
    Quantile(f64),
    /// The share of trials with this value in a text column, 0 to 1.
    Fraction(String),
    /// The number of trials with this value in a text column, or with any value in a numeric one.
    Count(Option<String>),
    /// The mean of a time that is counted from the cut or the queue, cut off at the horizon: who was not detected counts
    /// with the horizon.
    Mean,
    /// Events an hour of healthy connection under watch.
    Rate,
    /// The share of trials, of those in which a message waited, that were detected before a reaper had dealt with it.
    BeforeReaper,
    /// The p-value of the Kolmogorov–Smirnov test of a numeric column against a uniform distribution between two values
    /// in the column's unit; a censored trial counts as beyond both.
    Uniform {
        /// From here…
        from: f64,
        /// … to here.
        to: f64,
    },
}

/// What a gate compares with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// Another arm of the same run.
    Arm(String),
    /// The same arm in a stored run.
    Baseline,
}

/// How much worse than a reference a gate allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoWorse {
    /// Than whom.
    pub than: Reference,
    /// The smallest difference that matters, in the column's unit, or as a share of the reference's value.
    pub margin: f64,
    /// Whether it is such a share.
    #[serde(default)]
    pub relative: bool,
}

/// A bound that the run must hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// The arm it looks at; `None` is all.
    pub arm: Option<String>,
    /// The fault that it looks at, by name; `None` is all.
    pub fault: Option<String>,
    /// A column of `trials.csv`.
    pub metric: String,
    /// What is taken of it.
    pub measure: Measure,
    /// At least this, in the column's unit.
    pub min: Option<f64>,
    /// At most this, in the column's unit.
    pub max: Option<f64>,
    /// How sure the verdict must be, as a one-sided level above a half; `None` judges the sample as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// What it must not be worse than; with it there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_worse: Option<NoWorse>,
}

impl Gate {
    /// A gate without bounds, to be given some.
    #[must_use]
    pub fn new(metric: &str, measure: Measure) -> Self {
        Self {
            arm: None,
            fault: None,
            metric: metric.to_string(),
            measure,
            min: None,
            max: None,
            confidence: None,
            no_worse: None,
        }
    }
}

/// Options of the broker itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BrokerSettings {
    /// The kinds that the arms need, each once, in order.
    pub kinds: Vec<BrokerKind>,
    /// Container images of the one broker, for the docker lab: each makes a run of its own. Without, the lab's own image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image: Vec<String>,
    /// RabbitMQ's own `heartbeat`; `None` leaves its default (60 s).
    pub heartbeat: Option<Setting>,
    /// RabbitMQ's `consumer_timeout`; `None` leaves its default.
    pub consumer_timeout: Option<Duration>,
}

/// Tasks over a long time, few of which meet a half-open connection. A trial is one of those few.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tasks {
    /// All of them.
    pub count: u64,
    /// The time over which they are spread evenly.
    pub over: Duration,
    /// The share whose connection dies as they are handed over, above 0 and at most 1.
    pub half_open: f64,
}

/// A distribution of stuck durations from elsewhere, to stand beside the one of this run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Its mean.
    pub mean: Duration,
    /// Its median.
    pub median: Duration,
    /// The range that a share is known of: from here…
    pub from: Duration,
    /// … to here.
    pub to: Duration,
    /// The share that lies in it, at least.
    pub share: f64,
}

/// A whole scenario file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Its name; also the folder of its run.
    pub name: String,
    /// The question that it answers: the file's header comment.
    pub question: String,
    /// How long each trial is watched after its cut.
    pub horizon: Duration,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// The most trials at once; `None` is all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// Whether CI runs it.
    pub ci: bool,
    /// Quiet time between "consuming" and the earliest cut.
    pub settle: Duration,
    /// The broker.
    pub broker: BrokerSettings,
    /// The arms, at least one.
    pub arms: Vec<Arm>,
    /// The faults, at least one; a control has the profile `none`.
    pub faults: Vec<Fault>,
    /// Interval between numbered messages on each connection; `None` is no load.
    pub load_interval: Option<Duration>,
    /// How many messages each connection has; `None` is without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_count: Option<u64>,
    /// The kinds of work that the messages stand for, in turns; none: they are all alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Job>,
    /// The first message is a task that is due this long after the cut, and in the worker's hands before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Duration>,
    /// Whether a second, healthy consumer of the harness's own is on each queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second_consumer: bool,
    /// RabbitMQ's queues and messages outlive it.
    #[serde(default, skip_serializing_if = "super::worker::is_false")]
    pub durable: bool,
    /// The fallback that cleans up afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaper: Option<ReaperSettings>,
    /// Who waits for the tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// Many tasks, of which the trials are those that meet the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Tasks>,
    /// Stuck durations from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// The gates.
    pub gates: Vec<Gate>,
    /// What looks like a mistake in the file without being an error, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Scenario {
    /// The job of a message; `None` where there are none.
    #[must_use]
    pub fn job_of(&self, message: u64) -> Option<&Job> {
        job_of(&self.jobs, message)
    }

    /// The reaper, where the messages of this arm are its sweeps.
    #[must_use]
    pub fn sweeps_of(&self, arm: &Arm) -> Option<&ReaperSettings> {
        self.reaper.as_ref().filter(|reaper| reaper.runs_in.as_deref() == Some(arm.name.as_str()))
    }

    /// The interval between numbered messages on the connections of an arm; `None` for no messages.
    #[must_use]
    pub fn load_of(&self, arm: &Arm) -> Option<Duration> {
        if let Some(reaper) = self.sweeps_of(arm) {
            return Some(reaper.interval);
        }
        self.load_interval.filter(|_| arm.load && arm.settings.peer_reads)
    }
}
