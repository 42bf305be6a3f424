//! From entries to facts: which transport they meet, what outranks what, and what nobody reads.

use super::address::Address;
use super::celery_names::Style;
use super::convert::convert;
use super::defaults;
use super::entry::{Domain, Entry, Reading};
use super::lints;
use super::literal::Literal;
use super::model::{
    Fact, Findings, Ignored, Lint, NotUnderstood, OptionName, Origin, Overridden, Place, Severity, Value,
};
use super::socket_options;
use super::transport::{Rule, Transport, is_secret};

/// What the caller knows beyond the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// The transport, where no source has a broker's address.
    pub transport: Option<Transport>,
    /// Whether Celery is known to make the connection: kombu then decides what reaches the client.
    pub celery: bool,
}

/// A fact with its standing: higher wins; among equals the later.
#[derive(Debug, Clone)]
struct Candidate {
    fact: Fact,
    /// 0 a library's default, 1 the connection's own setting, 2 the address' query, 3 `broker_transport_options`.
    level: u8,
    rank: u8,
    style: Style,
}

/// Work in progress.
pub(crate) struct Work {
    candidates: Vec<Candidate>,
    /// What becomes of the sources.
    pub(crate) out: Findings,
    /// The transport, where it is known and its rules are.
    pub(crate) transport: Option<Transport>,
    /// Whether Celery (and so kombu) makes the connection.
    pub(crate) kombu: bool,
    /// Whether this kombu pings Redis while it waits for a message: not before 5.7 (measured: Celery 5.5.3 with kombu
    /// 5.5.4 and an interval of 5 s noticed nothing in 300 s).
    pub(crate) pings_while_waiting: bool,
    /// Whether Airflow configures Celery.
    pub(crate) airflow: bool,
}

impl Work {
    /// A fact that somebody wrote, or a sentence about why its value is none.
    pub(crate) fn written(
        &mut self,
        option: OptionName,
        raw: &Literal,
        place: &Place,
        standing: (u8, u8, Style),
        note: Option<&str>,
    ) {
        // On Redis `socket_timeout` reaches `settimeout`; py-amqp's `read_timeout` becomes `SO_RCVTIMEO`.
        let settimeout = !(self.transport == Some(Transport::Pyamqp) && option == OptionName::ReadTimeout);
        match convert(&option, raw, settimeout) {
            Ok(value) => self.fact(option, value, Origin::Written, place, standing, note),
            Err(why) => self.lint(
                "wrong-value",
                Severity::Error,
                format!("`{}` {why}", last_key(&place.key)),
                place,
                format!("write {}", lints::example(&option)),
            ),
        }
    }

    pub(crate) fn fact(
        &mut self,
        option: OptionName,
        value: Value,
        origin: Origin,
        place: &Place,
        standing: (u8, u8, Style),
        note: Option<&str>,
    ) {
        let fact = Fact { option, value, origin, place: place.clone(), note: note.map(String::from) };
        self.candidates.push(Candidate { fact, level: standing.0, rank: standing.1, style: standing.2 });
    }

    pub(crate) fn lint(&mut self, code: &'static str, severity: Severity, text: String, place: &Place, mend: String) {
        self.out.lints.push(Lint { code, severity, text, place: place.clone(), mend });
    }

    pub(crate) fn ignored(&mut self, key: &str, raw: &Literal, place: &Place, why: String, meant: Option<String>) {
        let value = if is_secret(key) { "(not shown)".to_string() } else { raw.shown() };
        // A key that is no identifier might be anything; its place names it as far as it may be named.
        let key = super::literal::showable_key(key).unwrap_or("(a key)").to_string();
        self.out.ignored.push(Ignored { key, value, place: place.clone(), why, meant });
    }

    fn refuse(&mut self, place: &Place, why: impl Into<String>) {
        self.out.not_understood.push(NotUnderstood { place: place.clone(), why: why.into() });
    }
}

/// The last part of `broker_transport_options["socket_timeout"]` or `address ?socket_timeout=`.
pub(crate) fn last_key(key: &str) -> &str {
    key.split(['[', ']', '"', ' ', '?', '=']).rfind(|p| !p.is_empty()).unwrap_or(key)
}

/// Puts the sources together: the facts in effect, and everything that is not.
#[must_use]
pub fn interpret(readings: &[Reading], hints: &Hints) -> Findings {
    let entries: Vec<&Entry> = readings.iter().flat_map(|r| &r.entries).collect();
    let airflow = readings.iter().any(|r| {
        r.kind == super::model::SourceKind::AirflowCfg
            || r.entries
                .iter()
                .map(|e| &e.place)
                .chain(r.addresses.iter().map(|a| &a.1))
                .any(|p| p.key.starts_with("AIRFLOW__"))
    });
    let mut work = Work {
        candidates: Vec::new(),
        out: Findings::default(),
        transport: hints.transport,
        pings_while_waiting: true,
        kombu: hints.celery
            || airflow
            || entries.iter().any(|e| matches!(e.domain, Domain::Celery | Domain::Transport)),
        airflow,
    };
    let module = readings.iter().any(|r| r.kind == super::model::SourceKind::CeleryModule);
    for reading in readings {
        work.out.sources.push((reading.label.clone(), reading.kind));
        // The object that `celery_config_options` names is there once its module is.
        let named = |n: &NotUnderstood| module && n.place.key.to_ascii_lowercase().ends_with("celery_config_options");
        work.out.not_understood.extend(reading.not_understood.iter().filter(|n| !named(n)).cloned());
        for (key, raw, place, unknown) in &reading.unknown {
            work.ignored(key, raw, place, unknown.why.clone(), unknown.meant.clone());
        }
    }
    address(&mut work, readings, &entries, hints);
    versions(&mut work, readings);
    for entry in &entries {
        let standing = (1, entry.rank, entry.style);
        match entry.domain {
            Domain::Celery => celery(&mut work, entry, standing),
            Domain::Transport => transport_option(&mut work, entry),
            Domain::Airflow => airflow_option(&mut work, entry, standing),
            Domain::Rabbitmq => rabbitmq(&mut work, entry, standing),
            Domain::RedisServer => redis_server(&mut work, entry, standing),
            Domain::Sysctl => {
                work.written(OptionName::Sysctl(entry.key.clone()), &entry.value, &entry.place, standing, None)
            }
        }
    }
    socket_options::apply(&mut work, &entries);
    lints::mixed_spellings(&mut work, &entries);
    defaults::add(&mut work, &entries);
    resolve(&mut work);
    prefetch(&mut work);
    lints::check(&mut work);
    let mut out = work.out;
    out.lints.sort_by_key(|lint| std::cmp::Reverse(lint.severity));
    out
}

/// The lints alone, on facts from wherever (`--set`, a scenario's arm): the same rules, the worst first.
#[must_use]
pub fn lint_facts(facts: Vec<Fact>) -> Vec<Lint> {
    let out = Findings { facts, ..Findings::default() };
    let word = |option: &OptionName| out.get(option).map(|f| f.value.to_string());
    let transport = match word(&OptionName::BrokerKind).as_deref() {
        Some("rabbitmq") => Some(Transport::Pyamqp),
        Some("redis") => Some(Transport::Redis),
        _ => None,
    };
    let kombu = word(&OptionName::Client).as_deref() == Some("celery");
    let mut work = Work { candidates: Vec::new(), out, transport, kombu, pings_while_waiting: true, airflow: false };
    lints::check(&mut work);
    work.out.lints.sort_by_key(|lint| std::cmp::Reverse(lint.severity));
    work.out.lints
}

/// Every address that a source names for the broker, and what follows from the one that wins.
fn address(work: &mut Work, readings: &[Reading], entries: &[&Entry], hints: &Hints) {
    let mut found: Vec<(u8, u8, Address, Place)> = Vec::new();
    for entry in entries.iter().filter(|e| e.domain == Domain::Celery) {
        // `celery/app/utils.py`, Settings: the variables win over the settings, a read URL over the common one.
        let level = match entry.key.as_str() {
            "broker_url" => 1,
            "broker_read_url" => 2,
            _ => continue,
        };
        match entry.value.as_str().and_then(Address::parse) {
            Some(address) => found.push((level, entry.rank, address, entry.place.clone())),
            None if entry.value.is_none() => {}
            None => work.refuse(&entry.place, "not a broker address"),
        }
    }
    found.extend(readings.iter().flat_map(|r| &r.addresses).map(|(a, p, rank)| (1, *rank, a.clone(), p.clone())));
    // Stable: among equals the later wins.
    found.sort_by_key(|(level, rank, ..)| (*level, *rank));
    let Some((_, _, address, place)) = found.last().cloned() else {
        if let Some(entry) = entries.iter().find(|e| e.domain == Domain::Celery && e.key == "broker_transport")
            && hints.transport.is_none()
        {
            work.transport = match entry.value.as_str() {
                Some("amqp" | "pyamqp" | "amqps") => Some(Transport::Pyamqp),
                Some("redis" | "rediss" | "sentinel") => Some(Transport::Redis),
                _ => None,
            };
        }
        return stack_facts(work, None);
    };
    for (.., other, elsewhere) in &found[..found.len() - 1] {
        if other.shown() != address.shown() {
            work.refuse(elsewhere, format!("overridden: {place} names the broker that is used"));
        }
    }
    if address.ambiguous {
        work.refuse(&place, "an address with an unescaped `/`, `?`, `#`, `;` or `@` in its user or password; host and query are not read (escape them as %2F, %3F …)");
    }
    if address.alternates > 0 {
        work.refuse(&place, format!("{} more addresses behind `;`; the first is taken", address.alternates));
    }
    let kombu_name = address.kombu_transport().to_string();
    let of_kombu = match kombu_name.as_str() {
        "pyamqp" => Some(Transport::Pyamqp),
        "redis" => Some(Transport::Redis),
        _ => None,
    };
    work.transport = work.transport.or(of_kombu);
    work.kombu |= address.scheme.contains("pyamqp") || address.scheme.starts_with("sqla");
    let standing = (1, 0, Style::New);
    work.fact(OptionName::Address, Value::Word(address.shown()), Origin::Written, &place, standing, None);
    stack_facts(work, Some((&kombu_name, &place)));
    super::query::apply(work, &address, &place);
}

fn stack_facts(work: &mut Work, named: Option<(&str, &Place)>) {
    let hinted = Place { label: "hint".to_string(), line: None, key: "transport".to_string() };
    let (name, place) = match (named, work.transport) {
        (Some((name, place)), None) => (name.to_string(), place.clone()),
        (Some((_, place)), Some(transport)) => (transport.name().to_string(), place.clone()),
        (None, Some(transport)) => (transport.name().to_string(), hinted),
        (None, None) => return,
    };
    let standing = (1, 0, Style::New);
    let kind = match work.transport {
        Some(Transport::Pyamqp) => "rabbitmq",
        Some(Transport::Redis) => "redis",
        None => &name,
    };
    work.fact(OptionName::BrokerKind, Value::Word(kind.to_string()), Origin::Written, &place, standing, None);
    let client = match (work.kombu, work.transport) {
        (true, _) => Some("celery"),
        (false, Some(Transport::Redis)) => Some("redis-py"),
        _ => None,
    };
    if work.kombu {
        work.fact(OptionName::Transport, Value::Word(name.clone()), Origin::Written, &place, standing, None);
    }
    if let Some(client) = client {
        work.fact(OptionName::Client, Value::Word(client.to_string()), Origin::Written, &place, standing, None);
    }
}

fn versions(work: &mut Work, readings: &[Reading]) {
    for reading in readings {
        let kombu = reading.versions.iter().find(|(program, ..)| *program == "kombu");
        work.pings_while_waiting &= kombu.is_none_or(|(_, version, _)| !is_before_5_7(version));
        if let Some((.., place)) = reading.versions.first() {
            let all: Vec<String> =
                reading.versions.iter().map(|(program, version, _)| format!("{program} {version}")).collect();
            work.fact(
                OptionName::ClientVersion,
                Value::Word(all.join(", ")),
                Origin::Written,
                place,
                (1, 0, Style::New),
                None,
            );
        }
    }
}

fn is_before_5_7(version: &str) -> bool {
    let mut parts = version.split('.').map(|p| p.parse::<u32>().ok());
    matches!((parts.next().flatten(), parts.next().flatten()), (Some(major), Some(minor)) if (major, minor) < (5, 7))
}

fn celery(work: &mut Work, entry: &Entry, standing: (u8, u8, Style)) {
    let option = match entry.key.as_str() {
        "broker_connection_timeout" => OptionName::ConnectTimeout,
        "broker_heartbeat" => OptionName::Heartbeat,
        "broker_heartbeat_checkrate" => OptionName::HeartbeatCheckrate,
        "worker_prefetch_multiplier" => OptionName::PrefetchMultiplier,
        "worker_concurrency" => OptionName::Concurrency,
        "task_time_limit" => OptionName::TaskTimeLimit,
        "redis_socket_timeout" => OptionName::ResultsReadTimeout,
        "redis_socket_connect_timeout" => OptionName::ResultsConnectTimeout,
        "redis_socket_keepalive" => OptionName::ResultsKeepalive,
        "redis_backend_health_check_interval" => OptionName::ResultsHealthCheckInterval,
        "task_acks_late" => {
            match entry.value.flag() {
                Some(late) => {
                    let word = Value::Word(if late { "late" } else { "early" }.to_string());
                    work.fact(OptionName::Ack, word, Origin::Written, &entry.place, standing, None);
                }
                None => work.refuse(&entry.place, "neither on nor off"),
            }
            return;
        }
        _ => return,
    };
    if work.transport == Some(Transport::Redis) {
        // kombu/transport/redis.py, `_connparams`: neither `connect_timeout` nor `heartbeat` of the connection is used.
        let why = match option {
            OptionName::ConnectTimeout => Some((
                "the Redis transport does not apply it to its sockets; kombu only bounds a whole series of attempts with it",
                Some("broker_transport_options[\"socket_connect_timeout\"]"),
            )),
            OptionName::Heartbeat | OptionName::HeartbeatCheckrate => Some((
                "AMQP has heartbeats, the Redis transport has none and ignores it",
                Some("broker_transport_options[\"health_check_interval\"]"),
            )),
            _ => None,
        };
        if let Some((why, meant)) = why {
            return work.ignored(&entry.key, &entry.value, &entry.place, why.to_string(), meant.map(String::from));
        }
    }
    let note = match option {
        OptionName::ResultsReadTimeout | OptionName::ResultsConnectTimeout | OptionName::ResultsKeepalive => {
            Some("for the connections of the Redis result backend, not for the broker's")
        }
        OptionName::Heartbeat => {
            Some("what the client asks for; RabbitMQ's own value, if smaller and not 0, takes its place")
        }
        _ => None,
    };
    // The variables that Celery reads by itself are addresses; any other needs the project to map it.
    let variable = matches!(entry.rank, 1 | 2) && !entry.place.key.starts_with("AIRFLOW__");
    let note = if variable {
        Some("Celery itself does not read this variable; it counts only if the project maps it to the setting")
    } else {
        note
    };
    work.written(option, &entry.value, &entry.place, standing, note);
}

fn transport_option(work: &mut Work, entry: &Entry) {
    let Some(transport) = work.transport else {
        let known =
            work.candidates.iter().find(|c| c.fact.option == OptionName::Transport).map(|c| c.fact.value.to_string());
        let why = match known {
            Some(name) => format!("the options of the transport `{name}` are not known here"),
            None => "which transport reads it is not known: no source has the broker's address".to_string(),
        };
        return work.refuse(&entry.place, why);
    };
    match transport.rule(&entry.key) {
        Rule::Option(OptionName::HealthCheckInterval) if !work.pings_while_waiting => {
            let why = "kombu before 5.7 does not ping while it waits for a message".to_string();
            work.ignored(&entry.key, &entry.value, &entry.place, why, None);
        }
        Rule::Option(option) => {
            if matches!(&entry.value, Literal::Text(_)) && entry.value.number().is_some() {
                let text = format!(
                    "`{}` is a number in quotes; the client computes with it and raises TypeError when it connects",
                    entry.key
                );
                work.lint(
                    "number-as-text",
                    Severity::Error,
                    text,
                    &entry.place,
                    "write the number without quotes".to_string(),
                );
            }
            let note = match (&option, transport) {
                (OptionName::ReadTimeout, Transport::Pyamqp) => Some(
                    "becomes SO_RCVTIMEO: it bounds blocking reads, not the event loop's wait for the next message",
                ),
                (OptionName::ReadTimeout, Transport::Redis) => {
                    Some("applied with settimeout, which polls: no SO_RCVTIMEO is set")
                }
                _ => None,
            };
            work.written(option, &entry.value, &entry.place, (3, entry.rank, entry.style), note);
        }
        Rule::SocketOptions | Rule::Harmless => {}
        Rule::Ignored => {
            let (why, meant) = transport.why_ignored(&entry.key);
            work.ignored(&entry.key, &entry.value, &entry.place, why, meant);
        }
    }
}

fn airflow_option(work: &mut Work, entry: &Entry, standing: (u8, u8, Style)) {
    let option = match entry.key.as_str() {
        "scheduler.task_queued_timeout" => OptionName::QueuedTimeout,
        "scheduler.task_queued_timeout_check_interval" => OptionName::QueuedCheckInterval,
        "scheduler.task_instance_heartbeat_timeout" => OptionName::TaskHeartbeatTimeout,
        "scheduler.task_instance_heartbeat_timeout_detection_interval" => OptionName::TaskHeartbeatCheckInterval,
        _ => return,
    };
    let note = (option == OptionName::QueuedTimeout).then_some(
        "judges rows in state queued by the metadata database alone; running rows belong to task_heartbeat_timeout",
    );
    work.written(option, &entry.value, &entry.place, standing, note);
}

fn rabbitmq(work: &mut Work, entry: &Entry, standing: (u8, u8, Style)) {
    let option = match entry.key.as_str() {
        "heartbeat" => OptionName::BrokerHeartbeat,
        "consumer_timeout" => OptionName::ConsumerTimeout,
        "handshake_timeout" => OptionName::BrokerHandshakeTimeout,
        "tcp_listen_options.keepalive" => OptionName::BrokerKeepalive,
        _ => return,
    };
    let note = (option == OptionName::ConsumerTimeout).then_some("in milliseconds; checked every 60 s");
    work.written(option, &entry.value, &entry.place, standing, note);
}

fn redis_server(work: &mut Work, entry: &Entry, standing: (u8, u8, Style)) {
    let option = match entry.key.as_str() {
        "timeout" => OptionName::BrokerIdleTimeout,
        "tcp-keepalive" => OptionName::BrokerKeepaliveIdle,
        _ => return,
    };
    let note = (option == OptionName::BrokerIdleTimeout)
        .then_some("does not apply to subscribers, and a blocked BRPOP is not idle");
    work.written(option, &entry.value, &entry.place, standing, note);
}

/// One winner an option; written losers with another value are reported.
fn resolve(work: &mut Work) {
    let mut order: Vec<OptionName> = Vec::new();
    for candidate in &work.candidates {
        if !order.contains(&candidate.fact.option) {
            order.push(candidate.fact.option.clone());
        }
    }
    let candidates = std::mem::take(&mut work.candidates);
    for option in order {
        let mine: Vec<&Candidate> = candidates.iter().filter(|c| c.fact.option == option).collect();
        // max_by_key takes the last of equals. At equal rank Celery's new spelling wins over the old one.
        let Some(winner) = mine.iter().max_by_key(|c| (c.level, c.rank, c.style != Style::Old)) else { continue };
        for loser in mine
            .iter()
            .filter(|c| c.fact.origin == Origin::Written && c.fact != winner.fact && c.fact.value != winner.fact.value)
        {
            if loser.level == winner.level && (loser.style == Style::Old) != (winner.style == Style::Old) {
                lints::two_spellings(work, &loser.fact, &winner.fact);
            }
            work.out.overridden.push(Overridden {
                fact: loser.fact.clone(),
                by: winner.fact.place.clone(),
                value: winner.fact.value.clone(),
            });
        }
        work.out.facts.push(winner.fact.clone());
    }
}

/// `prefetch` = multiplier × concurrency (`celery/worker/consumer/consumer.py`), where both are known; multiplier 0 is
/// "no limit".
fn prefetch(work: &mut Work) {
    let count = |option: &OptionName| match work.out.get(option) {
        Some(fact) => match fact.value {
            Value::Count(n) => Some((n, fact.clone())),
            _ => None,
        },
        None => None,
    };
    if let (Some((multiplier, fact)), Some((concurrency, _))) =
        (count(&OptionName::PrefetchMultiplier), count(&OptionName::Concurrency))
        && multiplier > 0
        && let Some(product) = multiplier.checked_mul(concurrency)
    {
        let note = Some(format!("{multiplier} for each of {concurrency} processes"));
        work.out.facts.push(Fact { option: OptionName::Prefetch, value: Value::Count(product), note, ..fact });
    }
}
