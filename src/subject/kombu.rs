//! What kombu keeps in Redis of messages that are not acknowledged, so that a Celery worker and ours can share a queue.
//!
//! A message that was popped goes into the hash `unacked` under its delivery tag, with the time of the delivery in the sorted
//! set `unacked_index`; acknowledging takes it out of both. Whoever sweeps gives back what has been there for longer than
//! the visibility timeout, under the lock `unacked_mutex`. Source: `kombu/transport/redis.py` (`QoS.append`, `ack`,
//! `restore_visible`, `restore_by_tag`, `Channel._do_restore_message`, `_q_for_pri`). What is left out: its exchanges, of
//! which a message here never goes to one with a name, and what its pub/sub carries.

use super::attempts::Trial;
use super::message::number_of;
use super::protocol::Target;
use super::redis_client::login;
use redis::{Client, Cmd, Connection, ConnectionAddr, IntoConnectionInfo, RedisResult};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const UNACKED: &str = "unacked";
const INDEX: &str = "unacked_index";
const MUTEX: &str = "unacked_mutex";
/// `unacked_mutex_expire`, in milliseconds.
const MUTEX_MS: u64 = 300_000;
/// `visibility_timeout` of a Celery that nobody configured.
const VISIBILITY: Duration = Duration::from_secs(3_600);
/// Every tenth of its calls does it, and it is called every 10 s.
const SWEEP: Duration = Duration::from_secs(100);
/// How long a reply to the sweeper may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The lists of a queue, the first in line first (`PRIORITY_STEPS`).
const STEPS: [u8; 4] = [0, 3, 6, 9];

/// The list of a queue for a priority: the highest step that is not above it.
pub(super) fn list(queue: &str, priority: u64) -> String {
    match STEPS.iter().rev().find(|step| u64::from(**step) <= priority) {
        None | Some(0) => queue.to_string(),
        Some(step) => format!("{queue}\u{6}\u{16}{step}"),
    }
}

/// All lists of a queue, in the order in which they are asked.
pub(super) fn lists(queue: &str) -> [String; 4] {
    STEPS.map(|step| list(queue, step.into()))
}

/// A message as it stands in a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Envelope {
    raw: Value,
    /// Its name among the unacknowledged.
    pub tag: String,
    /// Its number within the trial.
    pub message: u64,
    /// It was delivered before.
    pub redelivered: bool,
    /// Its body is written in something else than JSON.
    pub refused: bool,
}

impl Envelope {
    /// Takes it apart; `None` where it is no message of a trial's.
    pub fn parse(text: &str) -> Option<Self> {
        let raw: Value = serde_json::from_str(text).ok()?;
        let word = |value: &Value| value.as_str().map(str::to_string);
        let properties = raw.get("properties")?;
        let tag = word(properties.get("delivery_tag")?)?;
        let id = word(raw.get("headers")?.get("id")?)?;
        let args = raw["headers"]["argsrepr"].as_str().unwrap_or_default();
        // One that a Celery has published has a name of Celery's own.
        let message = number_of(&id).or_else(|| args.trim_start_matches('(').split(',').next()?.parse().ok())?;
        let redelivered = raw["headers"]["redelivered"].as_bool().unwrap_or(false);
        let refused = raw.get("content-type").and_then(Value::as_str) != Some("application/json");
        Some(Self { tag, message, redelivered, refused, raw })
    }

    fn delivery_info(&self, key: &str) -> &str {
        self.raw["properties"]["delivery_info"][key].as_str().unwrap_or_default()
    }

    /// What lies in the hash.
    fn kept(&self) -> String {
        json!([self.raw, self.delivery_info("exchange"), self.delivery_info("routing_key")]).to_string()
    }

    /// Writes down that it was delivered. `now_s` is the wall clock, by which every worker goes.
    pub fn keep(&self, link: &mut Connection, now_s: f64) -> RedisResult<()> {
        together(
            link,
            &[
                redis::cmd("ZADD").arg(INDEX).arg(now_s).arg(&self.tag),
                redis::cmd("HSET").arg(UNACKED).arg(&self.tag).arg(self.kept()),
            ],
        )
        .map(drop)
    }

    /// Acknowledges it, or takes it away for good.
    pub fn ack(&self, link: &mut Connection) -> RedisResult<()> {
        together(link, &[redis::cmd("ZREM").arg(INDEX).arg(&self.tag), redis::cmd("HDEL").arg(UNACKED).arg(&self.tag)])
            .map(drop)
    }
}

/// A transaction, one command after the other; false where a watched key was changed meanwhile.
///
/// Not as a pipeline: after a read timeout the library reads on, once for each reply that it still expects, so that a dead
/// connection would be noticed after several timeouts.
fn together(link: &mut Connection, commands: &[&Cmd]) -> RedisResult<bool> {
    redis::cmd("MULTI").query::<()>(link)?;
    for command in commands {
        command.query::<()>(link)?;
    }
    let done: Option<Vec<redis::Value>> = redis::cmd("EXEC").query(link)?;
    Ok(done.is_some())
}

/// What goes back into a list of `[message, exchange, routing key]`, and into which; `None` where it is none.
fn restored(kept: &str) -> Option<(String, String)> {
    let [mut message, exchange, key] = serde_json::from_str::<[Value; 3]>(kept).ok()?;
    message["headers"]["redelivered"] = true.into();
    message["properties"]["delivery_info"]["redelivered"] = true.into();
    let priority = message["properties"]["priority"].as_u64().unwrap_or(0);
    // Celery's own exchange is named after its queue and bound by it.
    let queue = key.as_str().filter(|key| !key.is_empty()).or(exchange.as_str())?;
    Some((list(queue, priority), message.to_string()))
}

/// Starts the sweeper of a trial's database, over a connection of its own; it ends with the trial.
pub(super) fn sweep(trial: Arc<Trial>) -> io::Result<()> {
    let named = thread::Builder::new().name(format!("sweep-{}", trial.id));
    named.spawn(move || sweep_until_it_ends(&trial)).map(drop)
}

fn sweep_until_it_ends(trial: &Trial) {
    let rule = Visibility::of(trial.settings.delivery.visibility_timeout);
    let token = format!("halfopen-{}", trial.id);
    let mut link = None;
    while !trial.stop.wait(rule.every) {
        let ceiling = trial.wall_s() - rule.timeout.as_secs_f64();
        let looked = match &mut link {
            Some(link) => look(link, &token, ceiling),
            None => connect(&trial.target).and_then(|opened| look(link.insert(opened), &token, ceiling)),
        };
        if let Err(error) = looked {
            link = None;
            trial
                .reporter
                .note(format!("trial {}: what is not acknowledged could not be looked at: {error}", trial.id));
        }
    }
}

/// What is given out again, and how often it is looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visibility {
    /// What was delivered longer ago and is not acknowledged.
    pub timeout: Duration,
    /// Between two looks.
    pub every: Duration,
}

impl Visibility {
    /// By the setting, or as a Celery has it that nobody configured.
    pub fn of(setting: Option<Duration>) -> Self {
        let timeout = setting.unwrap_or(VISIBILITY);
        Self { timeout, every: SWEEP.min(timeout / 10) }
    }
}

/// Gives back all that was delivered before `ceiling` and is not acknowledged; nothing while somebody else is at it. `token`
/// says who looks.
pub(super) fn look(connection: &mut Connection, token: &str, ceiling: f64) -> RedisResult<()> {
    let mut lock = redis::cmd("SET");
    let taken: Option<String> = lock.arg(MUTEX).arg(token).arg("NX").arg("PX").arg(MUTEX_MS).query(connection)?;
    if taken.is_none() {
        return Ok(());
    }
    let result = give_back(connection, ceiling);
    // As redis-py's lock is released: by its owner alone.
    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    let released: RedisResult<i64> = redis::cmd("EVAL").arg(RELEASE).arg(1).arg(MUTEX).arg(token).query(connection);
    result.and(released.map(drop))
}

fn give_back(link: &mut Connection, ceiling: f64) -> RedisResult<()> {
    let old: Vec<String> = redis::cmd("ZREVRANGEBYSCORE").arg(INDEX).arg(ceiling).arg(0).query(link)?;
    for tag in old {
        redis::cmd("WATCH").arg(UNACKED).query::<()>(link)?;
        let kept: Option<String> = redis::cmd("HGET").arg(UNACKED).arg(&tag).query(link)?;
        let (mut first, mut second) = (redis::cmd("ZREM"), redis::cmd("HDEL"));
        first.arg(INDEX).arg(&tag);
        second.arg(UNACKED).arg(&tag);
        // Nothing where somebody changed the hash meanwhile; the next sweep sees it again.
        match kept.as_deref().and_then(restored) {
            // The end that is popped: it is next.
            Some((list, message)) => {
                together(link, &[&first, &second, redis::cmd("RPUSH").arg(list).arg(message)])?;
            }
            None => _ = together(link, &[&first, &second])?,
        }
    }
    Ok(())
}

/// A connection to the server on which nothing is waited for longer than [`LIMIT`].
pub(super) fn connect(target: &Target) -> RedisResult<Connection> {
    let info = ConnectionAddr::Tcp(target.server.ip().to_string(), target.server.port()).into_connection_info()?;
    let login = login(&target.user, &target.password).set_db(i64::from(target.db));
    let connection = Client::open(info.set_redis_settings(login))?.get_connection_with_timeout(LIMIT)?;
    connection.set_read_timeout(Some(LIMIT))?;
    connection.set_write_timeout(Some(LIMIT))?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::super::message;
    use super::*;
    use crate::clients::Message;
    use crate::scenario::{Format, Job};

    #[test]
    fn priorities_have_four_lists() {
        assert_eq!(lists("q"), ["q", "q\u{6}\u{16}3", "q\u{6}\u{16}6", "q\u{6}\u{16}9"]);
        assert_eq!([0, 1, 3, 5, 9, 255].map(|p| list("q", p).len()), [1, 1, 4, 4, 4, 4]);
    }

    #[test]
    fn what_is_given_back_says_so_and_goes_where_it_came_from() {
        let job = Job { priority: 7, ..Job::default() };
        let text = message::redis(&Message::Celery("t".into()), 3, "q", 9, None, Some(&job));
        let envelope = Envelope::parse(&text).unwrap();
        assert_eq!((envelope.message, envelope.redelivered, envelope.refused), (9, false, false));
        let (list, again) = restored(&envelope.kept()).unwrap();
        assert_eq!(list, "q\u{6}\u{16}6");
        let again = Envelope::parse(&again).unwrap();
        assert!(again.redelivered && again.tag == envelope.tag && again.message == 9);
        assert_eq!(restored("no json"), None);
    }

    #[test]
    fn a_pickle_is_known_by_its_content_type_alone() {
        let job = Job { format: Format::Pickle, ..Job::default() };
        let text = message::redis(&Message::Celery("t".into()), 3, "q", 9, None, Some(&job));
        let envelope = Envelope::parse(&text).unwrap();
        assert!(envelope.refused && envelope.message == 9);
        assert_eq!(Envelope::parse("9"), None);
    }

    #[test]
    fn a_celery_of_its_own_names_its_messages_otherwise() {
        let text = r#"{"headers": {"id": "7b1c", "argsrepr": "(12,)"}, "properties": {"delivery_tag": "x"},
            "content-type": "application/json"}"#;
        assert_eq!(Envelope::parse(text).map(|e| e.message), Some(12));
    }
}
