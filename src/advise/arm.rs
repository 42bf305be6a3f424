//! One arm: settings, machines and conditions, and where each of them was written.

use super::situations::FaultName;
use crate::config::{Fact, Origin, Place};
use crate::timers::application::amqp::Client;
use crate::timers::application::reapers::{Ages, Airflow, AirflowGeneration, Liveness};
use crate::timers::{BrokerKind, Conditions, Environment, FaultScope, Keepalive, Row, Settings, State, Subject};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the user asked about; an open field leaves the choice to the standard set of situations.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Ask {
    pub(super) fault: Option<FaultName>,
    pub(super) state: Option<State>,
    pub(super) call: Option<bool>,
    pub(super) scope: Option<FaultScope>,
    pub(super) duration: Option<Option<Duration>>,
    pub(super) row: Option<Option<Row>>,
    pub(super) unacked: Option<bool>,
}

/// Keepalive as it is put together: what is not said comes from the sysctls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KeepaliveParts {
    pub(super) on: bool,
    pub(super) idle: Option<Duration>,
    pub(super) interval: Option<Duration>,
    pub(super) probes: Option<u32>,
}

impl KeepaliveParts {
    pub(super) fn of(keepalive: Option<Keepalive>) -> Self {
        match keepalive {
            None => Self::default(),
            Some(k) => Self { on: true, idle: Some(k.idle), interval: Some(k.interval), probes: Some(k.probes) },
        }
    }

    /// With these kernel defaults for what is not said.
    pub(super) fn with(self, kernel: Keepalive) -> Option<Keepalive> {
        self.on.then(|| Keepalive {
            idle: self.idle.unwrap_or(kernel.idle),
            interval: self.interval.unwrap_or(kernel.interval),
            probes: self.probes.unwrap_or(kernel.probes),
        })
    }
}

/// `net.ipv4.tcp_keepalive_time`, `_intvl` and `_probes` of a stock kernel.
pub(super) const KERNEL_KEEPALIVE: Keepalive = Keepalive::from_secs(7200, 75, 9);

/// One arm of a question.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Its name in tables.
    pub name: String,
    /// Its options.
    pub settings: Settings,
    /// The client's kernel and path.
    pub client: Environment,
    /// The broker's kernel.
    pub broker: Environment,
    /// What is the same in every situation.
    pub conditions: Conditions,
    pub(super) ask: Ask,
    pub(super) keepalive: KeepaliveParts,
    pub(super) keepalive_sysctl: Keepalive,
    pub(super) peer_keepalive: KeepaliveParts,
    /// Where an option's value comes from, by its name.
    pub(super) places: BTreeMap<String, (Origin, Place)>,
    /// Facts that bear on lints only (acknowledgement, time limits …).
    pub(super) other_facts: Vec<Fact>,
    /// What was assumed, in sentences.
    pub(super) assumed: Vec<String>,
    /// The generation of Airflow was said.
    pub(super) airflow_said: bool,
}

impl Arm {
    /// The defaults of a client over a stock broker.
    #[must_use]
    pub fn stock(subject: Subject, broker: BrokerKind) -> Self {
        let settings = Settings::stock(subject, broker);
        Self {
            name: subject.name().to_string(),
            keepalive: KeepaliveParts::of(settings.keepalive),
            peer_keepalive: KeepaliveParts::of(settings.peer.keepalive),
            settings,
            client: Environment::default(),
            broker: Environment::default(),
            conditions: Conditions::default(),
            ask: Ask::default(),
            keepalive_sysctl: KERNEL_KEEPALIVE,
            places: BTreeMap::new(),
            other_facts: Vec::new(),
            assumed: Vec::new(),
            airflow_said: false,
        }
    }

    /// The broker that a client speaks to when nobody says which.
    #[must_use]
    pub fn usual_broker(subject: Subject) -> BrokerKind {
        match subject {
            Subject::TcpReader | Subject::TcpWriter => BrokerKind::None,
            Subject::RedisBlocking | Subject::RedisPy => BrokerKind::Redis,
            _ => BrokerKind::RabbitMq,
        }
    }

    /// The AMQP client inside.
    pub(super) fn amqp(&self) -> Option<Client> {
        self.settings.amqp_client()
    }

    /// A synchronous call can stop the thread that checks heartbeats or sends pings.
    pub(super) fn call_blocks_the_checks(&self) -> bool {
        self.celery_on_redis() || self.amqp().is_some_and(Client::checks_on_the_calling_thread)
    }

    /// Celery's transport on Redis: each command, the event heartbeat every 2 s among them, waits for its reply on the
    /// thread of the loop.
    pub(super) fn celery_on_redis(&self) -> bool {
        self.settings.subject == Subject::Celery && self.settings.broker == BrokerKind::Redis
    }

    /// Airflow's scheduler, made with its defaults when first spoken of.
    pub(super) fn airflow(&mut self) -> &mut Airflow {
        self.settings.reaper.airflow.get_or_insert_with(Airflow::default)
    }

    /// The liveness key, made with the design's defaults when first spoken of.
    pub(super) fn liveness(&mut self) -> &mut Liveness {
        self.settings.reaper.liveness.get_or_insert(Liveness {
            ttl: Duration::from_secs(90),
            period: Duration::from_secs(30),
            sweep: Duration::from_secs(300),
        })
    }

    /// The limits by age, made with the design's defaults when first spoken of.
    pub(super) fn ages(&mut self) -> &mut Ages {
        self.settings.reaper.ages.get_or_insert(Ages {
            pending: Duration::from_secs(300),
            processing: Duration::from_secs(1200),
            sweep: Duration::from_secs(300),
        })
    }

    /// Puts together what depends on several keys, once all are known.
    pub(super) fn finish(&mut self) {
        self.settings.keepalive = self.keepalive.with(self.keepalive_sysctl);
        self.settings.peer.keepalive = self.peer_keepalive.with(KERNEL_KEEPALIVE);
        if self.settings.subject == Subject::RedisBlocking
            && let Some(limit) = self.settings.read_timeout.get()
        {
            // A blocking BRPOP with a deadline asks the server to answer within half of it, and is then sent again.
            let traffic = &mut self.conditions.traffic;
            traffic.broker_messages = traffic.broker_messages.or(Some(limit / 2));
            traffic.client_acks = true;
        }
        if self.settings.subject == Subject::RedisPy && !self.places.contains_key("read_timeout") {
            self.assumed.push(
                "redis-py 5, with no deadline and no keepalive; redis-py 8 sets 5 s and 30/5/3 by itself".to_string(),
            );
        }
        if self.celery_on_redis() {
            self.assumed.push(
                "a worker that sends events, as Celery does by default: with the whole host cut or Redis frozen, the next \
                 event waits for its reply and holds the loop"
                    .to_string(),
            );
        }
        if self.settings.reaper.airflow.is_some_and(|a| a.generation == AirflowGeneration::FailsAtOnce)
            && !self.airflow_said
        {
            self.assumed.push(
                "Airflow up to 2.10.3, whose first sweep fails the row; from 2.10.4 it is requeued twice first, three times \
                 as long (--set airflow.version=2.10.4)"
                    .to_string(),
            );
        }
    }

    /// One of the client's sysctls, by its name without `net.ipv4.`. Sysctls that no watcher depends on change nothing.
    ///
    /// # Errors
    /// A sentence, where the number is not one that the kernel takes.
    pub(super) fn sysctl(&mut self, name: &str, value: i64) -> Result<(), String> {
        if let Some((least, most)) = crate::scenario::sysctl_range(name)
            && !(least..=most).contains(&value)
        {
            return Err(format!("`{value}` is out of range; write {least} to {most}"));
        }
        let number = u32::try_from(value).map_err(|_| format!("`{value}` is out of range"))?;
        let env = &mut self.client;
        match name {
            "tcp_retries2" => env.tcp_retries2 = number,
            "tcp_syn_retries" => env.tcp_syn_retries = number,
            "tcp_syn_linear_timeouts" => env.tcp_syn_linear_timeouts = number,
            "tcp_early_retrans" => env.tcp_early_retrans = number,
            "tcp_rto_max_ms" => env.tcp_rto_max = Duration::from_millis(u64::from(number)),
            "tcp_rto_min_us" => env.tcp_rto_min = Duration::from_micros(u64::from(number)),
            "tcp_keepalive_time" => self.keepalive_sysctl.idle = Duration::from_secs(u64::from(number)),
            "tcp_keepalive_intvl" => self.keepalive_sysctl.interval = Duration::from_secs(u64::from(number)),
            "tcp_keepalive_probes" => self.keepalive_sysctl.probes = number,
            _ => {}
        }
        Ok(())
    }
}
