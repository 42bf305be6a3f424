//! Findings that follow from the settings alone. Each says what is wrong, where, and the mend.

use super::celery_names::Style;
use super::convert::{Unit, unit};
use super::interpret::{Work, last_key};
use super::model::{Fact, OptionName, Origin, Severity, Value};
use super::transport::Transport;
use crate::units::print_duration;
use std::time::Duration;

/// Idle limits of common middleboxes, in seconds: a connection silent for longer is forgotten, and what comes next is
/// dropped or reset. (Vendors' documentation: Azure load balancer 4 min, AWS network load balancer 350 s, Google Cloud VPC
/// firewall 10 min.)
pub const MIDDLEBOXES: [(&str, u64); 3] =
    [("Azure load balancer", 240), ("AWS network load balancer", 350), ("Google Cloud VPC firewall", 600)];

/// How a valid value of an option looks, for a mend.
pub(crate) fn example(option: &OptionName) -> &'static str {
    match unit(option) {
        Unit::Seconds => "a number of seconds, such as 60",
        Unit::Millis => "a number of milliseconds, such as 1800000",
        Unit::Count => "a whole number",
        Unit::Flag => "true or false",
    }
}

/// Both spellings of one setting with different values.
pub(crate) fn two_spellings(work: &mut Work, loser: &Fact, winner: &Fact) {
    let text = format!(
        "both `{}` ({}) and the old name `{}` ({}) are given; the new one takes effect",
        last_key(&winner.place.key),
        winner.value,
        last_key(&loser.place.key),
        loser.value
    );
    work.lint(
        "two-spellings",
        Severity::Warning,
        text,
        &loser.place,
        format!("remove `{}`", last_key(&loser.place.key)),
    );
}

/// All lints, on facts that are already in effect.
pub(crate) fn check(work: &mut Work) {
    ignored(work);
    let facts = work.out.facts.clone();
    for fact in facts.iter().filter(|f| f.origin == Origin::Written) {
        units(work, fact);
        zero(work, fact);
    }
    user_timeout(work);
    keepalive(work);
    heartbeat(work);
    redis(work);
}

fn ignored(work: &mut Work) {
    let all = work.out.ignored.clone();
    for ignored in all {
        let text = format!("`{}` has no effect: {}", ignored.key, ignored.why);
        let mend = match &ignored.meant {
            Some(meant) => format!("write `{}`", in_same_spelling(&ignored.place.key, &ignored.key, meant)),
            None => "remove it, or it will be believed to protect".to_string(),
        };
        work.lint("ignored-option", Severity::Warning, text, &ignored.place, mend);
    }
}

/// `AIRFLOW__…__SOCKET_TIMEOUT` with `read_timeout` for `socket_timeout` is `AIRFLOW__…__READ_TIMEOUT`.
fn in_same_spelling(place: &str, key: &str, meant: &str) -> String {
    let identifier = meant.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    match place.strip_suffix(&key.to_ascii_uppercase()) {
        Some(front) if identifier && place.starts_with("AIRFLOW__") => format!("{front}{}", meant.to_ascii_uppercase()),
        _ => meant.to_string(),
    }
}

fn seconds(fact: &Fact) -> Option<f64> {
    fact.value.time().map(|d| d.as_secs_f64())
}

/// Milliseconds mistaken for seconds and the reverse.
fn units(work: &mut Work, fact: &Fact) {
    let Some(value) = seconds(fact) else { return };
    let name = last_key(&fact.place.key).to_string();
    // Beyond these nobody sets the option on purpose; a value that is whole thousands was meant in milliseconds.
    let largest = match fact.option {
        OptionName::ConnectTimeout
        | OptionName::HealthCheckInterval
        | OptionName::Heartbeat
        | OptionName::BrokerHeartbeat => 1_000.0,
        OptionName::ReadTimeout
        | OptionName::WriteTimeout
        | OptionName::ResultsReadTimeout
        | OptionName::ResultsConnectTimeout => 5_000.0,
        OptionName::KeepaliveInterval | OptionName::TaskHeartbeatCheckInterval | OptionName::QueuedCheckInterval => {
            5_000.0
        }
        OptionName::QueuedTimeout | OptionName::TaskHeartbeatTimeout | OptionName::VisibilityTimeout => 500_000.0,
        _ => f64::INFINITY,
    };
    let written = fact.value.to_string();
    if value >= largest && value % 1000.0 == 0.0 {
        let text = format!("`{name}` is in seconds: {value:.0} means {written}; it looks like milliseconds");
        let mend = format!("write {} for {}", value / 1000.0, print_duration(Duration::from_secs_f64(value / 1000.0)));
        return work.lint("milliseconds-for-seconds", Severity::Error, text, &fact.place, mend);
    }
    let (smallest, millis) = match fact.option {
        OptionName::ConsumerTimeout => (10.0, value * 1e3),
        OptionName::TcpUserTimeout => (0.3, value * 1e3),
        OptionName::BrokerHandshakeTimeout => (0.3, value * 1e3),
        _ => return,
    };
    if value < smallest {
        let text = format!("`{name}` is in milliseconds: {millis:.0} means {written}; it looks like seconds");
        let mend = format!("write {:.0} for {}", millis * 1e3, print_duration(Duration::from_secs_f64(millis)));
        return work.lint("seconds-for-milliseconds", Severity::Error, text, &fact.place, mend);
    }
    if fact.option == OptionName::ConsumerTimeout && value < CONSUMER_TIMEOUT_CHECK_S {
        let latest = Duration::from_secs_f64(value + CONSUMER_TIMEOUT_CHECK_S);
        let text = format!(
            "RabbitMQ looks for late acknowledgements once a minute, so {written} means {written} to {}; fine for a test",
            print_duration(latest)
        );
        let mend = "keep it, or write at least 300000 (5m) in production".to_string();
        work.lint("below-the-check-interval", Severity::Note, text, &fact.place, mend);
    }
}

/// `channel_tick_interval` of RabbitMQ: how often it looks for deliveries without acknowledgement.
const CONSUMER_TIMEOUT_CHECK_S: f64 = 60.0;

/// 0 where it does not mean "never".
fn zero(work: &mut Work, fact: &Fact) {
    let settimeout = matches!(fact.option, OptionName::ReadTimeout | OptionName::ConnectTimeout);
    if settimeout && fact.value.time() == Some(Duration::ZERO) {
        let text = format!(
            "`{}` = 0 does not mean \"never\": it makes the socket non-blocking, and every call fails at once",
            last_key(&fact.place.key)
        );
        work.lint(
            "zero-timeout",
            Severity::Error,
            text,
            &fact.place,
            "write a number of seconds, or remove it".to_string(),
        );
    }
    let off = fact.value == Value::Time(crate::units::Setting::None);
    if fact.option == OptionName::Heartbeat && off {
        let text = format!(
            "`{}` = 0 turns heartbeats off: an idle connection is then watched by TCP keepalive alone, and a peer that is frozen above TCP by nobody",
            last_key(&fact.place.key)
        );
        work.lint("heartbeat-off", Severity::Warning, text, &fact.place, "write 10 to 60".to_string());
    }
    if fact.option == OptionName::BrokerHeartbeat && off {
        let text = "`heartbeat` = 0: RabbitMQ proposes none, so the client's own value applies, and clients without one have none".to_string();
        work.lint(
            "broker-heartbeat-off",
            Severity::Warning,
            text,
            &fact.place,
            "write 60, RabbitMQ's default".to_string(),
        );
    }
    if let (OptionName::Sysctl(name), Value::Count(value)) = (&fact.option, &fact.value)
        && name == "tcp_rto_max_ms"
        && !(1_000..=120_000).contains(value)
    {
        // net/ipv4/sysctl_net_ipv4.c: tcp_rto_max_min 1 s, tcp_rto_max_max 120 s
        let text = format!("`tcp_rto_max_ms` = {value} is outside the kernel's 1000 to 120000 and is refused");
        work.lint("sysctl-range", Severity::Error, text, &fact.place, "it is in milliseconds".to_string());
    }
}

fn flag(work: &Work, option: &OptionName) -> Option<bool> {
    match work.out.get(option)?.value {
        Value::Flag(on) => Some(on),
        _ => None,
    }
}

fn user_timeout(work: &mut Work) {
    let Some(fact) = work.out.get(&OptionName::TcpUserTimeout).cloned() else { return };
    if fact.value.time().is_some() && flag(work, &OptionName::Keepalive) == Some(false) {
        let text = format!(
            "TCP_USER_TIMEOUT ({}) without keepalive: it watches sent data only, so an idle reader never notices",
            fact.value
        );
        work.lint(
            "user-timeout-without-keepalive",
            Severity::Warning,
            text,
            &fact.place,
            "turn keepalive on as well".to_string(),
        );
    }
}

/// Nominal time from the last segment to the end of an idle connection: idle + interval × probes; with a user timeout, which
/// replaces the count, idle + interval × max(1, ⌈(UT − idle) / interval⌉) (`net/ipv4/tcp_timer.c`, `tcp_keepalive_timer`).
#[must_use]
pub fn keepalive_total(idle: Duration, interval: Duration, probes: u32, user_timeout: Option<Duration>) -> Duration {
    let count = match user_timeout {
        Some(limit) if !interval.is_zero() => {
            let over = limit.saturating_sub(idle).as_nanos().div_ceil(interval.as_nanos());
            u32::try_from(over.max(1)).unwrap_or(u32::MAX)
        }
        _ => probes,
    };
    interval.checked_mul(count).and_then(|d| d.checked_add(idle)).unwrap_or(Duration::MAX)
}

fn keepalive(work: &mut Work) {
    if flag(work, &OptionName::Keepalive) != Some(true) {
        return;
    }
    let sysctl = |name: &str| match work.out.get(&OptionName::Sysctl(name.to_string())).map(|f| &f.value) {
        Some(Value::Count(n)) => u64::try_from(*n).ok().map(Duration::from_secs),
        _ => None,
    };
    let of = |option: OptionName, name: &str, kernel: u64| {
        work.out.time(&option).or_else(|| sysctl(name)).unwrap_or(Duration::from_secs(kernel))
    };
    let idle = of(OptionName::KeepaliveIdle, "tcp_keepalive_time", 7200);
    let interval = of(OptionName::KeepaliveInterval, "tcp_keepalive_intvl", 75);
    let probes = match work.out.get(&OptionName::KeepaliveProbes).map(|f| &f.value) {
        Some(Value::Count(n)) => u32::try_from(*n).unwrap_or(9),
        _ => sysctl("tcp_keepalive_probes").and_then(|d| u32::try_from(d.as_secs()).ok()).unwrap_or(9),
    };
    let total = keepalive_total(idle, interval, probes, work.out.time(&OptionName::TcpUserTimeout));
    let place = [OptionName::KeepaliveIdle, OptionName::Keepalive]
        .iter()
        .find_map(|o| work.out.get(o))
        .map(|f| f.place.clone());
    let Some(place) = place else { return };
    if let Some(reaper) = work.out.get(&OptionName::QueuedTimeout).cloned()
        && let Some(limit) = reaper.value.time()
        && total >= limit
    {
        let text = format!(
            "keepalive ends an idle dead connection after {} (idle {} + probes every {}), not before the reaper's queued_timeout of {}",
            print_duration(total),
            print_duration(idle),
            print_duration(interval),
            print_duration(limit)
        );
        let mend = format!("shorten keepalive.idle so that the sum stays below {}", print_duration(limit));
        work.lint("keepalive-after-reaper", Severity::Warning, text, &place, mend);
    }
    let heartbeat = work.out.time(&OptionName::Heartbeat);
    if heartbeat.is_none()
        && let Some(text) = middlebox(idle).map(|m| format!("keepalive.idle of {} is longer than the idle limit of {m}: a healthy idle connection is forgotten there before the first probe", print_duration(idle)))
    {
        work.lint("keepalive-behind-middlebox", Severity::Warning, text, &place, "write 60 to 200 s, or use heartbeats".to_string());
    }
}

/// The middleboxes that forget a connection before `idle` has passed.
fn middlebox(idle: Duration) -> Option<String> {
    let names: Vec<String> = MIDDLEBOXES
        .iter()
        .filter(|(_, limit)| idle.as_secs_f64() > *limit as f64)
        .map(|(name, limit)| format!("{name} ({limit} s)"))
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn heartbeat(work: &mut Work) {
    let Some(client) = work.out.get(&OptionName::Heartbeat).cloned() else { return };
    let Some(asked) = client.value.time() else { return };
    let broker = work.out.get(&OptionName::BrokerHeartbeat).cloned();
    let server = broker.as_ref().and_then(|f| f.value.time());
    // amqp/connection.py, `_on_tune`: the smaller; a server's 0 leaves the client's.
    let effective = server.map_or(asked, |s| s.min(asked));
    if let (Some(server), Some(broker)) = (server, &broker)
        && server < asked
    {
        let whose = if broker.origin == Origin::Default { "RabbitMQ's default" } else { "RabbitMQ's `heartbeat`" };
        let text = format!(
            "heartbeat {} is larger than {whose} of {}: the smaller takes effect, {}",
            client.value,
            broker.value,
            print_duration(server)
        );
        let severity = if client.origin == Origin::Default { Severity::Note } else { Severity::Warning };
        let mend = format!("count with {}, or raise `heartbeat` in rabbitmq.conf", print_duration(server));
        work.lint("heartbeat-negotiated-down", severity, text, &client.place, mend);
    }
    if asked.as_secs_f64() > 65_535.0 {
        let text = format!("heartbeat {} does not fit AMQP's 16 bits (65535 s)", client.value);
        work.lint("heartbeat-range", Severity::Error, text, &client.place, "write 10 to 60".to_string());
    }
    if let Some(names) = middlebox(effective) {
        let text = format!(
            "heartbeat {} is longer than the idle limit of {names}: a healthy idle connection is forgotten there",
            print_duration(effective)
        );
        work.lint("heartbeat-behind-middlebox", Severity::Warning, text, &client.place, "write 60 or less".to_string());
    }
}

fn redis(work: &mut Work) {
    if work.transport != Some(Transport::Redis) {
        return;
    }
    if let (Some(visibility), Some(limit)) =
        (work.out.get(&OptionName::VisibilityTimeout).cloned(), work.out.get(&OptionName::TaskTimeLimit).cloned())
        && let (Some(v), Some(l)) = (visibility.value.time(), limit.value.time())
        && v < l
    {
        let text = format!(
            "visibility_timeout of {} is shorter than task_time_limit of {}: a task that runs longer than it is delivered a second time",
            visibility.value, limit.value
        );
        let mend = format!("raise visibility_timeout above {}", limit.value);
        work.lint("visibility-below-time-limit", Severity::Warning, text, &visibility.place, mend);
    }
    if let (Some(results), Some(broker)) =
        (work.out.get(&OptionName::ResultsReadTimeout).cloned(), work.out.get(&OptionName::ReadTimeout).cloned())
        && work.kombu
        && results.origin == Origin::Written
        && broker.value.time().is_none()
    {
        let text = format!(
            "`{}` bounds reads from the result backend; the broker's connections have no read timeout",
            last_key(&results.place.key)
        );
        let mend = "set socket_timeout in broker_transport_options as well".to_string();
        work.lint("result-timeout-only", Severity::Warning, text, &results.place, mend);
    }
}

/// Old and new spellings that Celery refuses to see together (`celery/app/utils.py`, `detect_settings`): raised for a name in
/// the minority style whose counterpart is not given too.
pub(crate) fn mixed_spellings(work: &mut Work, entries: &[&super::entry::Entry]) {
    use super::entry::Domain;
    use super::model::SourceKind;
    let kinds = |label: &str| {
        work.out.sources.iter().any(|(l, k)| l == label && matches!(k, SourceKind::CeleryModule | SourceKind::Json))
    };
    let mine: Vec<_> =
        entries.iter().filter(|e| matches!(e.domain, Domain::Celery) && e.rank == 0 && kinds(&e.place.label)).collect();
    for entry in mine.iter().filter(|e| e.style == Style::Old) {
        let paired =
            mine.iter().any(|o| o.place.label == entry.place.label && o.style == Style::New && o.key == entry.key);
        let new = mine.iter().find(|o| o.place.label == entry.place.label && o.style == Style::New);
        if let (false, Some(new)) = (paired, new) {
            let text = format!(
                "`{}` is an old name beside new ones (`{}`): Celery raises ImproperlyConfigured and does not start",
                last_key(&entry.place.key),
                last_key(&new.place.key)
            );
            work.lint("mixed-spellings", Severity::Error, text, &entry.place, format!("write `{}`", entry.key));
            return;
        }
    }
}
