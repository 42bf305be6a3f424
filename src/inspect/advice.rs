//! The setting that would close a gap, in the client's own language, what it would then be, and what it costs. Pure.
//!
//! Each proposal is tried in the same model before it is made: one that would not bring the gap below five minutes is not
//! made. What is left out: settings of brokers and schedulers, which `predict` knows.

use super::client::Protocol;
use super::facts::{Facts, Heartbeat, ReadDeadline};
use super::judge::{Answer, Class, Judge, Knowledge};
use super::render::told;
use crate::timers::Subject;
use serde::Serialize;

/// A gap that is longer is worth a setting.
const GAP_S: f64 = 300.0;

/// One proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The class that it closes.
    pub closes: Class,
    /// The setting, as the client takes it.
    pub setting: String,
    /// Who would notice then.
    pub then: String,
    /// What it costs.
    pub cost: String,
}

/// What can be changed on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Heartbeat,
    Keepalive,
    UserTimeout,
    ReadTimeout,
    Retries,
}

const HEARTBEAT_S: u32 = 30;
const READ_TIMEOUT_MS: u64 = 60_000;
const USER_TIMEOUT_MS: u32 = 60_000;
/// Idle, interval, probes.
const KEEPALIVE: (u32, u32, u32) = (60, 10, 6);
const RETRIES: u32 = 8;

/// Proposals for a connection, one for each gap that a setting closes.
pub fn advice(facts: &Facts, answers: &[Answer], judge: &mut Judge) -> Vec<Advice> {
    let mut all: Vec<Advice> = Vec::new();
    for class in [Class::Idle, Class::InFlight, Class::FromPeer, Class::Frozen] {
        let gap = answers.iter().find(|a| a.class == class && a.knowledge != Knowledge::Unknown);
        if gap.is_none_or(|a| a.hi_s.is_some_and(|hi| hi <= GAP_S)) {
            continue;
        }
        let proposal = changes(facts, class).into_iter().find_map(|change| {
            let facts = changed(facts, change, judge);
            let then = judge.answers(&facts).iter().find(|a| a.class == class).cloned()?;
            then.hi_s.is_some_and(|hi| hi <= GAP_S).then_some((change, then))
        });
        let Some((change, then)) = proposal else { continue };
        let Some((setting, cost)) = words(facts, change) else { continue };
        if all.iter().all(|known| known.setting != setting) {
            all.push(Advice { closes: class, setting, then: told(Some(&then)), cost });
        }
    }
    all
}

/// What may help, the gentlest first.
fn changes(facts: &Facts, class: Class) -> Vec<Change> {
    // py-amqp's pools have none whatever is configured, and from outside they look like a consumer that has it off.
    let ticks = |client| !matches!(client, Subject::PyAmqp | Subject::Celery);
    let amqp = facts.protocol == Protocol::Amqp && facts.client.is_some_and(ticks);
    let off = matches!(facts.heartbeat, Heartbeat::Known(0));
    let mut list = Vec::new();
    if amqp && off && class != Class::InFlight {
        list.push(Change::Heartbeat);
    }
    match class {
        Class::Idle | Class::ToPeer | Class::FromPeer => list.extend([Change::Keepalive, Change::ReadTimeout]),
        Class::InFlight => list.extend([Change::UserTimeout, Change::Retries]),
        Class::Frozen => list.push(Change::ReadTimeout),
    }
    list
}

fn changed(facts: &Facts, change: Change, judge: &mut Judge) -> Facts {
    let mut new = facts.clone();
    match change {
        Change::Heartbeat => new.heartbeat = Heartbeat::Known(HEARTBEAT_S),
        Change::Keepalive => {
            if let Some(options) = &mut new.options {
                options.keepalive = true;
                (options.keepalive_idle_s, options.keepalive_interval_s, options.keepalive_probes) = KEEPALIVE;
            }
        }
        Change::UserTimeout => {
            if let Some(options) = &mut new.options {
                options.user_timeout_ms = USER_TIMEOUT_MS;
            }
        }
        Change::ReadTimeout => {
            // Python's clients poll with it; a plain socket takes it as an option.
            let polls = facts.options.is_some_and(|o| o.nonblocking) || facts.protocol == Protocol::Redis;
            if polls && facts.client.is_none() {
                new.client = Some(Subject::RedisPy);
            }
            new.read =
                if polls { ReadDeadline::Poll(READ_TIMEOUT_MS) } else { ReadDeadline::Blocking(READ_TIMEOUT_MS) };
        }
        Change::Retries => new.namespace = judge.with_retries(facts.namespace, RETRIES),
    }
    new
}

/// Setting and cost, in the client's own language; `None` where that client has no such setting.
fn words(facts: &Facts, change: Change) -> Option<(String, String)> {
    let (idle, interval, probes) = KEEPALIVE;
    let read_s = READ_TIMEOUT_MS / 1000;
    let outage = idle + interval * probes;
    let keepalive_cost = format!(
        "one small packet a minute on an idle connection; an outage of more than {outage} s ends it, and a middlebox that \
         forgets within {idle} s still does"
    );
    let setting = match (facts.client, facts.protocol, change) {
        (Some(Subject::Pika), _, Change::Heartbeat) => format!("pika.ConnectionParameters(heartbeat={HEARTBEAT_S})"),
        (Some(_), _, Change::Heartbeat) => format!("?heartbeat={HEARTBEAT_S} in the connection's URL"),
        (Some(Subject::Celery), Protocol::Redis, Change::Keepalive) => format!(
            "broker_transport_options = {{'socket_keepalive': True, 'socket_keepalive_options': {{socket.TCP_KEEPIDLE: {idle}, \
             socket.TCP_KEEPINTVL: {interval}, socket.TCP_KEEPCNT: {probes}}}}}"
        ),
        (Some(Subject::Celery), Protocol::Redis, Change::ReadTimeout) => format!(
            "broker_transport_options = {{'socket_timeout': {read_s}}} (Airflow: \
             AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__SOCKET_TIMEOUT={read_s})"
        ),
        (Some(Subject::Celery), Protocol::Amqp, Change::ReadTimeout) => format!(
            "broker_transport_options = {{'read_timeout': {read_s}}} (Airflow: \
             AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__READ_TIMEOUT={read_s}); socket_timeout does nothing on AMQP"
        ),
        (Some(Subject::Celery | Subject::PyAmqp), Protocol::Amqp, Change::Keepalive | Change::UserTimeout) => format!(
            "broker_transport_options = {{'socket_settings': {{'TCP_KEEPIDLE': {idle}, 'TCP_KEEPINTVL': {interval}, \
             'TCP_KEEPCNT': {probes}, 'TCP_USER_TIMEOUT': {USER_TIMEOUT_MS}}}}}"
        ),
        (Some(Subject::Pika), _, Change::Keepalive) => format!(
            "pika.ConnectionParameters(tcp_options={{'TCP_KEEPIDLE': {idle}, 'TCP_KEEPINTVL': {interval}, 'TCP_KEEPCNT': {probes}}})"
        ),
        (Some(Subject::Pika), _, Change::UserTimeout) => {
            format!("pika.ConnectionParameters(tcp_options={{'TCP_USER_TIMEOUT': {USER_TIMEOUT_MS}}})")
        }
        (_, Protocol::Redis, Change::Keepalive) => format!(
            "redis.Redis(socket_keepalive=True, socket_keepalive_options={{socket.TCP_KEEPIDLE: {idle}, \
             socket.TCP_KEEPINTVL: {interval}, socket.TCP_KEEPCNT: {probes}}})"
        ),
        (_, Protocol::Redis, Change::ReadTimeout) => {
            format!("redis.Redis(socket_timeout={read_s}), and BRPOP with a timeout below it")
        }
        (_, _, Change::Retries) => format!("sysctl net.ipv4.tcp_retries2={RETRIES}"),
        (None, _, Change::Keepalive) => format!(
            "SO_KEEPALIVE on, TCP_KEEPIDLE {idle}, TCP_KEEPINTVL {interval}, TCP_KEEPCNT {probes} (sysctls alone turn nothing on)"
        ),
        (None, _, Change::UserTimeout) => format!("TCP_USER_TIMEOUT {USER_TIMEOUT_MS} (ms)"),
        (None, _, Change::ReadTimeout) => format!("a read deadline of {read_s} s (SO_RCVTIMEO, or settimeout)"),
        _ => return None,
    };
    let cost = match change {
        Change::Heartbeat => format!(
            "two small frames every {HEARTBEAT_S} s; an outage, or a thread that is busy, for more than {} s ends the connection",
            2 * HEARTBEAT_S
        ),
        Change::Keepalive => keepalive_cost,
        Change::UserTimeout => {
            format!("an outage of more than {} s ends a connection with data in flight", USER_TIMEOUT_MS / 1000)
        }
        Change::ReadTimeout => format!(
            "an answer that rightly takes more than {read_s} s ends the connection: longer than the longest quiet"
        ),
        Change::Retries => {
            "an outage of more than about 100 s ends every connection of this network namespace that sends".to_string()
        }
    };
    Some((setting, cost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::facts::BrokerSide;
    use crate::inspect::{Namespace, Options};
    use crate::timers::Reaper;

    fn facts(client: Option<Subject>, protocol: Protocol, heartbeat: Heartbeat, read: ReadDeadline) -> Facts {
        Facts {
            namespace: 0,
            protocol,
            client,
            heartbeat,
            options: Some(Options {
                nonblocking: false,
                rcvtimeo_ms: 0,
                sndtimeo_ms: 0,
                keepalive: false,
                keepalive_idle_s: 7200,
                keepalive_interval_s: 75,
                keepalive_probes: 9,
                user_timeout_ms: 0,
                syn_count: 6,
                rto_max_ms: None,
            }),
            keepalive_runs: None,
            read,
            in_call: false,
            window_closed: false,
            broker: BrokerSide::default(),
            srtt_us: 1000,
            rto_us: 204_000,
        }
    }

    fn advise(facts: &Facts) -> Vec<Advice> {
        let namespace = Namespace { id: 1, sysctls: std::collections::BTreeMap::new() };
        let mut judge = Judge::new(Some(250), "6.18", &[namespace], Reaper::default(), None);
        let answers = judge.answers(facts);
        advice(facts, &answers, &mut judge)
    }

    #[test]
    fn each_gap_gets_a_setting_of_the_clients_own_that_closes_it() {
        let redis = advise(&facts(None, Protocol::Redis, Heartbeat::NotSpoken, ReadDeadline::None));
        let closes: Vec<Class> = redis.iter().map(|a| a.closes).collect();
        assert_eq!(closes, [Class::Idle, Class::InFlight, Class::Frozen]);
        assert!(redis[0].setting.contains("socket_keepalive=True"), "{}", redis[0].setting);
        assert!(redis[1].setting.contains("tcp_retries2=8") || redis[1].setting.contains("TCP_USER_TIMEOUT"));
        assert!(redis[2].setting.contains("socket_timeout=60"));
        assert!(redis.iter().all(|a| !a.cost.is_empty() && a.then.contains(" s")));
    }

    #[test]
    fn a_heartbeat_comes_before_socket_options_where_it_is_off() {
        let pika = advise(&facts(Some(Subject::Pika), Protocol::Amqp, Heartbeat::Known(0), ReadDeadline::Unseen));
        assert_eq!(pika[0].setting, "pika.ConnectionParameters(heartbeat=30)");
    }

    #[test]
    fn a_pool_of_celerys_is_not_told_to_turn_on_a_heartbeat_that_it_never_takes() {
        let pool = advise(&facts(Some(Subject::Celery), Protocol::Amqp, Heartbeat::Known(0), ReadDeadline::Unseen));
        assert!(pool.iter().all(|advice| !advice.setting.contains("heartbeat")), "{pool:?}");
    }

    #[test]
    fn what_is_covered_gets_none() {
        let mut covered = facts(Some(Subject::Pika), Protocol::Amqp, Heartbeat::Known(10), ReadDeadline::Unseen);
        if let Some(options) = &mut covered.options {
            options.user_timeout_ms = 30_000;
        }
        assert_eq!(advise(&covered), []);
    }
}
