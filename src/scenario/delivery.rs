//! How an arm's messages get to their consumers, and what becomes of those that fail: `[[job]]` and the options of an arm
//! that go with it.

use super::error::Findings;
use super::keys::{Key, Kind, Limits};
use super::matrix::{OptionName, applies};
use super::model::{Arm, SubjectKind};
use super::routing::Match;
use super::settings::Options;
use super::table::{DAY, ms, optional, required, secs};
use super::value::Val;
use super::walk::Fields;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A kind of work that messages stand for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// The task's name, words between dots: what routes go by.
    pub name: String,
    /// How many messages in a row are of it, before the next job has its turn.
    pub count: u32,
    /// How long the work takes; `None` is the arm's.
    pub work: Option<Duration>,
    /// The message's priority.
    pub priority: u8,
    /// How the message's body is written.
    pub format: Format,
    /// The queue that is named at the call.
    pub queue: Option<String>,
    /// How often the work on it fails before it succeeds.
    pub fails: u32,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            name: "halfopen.effect".into(),
            count: 1,
            work: None,
            priority: 0,
            format: Format::Json,
            queue: None,
            fails: 0,
        }
    }
}

/// How a message's body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSON.
    #[default]
    Json,
    /// Python's pickle, which every consumer here refuses: reading it can run any code.
    Pickle,
}

/// The job of a message: jobs take turns, each for as many messages as its `count`; `None` where there are no jobs.
#[must_use]
pub fn job_of(jobs: &[Job], message: u64) -> Option<&Job> {
    let round: u64 = jobs.iter().map(|job| u64::from(job.count)).sum();
    let mut place = message.checked_rem(round)?;
    jobs.iter().find(|job| {
        let own = place < u64::from(job.count);
        place = place.saturating_sub(u64::from(job.count));
        own
    })
}

/// The kind of an exchange that messages are published to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// The broker's nameless one: the publisher names the queue, by the patterns of its router.
    #[default]
    None,
    /// Routing key and binding key are the same.
    Direct,
    /// Binding keys are patterns of words.
    Topic,
    /// Every queue that is bound.
    Fanout,
    /// By headers.
    Headers,
}

/// Between two attempts to connect, where no back-off is written: from the start of one that connected, from the end of one
/// that failed.
///
/// Constant, because a growing back-off would be measured as part of every time to recover.
pub const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Waiting between tries: `base`, doubled with each, at most `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Before the first retry.
    pub base: Duration,
    /// The longest; `None` grows on.
    pub cap: Option<Duration>,
    /// Full jitter: anything between nothing and the whole of it.
    pub jitter: bool,
    /// How often; `None` is without end.
    pub tries: Option<u32>,
}

impl Backoff {
    /// How long to wait before retry number `retry`, the first of which is 0. `draw` is a number from 0 to 1.
    ///
    /// Sources: `get_exponential_backoff_interval` in `celery/utils/time.py` (which draws whole seconds), and M. Brooker,
    /// "Exponential Backoff And Jitter", 2015, for full jitter.
    #[must_use]
    pub fn delay(&self, retry: u32, draw: f64) -> Duration {
        let grown = self.base.checked_mul(2u32.checked_pow(retry).unwrap_or(u32::MAX)).unwrap_or(DAY);
        let whole = grown.min(self.cap.unwrap_or(DAY));
        if self.jitter { whole.mul_f64(draw.clamp(0.0, 1.0)) } else { whole }
    }
}

/// The options of an arm that say how its messages get to their consumers; the default is what a scenario without them has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// What messages are published to.
    pub exchange: Exchange,
    /// Pattern and queue, in the order of the file.
    pub routes: Vec<(String, String)>,
    /// Consumers on the connection, each with a prefetch of its own; `None` is one a queue.
    pub consumers: Option<u32>,
    /// `x-max-priority` of the queues.
    pub max_priority: Option<u8>,
    /// Whether the queues are quorum queues (`x-queue-type`), which are durable.
    pub quorum: bool,
    /// Whether what consumers reject goes to a queue of its own (`x-dead-letter-exchange`), which somebody counts.
    pub dead_letters: bool,
    /// kombu's `visibility_timeout`.
    pub visibility_timeout: Option<Duration>,
    /// Waiting between attempts to connect; `None` is a constant second.
    pub reconnect: Option<Backoff>,
    /// Waiting before a task that failed is published again; `None`: it is rejected at once.
    pub retry: Option<Backoff>,
}

impl Delivery {
    /// Whether nothing was asked for.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// A pause between tries.
const PAUSE: Kind = Kind::Time(Limits { min: ms(1), max: DAY, step: ms(1), usual: (ms(1), DAY) });

/// The fields of `reconnect`.
pub(super) const BACKOFF: &[Key] = &[
    optional(
        "base",
        PAUSE,
        "`1s`",
        "base = \"1s\"",
        "Before the second try; each further one waits twice as long.",
        &["initial", "factor"],
    ),
    optional("cap", PAUSE, "none: it grows on", "cap = \"8s\"", "The longest.", &["max", "maximum"]),
    optional(
        "jitter",
        Kind::Choice(&["none", "full"]),
        "`none`",
        "jitter = \"full\"",
        "`full`: anything between nothing and the whole of it, drawn for each try.",
        &["retry_jitter"],
    ),
    optional(
        "tries",
        Kind::Integer { min: 1, max: 1_000 },
        "without end",
        "tries = 5",
        "How often it is tried again; then a task is rejected. Of `retry` alone.",
        &["max_retries", "retries"],
    ),
];

/// The keys of `[[job]]`.
pub(super) const JOB: &[Key] = &[
    required("name", Kind::Name, "name = \"mail.send\"", "The task's name, words between dots: what routes go by."),
    optional(
        "count",
        Kind::Integer { min: 1, max: 100_000 },
        "`1`",
        "count = 9",
        "How many messages in a row are of it, before the next job has its turn.",
        &["share", "weight"],
    ),
    optional("work", PAUSE, "the arm's", "work = \"4s\"", "How long the work takes.", &["duration"]),
    optional(
        "priority",
        Kind::Integer { min: 0, max: 255 },
        "`0`",
        "priority = 9",
        "The message's priority. On RabbitMQ the highest goes first, in a queue with `max_priority`; on Redis kombu has four \
         lists (0, 3, 6, 9), of which the first goes first.",
        &["prio"],
    ),
    optional(
        "format",
        Kind::Choice(&["json", "pickle"]),
        "`json`",
        "format = \"pickle\"",
        "How the body is written. Pickle is refused by every consumer: reading it can run any code.",
        &["serializer", "content_type"],
    ),
    optional(
        "queue",
        Kind::Name,
        "the routes decide",
        "queue = \"vip\"",
        "The queue that is named at the call, past every route.",
        &["to"],
    ),
    optional(
        "fails",
        Kind::Integer { min: 0, max: 1_000 },
        "`0`",
        "fails = 2",
        "How often the work on it fails, at its end, before it succeeds. What is done about it is the arm's `retry`.",
        &["failures"],
    ),
];

/// The options of an arm.
pub(super) const EXCHANGE: Key = optional(
    "exchange",
    Kind::Choice(&["none", "direct", "topic", "fanout", "headers"]),
    "`none`",
    "exchange = \"topic\"",
    "What messages are published to. `none`: the broker's nameless exchange, and the publisher names the queue by `routes`, as \
     Celery's router does. Else the queues of `routes` are bound to an exchange of this kind, and what it routes nowhere goes \
     to the trial's own queue (an alternate exchange).",
    &["exchange_type"],
);
pub(super) const ROUTES: Key = optional(
    "routes",
    Kind::Native,
    "none: one queue for all",
    "routes = { \"feed.*\" = \"feeds\" }",
    "Pattern and queue. `none`: patterns of task names, the first that matches wins; `direct`: a name; `topic`: a binding key \
     (`feed.#`); `fanout`: anything; `headers`: `kind=feed`, several with commas, `any: …` where one is enough (`task` is the \
     name, `kind` its first word).",
    &["task_routes", "bindings"],
);
pub(super) const CONSUMERS: Key = optional(
    "consumers",
    Kind::Integer { min: 1, max: 64 },
    "one for each queue",
    "consumers = 2",
    "Consumers on the connection, each with a channel and a prefetch of its own, spread over the queues in turn.",
    &["workers", "concurrency"],
);
pub(super) const MAX_PRIORITY: Key = optional(
    "max_priority",
    Kind::Integer { min: 1, max: 255 },
    "none: first in, first out",
    "max_priority = 10",
    "`x-max-priority` of the queues: priority queues.",
    &["x_max_priority", "queue_max_priority"],
);
pub(super) const QUEUE_TYPE: Key = optional(
    "queue_type",
    Kind::Choice(&["classic", "quorum"]),
    "`classic`",
    "queue_type = \"quorum\"",
    "`x-queue-type` of the queues. Quorum queues are durable, and each lives on the one node that the run has.",
    &["x_queue_type", "default_queue_type"],
);
pub(super) const DEAD_LETTERS: Key = optional(
    "dead_letters",
    Kind::Flag,
    "`false`: it is gone",
    "dead_letters = true",
    "Whether what consumers reject goes to a dead-letter queue (`x-dead-letter-exchange`), where it is counted.",
    &["dlx", "dead_letter"],
);
pub(super) const VISIBILITY: Key = optional(
    "visibility_timeout",
    Kind::Time(Limits { min: secs(1), max: DAY, step: ms(1), usual: (secs(1), DAY) }),
    "`1h`, with `ack`",
    "visibility_timeout = \"1h\"",
    "kombu's: what a `redis-blocking` subject with `ack` has taken and not acknowledged for so long is given out again.",
    &[],
);
pub(super) const RECONNECT: Key = optional(
    "reconnect",
    Kind::OffOr(BACKOFF),
    "`off`: a constant second",
    "reconnect = { base = \"1s\", cap = \"8s\", jitter = \"full\" }",
    "The waiting between two attempts to connect, which starts again once one succeeds.",
    &["backoff", "reconnect_delay"],
);
pub(super) const RETRY: Key = optional(
    "retry",
    Kind::OffOr(BACKOFF),
    "`off`: it is rejected",
    "retry = { base = \"1s\", cap = \"8s\", jitter = \"full\", tries = 5 }",
    "A task that failed waits in its worker, unacknowledged, is published once more and then acknowledged.",
    &["retries", "autoretry"],
);

/// One `[[job]]`; `None` where it is wrong, which has been said.
pub(super) fn job(fields: &Fields) -> Option<Job> {
    let usual = Job::default();
    let int = |key: &str| fields.int(key).and_then(|n| u32::try_from(n).ok());
    Some(Job {
        name: fields.text("name")?.to_string(),
        count: int("count").unwrap_or(usual.count),
        work: fields.time("work"),
        priority: int("priority").and_then(|n| u8::try_from(n).ok()).unwrap_or(0),
        format: if fields.text("format") == Some("pickle") { Format::Pickle } else { Format::Json },
        queue: fields.text("queue").map(str::to_string),
        fails: int("fails").unwrap_or(0),
    })
}

/// The options of an arm, those of the defaults under its own.
pub(super) fn read(options: Options<'_>, subject: SubjectKind) -> Delivery {
    let source = |key: &str, option| options.source(key).filter(|_| applies(subject, option).is_yes());
    let int = |key: &str, option| source(key, option).and_then(|f| f.int(key)).and_then(|n| u32::try_from(n).ok());
    Delivery {
        exchange: match source("exchange", OptionName::Exchange).and_then(|f| f.text("exchange")) {
            Some("direct") => Exchange::Direct,
            Some("topic") => Exchange::Topic,
            Some("fanout") => Exchange::Fanout,
            Some("headers") => Exchange::Headers,
            _ => Exchange::None,
        },
        routes: source("routes", OptionName::Routes).map(routes).unwrap_or_default(),
        consumers: int("consumers", OptionName::Consumers),
        max_priority: int("max_priority", OptionName::MaxPriority).and_then(|n| u8::try_from(n).ok()),
        quorum: source("queue_type", OptionName::QueueType).and_then(|f| f.text("queue_type")) == Some("quorum"),
        dead_letters: source("dead_letters", OptionName::DeadLetters)
            .and_then(|f| f.flag("dead_letters"))
            .unwrap_or(false),
        visibility_timeout: source("visibility_timeout", OptionName::VisibilityTimeout)
            .and_then(|f| f.time("visibility_timeout")),
        reconnect: source("reconnect", OptionName::Reconnect).and_then(|f| backoff(f, "reconnect")),
        retry: source("retry", OptionName::Retry).and_then(|f| backoff(f, "retry")),
    }
}

/// What is written as text; what is not is an error by [`check`].
fn routes(fields: &Fields) -> Vec<(String, String)> {
    let Some(Val::Native(table)) = fields.get("routes").map(|found| &found.val) else { return Vec::new() };
    table.iter().filter_map(|(pattern, queue)| Some((pattern.clone(), queue.as_str()?.to_string()))).collect()
}

fn backoff(fields: &Fields, key: &str) -> Option<Backoff> {
    let Some(Val::Fields(inner)) = fields.get(key).map(|found| &found.val) else { return None };
    Some(Backoff {
        base: inner.time("base").unwrap_or(secs(1)),
        cap: inner.time("cap"),
        jitter: inner.text("jitter") == Some("full"),
        tries: inner.int("tries").and_then(|n| u32::try_from(n).ok()),
    })
}

/// Who can be handed jobs at all.
fn takes_jobs(arm: &Arm) -> bool {
    let subject = arm.settings.subject;
    subject == SubjectKind::Lapin
        || subject.is_celery()
        || (subject == SubjectKind::RedisBlocking && arm.settings.ack.is_some())
}

/// What only shows when they are seen together.
pub(super) fn check(
    jobs: &[(&Fields, Job)],
    arms: &[(Options<'_>, &Arm)],
    load: bool,
    reaper: bool,
    findings: &mut Findings,
) {
    for (fields, job) in jobs {
        if !load {
            let problem = "there are no messages that could be of it; write `[load]` with `rate = \"1/s\"`";
            findings.error(fields.at, fields.label.trim_end(), problem);
        }
        for (_, arm) in arms.iter().filter(|(_, arm)| arm.load) {
            let (name, subject) = (&arm.name, arm.settings.subject);
            let own = subject == SubjectKind::Lapin || subject == SubjectKind::RedisBlocking;
            let mut say = |key: &str, why: &str| {
                let at = if key.is_empty() { fields.at } else { fields.at(key) };
                findings.error(at, fields.name(key), format!("arm `{name}`: {why}"));
            };
            if !takes_jobs(arm) {
                say(
                    "name",
                    "jobs are for `lapin`, Celery, and `redis-blocking` with `ack`; write `load = \"off\"` there",
                );
            } else if job.queue.is_some() && subject != SubjectKind::Lapin {
                say("queue", "its subject has one queue alone; several are for `lapin`");
            } else if job.fails > 0 && subject != SubjectKind::Lapin {
                say("fails", "a failing task is for `lapin`");
            } else if job.fails > 0 && reaper {
                say("fails", "the task store of `[reaper]` knows no second try; remove one of the two");
            } else if job.work.is_some() && !own {
                say("work", "a client of somebody else's works as its own tasks do");
            }
        }
    }
    for (options, arm) in arms {
        let delivery = &arm.settings.delivery;
        let source = |key: &str| options.source(key).unwrap_or(options.own);
        let mut say = |key: &str, problem: String| findings.error(source(key).at(key), source(key).name(key), problem);
        if let Some(Val::Native(table)) = source("routes").get("routes").map(|found| &found.val) {
            for (pattern, queue) in table {
                if queue.as_str().is_none_or(str::is_empty) {
                    say("routes", format!("`{pattern}`: the queue is a text; write `\"{pattern}\" = \"name\"`"));
                } else if delivery.exchange == Exchange::Headers && Match::parse(pattern).is_none() {
                    say(
                        "routes",
                        format!("`{pattern}` names no header; write `kind=feed`, or `any: kind=feed, kind=mail`"),
                    );
                }
            }
            if !table.is_empty() && jobs.is_empty() {
                say(
                    "routes",
                    "go by the names of jobs, and there are none; write `[[job]]` with `name = \"mail.send\"`".into(),
                );
            }
        }
        if delivery.exchange != Exchange::None && delivery.routes.is_empty() {
            say("exchange", "nothing is bound to it; write `routes = { \"feed.#\" = \"feeds\" }`".into());
        }
        if delivery.quorum && delivery.max_priority.is_some() {
            say("queue_type", "a quorum queue has no `max_priority`; remove one of the two".into());
        }
        if delivery.visibility_timeout.is_some() && arm.settings.ack.is_none() {
            say("visibility_timeout", "nothing is ever unacknowledged without `ack`; write `ack = \"late\"`".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_its_cap() {
        let plain = Backoff { base: secs(1), cap: None, jitter: false, tries: None };
        assert_eq!((0..5).map(|n| plain.delay(n, 0.5).as_secs()).collect::<Vec<_>>(), [1, 2, 4, 8, 16]);
        let capped = Backoff { cap: Some(secs(6)), ..plain };
        assert_eq!((0..5).map(|n| capped.delay(n, 0.5).as_secs()).collect::<Vec<_>>(), [1, 2, 4, 6, 6]);
        assert_eq!(capped.delay(4_000, 0.0), secs(6));
        let jitter = Backoff { jitter: true, ..capped };
        assert_eq!(jitter.delay(1, 0.0), Duration::ZERO);
        assert_eq!(jitter.delay(1, 0.25), ms(500));
        assert_eq!(jitter.delay(9, 1.0), secs(6));
    }

    #[test]
    fn jobs_take_turns() {
        let job = |name: &str, count| Job { name: name.into(), count, ..Job::default() };
        let jobs = [job("short", 3), job("long", 1)];
        let names: Vec<&str> = (0..6).filter_map(|n| job_of(&jobs, n)).map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["short", "short", "short", "long", "short", "short"]);
        assert_eq!(job_of(&[], 3), None);
    }
}
