//! The options of an arm: the part of the one table (`table`) that `[defaults]`, `[[arm]]` and `--set` share.

use super::delivery;
use super::keys::{Key, Kind, Limits};
use super::table::{DAY, ms, optional, secs};
use std::time::Duration;

/// Whole milliseconds, as `TCP_USER_TIMEOUT` and `SO_RCVTIMEO` are set here.
const MILLIS: Limits = Limits { min: ms(1), max: DAY, step: ms(1), usual: (ms(100), secs(7_200)) };

/// A field of keepalive: whole seconds, at most 32767 (`MAX_TCP_KEEPIDLE`).
const KEEPALIVE_SECS: Limits = Limits { min: secs(1), max: secs(32_767), step: secs(1), usual: (secs(1), secs(7_200)) };

/// An AMQP heartbeat: whole seconds in 16 bits.
pub(super) const HEARTBEAT: Limits =
    Limits { min: secs(1), max: secs(65_535), step: secs(1), usual: (secs(1), secs(3_600)) };

/// The fields of `keepalive`.
pub(super) const KEEPALIVE: &[Key] = &[
    optional(
        "idle",
        Kind::Time(KEEPALIVE_SECS),
        "`sysctl.tcp_keepalive_time`, else `7200s`",
        "idle = \"60s\"",
        "`TCP_KEEPIDLE`, whole seconds.",
        &["time", "keepidle"],
    ),
    optional(
        "interval",
        Kind::Time(KEEPALIVE_SECS),
        "`sysctl.tcp_keepalive_intvl`, else `75s`",
        "interval = \"10s\"",
        "`TCP_KEEPINTVL`, whole seconds.",
        &["intvl", "keepintvl"],
    ),
    optional(
        "probes",
        Kind::Integer { min: 1, max: 127 },
        "`sysctl.tcp_keepalive_probes`, else `9`",
        "probes = 9",
        "`TCP_KEEPCNT`.",
        &["cnt", "count", "keepcnt"],
    ),
];

/// A delay of the path; beyond a minute it is no link any more.
const ON_THE_WAY: Kind =
    Kind::Time(Limits { min: ms(0), max: secs(60), step: Duration::from_micros(1), usual: (ms(0), secs(60)) });

/// The fields of `link`.
pub(super) const LINK: &[Key] = &[
    optional(
        "delay",
        ON_THE_WAY,
        "`0s`",
        "delay = \"50ms\"",
        "How long each packet takes more, one way.",
        &["latency"],
    ),
    optional(
        "jitter",
        ON_THE_WAY,
        "`0s`",
        "jitter = \"5ms\"",
        "By how much the delay differs, either way; packets may overtake one another by it.",
        &["variance"],
    ),
    optional("loss", Kind::Percent, "`0`", "loss = \"30%\"", "The share of packets that is lost.", &["drop"]),
    optional(
        "reorder",
        Kind::Percent,
        "`0`",
        "reorder = \"25%\"",
        "The share of packets that is not delayed and so overtakes the others.",
        &["reordering"],
    ),
    optional(
        "rate",
        Kind::BitRate,
        "no limit",
        "rate = \"1mbit\"",
        "Bits a second that fit through, for all connections of the arm together: `kbit`, `mbit`, `gbit`.",
        &["bandwidth"],
    ),
    optional(
        "direction",
        Kind::Choice(&["both", "to_broker", "to_client"]),
        "`both`",
        "direction = \"to_client\"",
        "Which way it is so.",
        &[],
    ),
];

/// The options of an arm, in `[defaults]`, in `[[arm]]` and in `--set`.
pub(super) const OPTIONS: &[Key] = &[
    optional(
        "subject",
        Kind::Subject,
        "none: an arm needs one, of its own or from `[defaults]`",
        "subject = \"lapin\"",
        "Who consumes: a name, or a command line of your own, `subject = { command = [\"python3\", \"worker.py\"], ready = \"log: \
         started\" }`, one process tree a trial, watched from outside (docs/your-own-consumer.md).",
        &["consumer"],
    ),
    optional(
        "target",
        Kind::Target,
        "none",
        "target = { compose = \"demo\", service = \"worker\" }",
        "Instead of `subject`, with `--lab docker` and `--target-is-disposable`: a service of an existing compose project, whose \
         own connections to its own broker are cut and watched (docs/docker.md). Its containers are left as they were.",
        &["compose"],
    ),
    optional(
        "connect_timeout",
        Kind::Setting(MILLIS),
        "`10s`",
        "connect_timeout = \"10s\"",
        "The client's own bound on the handshake.",
        &["socket_connect_timeout", "connection_timeout", "broker_connection_timeout"],
    ),
    optional(
        "read_timeout",
        Kind::Setting(MILLIS),
        "`none`",
        "read_timeout = \"30s\"",
        "`SO_RCVTIMEO` on a blocking socket. A `redis-blocking` subject asks the server to answer within half of it; an \
         `amqp-blocking` one is bounded from the last bytes of the broker's on, heartbeats included.",
        &["socket_timeout", "so_rcvtimeo", "rcvtimeo", "timeout"],
    ),
    optional(
        "keepalive",
        Kind::OffOr(KEEPALIVE),
        "`off`",
        "keepalive = { idle = \"60s\", interval = \"10s\", probes = 9 }",
        "`SO_KEEPALIVE` with its three numbers. A field that an arm leaves out comes from `[defaults]`.",
        &["tcp_keepalive", "so_keepalive", "socket_keepalive"],
    ),
    optional(
        "tcp_user_timeout",
        Kind::Setting(Limits { max: secs(2_147_483), ..MILLIS }),
        "`none`",
        "tcp_user_timeout = \"30s\"",
        "`TCP_USER_TIMEOUT`, whole milliseconds.",
        &["user_timeout"],
    ),
    optional(
        "heartbeat",
        Kind::Setting(HEARTBEAT),
        "`none`: asks for 0, and lapin adopts the broker's; Celery's own is `120s`",
        "heartbeat = \"10s\"",
        "The AMQP heartbeat to ask for, whole seconds. The broker's own may be smaller and wins. An `amqp-blocking` subject \
         takes 0 for none at all, as py-amqp does.",
        &["hb", "broker_heartbeat"],
    ),
    optional(
        "heartbeat_thread",
        Kind::Choice(&["own", "same"]),
        "`same`",
        "heartbeat_thread = \"own\"",
        "Which thread of an `amqp-blocking` subject sends heartbeats and checks the broker's: one of its `own`, every third \
         of a heartbeat, or the `same` that consumes, which gets to run only when a message has arrived.",
        &["heartbeat_in_pthread"],
    ),
    optional(
        "sync_call",
        Kind::Choice(&["none", "basic.qos"]),
        "`none`",
        "sync_call = \"basic.qos\"",
        "A call that an `amqp-blocking` subject makes as soon as the cut is in force, so that it waits for a reply that \
         can't come. Until then the subject polls, as Celery's event loop does, and `read_timeout` bounds the call alone.",
        &["synchronous_call", "call"],
    ),
    optional(
        "ping",
        Kind::Setting(MILLIS),
        "`none`",
        "ping = \"250s\"",
        "A `redis-blocking` subject then takes no messages: it sends a `PING` this often, waits for the reply for as long as \
         `read_timeout` lets it, and is silent in between.",
        &["ping_interval", "ping_every"],
    ),
    optional(
        "prefetch",
        Kind::Integer { min: 0, max: 65_535 },
        "`4`",
        "prefetch = 4",
        "`basic.qos`: messages delivered ahead of their acknowledgement; 0 is unlimited.",
        &["prefetch_count", "qos"],
    ),
    optional(
        "ack",
        Kind::Choice(&["early", "late"]),
        "`late`; Celery's own is `early`; none on `redis-blocking`",
        "ack = \"late\"",
        "When a message is acknowledged: on receipt (`early`) or after the work (`late`). A `redis-blocking` subject then keeps \
         what it has taken as kombu does (a hash and an index of what is not acknowledged), so that a Celery worker can \
         share its queue; without, `BRPOP` gives a message away for good.",
        &["acks", "acks_late"],
    ),
    optional(
        "work",
        Kind::Time(Limits { min: ms(1), max: DAY, step: ms(1), usual: (ms(1), DAY) }),
        "`50ms` on RabbitMQ, nothing on Redis",
        "work = \"17m\"",
        "How long the work on a message takes. An asynchronous client works on as many at once as its prefetch allows, a \
         blocking one on one after the other and does nothing else meanwhile.",
        &["task_duration", "work_time"],
    ),
    delivery::EXCHANGE,
    delivery::ROUTES,
    delivery::CONSUMERS,
    delivery::MAX_PRIORITY,
    delivery::QUEUE_TYPE,
    delivery::DEAD_LETTERS,
    delivery::VISIBILITY,
    delivery::RECONNECT,
    delivery::RETRY,
    optional(
        "worker_id",
        Kind::Choice(&["same", "fresh"]),
        "`same`",
        "worker_id = \"fresh\"",
        "Under which name a worker comes back that was killed (`killed-worker` with a `duration`): the one of its host or \
         its environment, or a new one each time.",
        &["worker_name"],
    ),
    optional(
        "begins",
        Kind::Choice(&["pending", "unfinished", "any"]),
        "`pending`",
        "begins = \"unfinished\"",
        "Where tasks are written down, which of them a worker begins when it gets their message: one that nobody has begun; one \
         that is not done or failed, so that a message that comes again goes on with it; or any, as a worker does that \
         does not ask. Of any other the message is acknowledged without work.",
        &["resume"],
    ),
    optional(
        "effects",
        Kind::Choice(&["key", "lookup", "compensate", "blind"]),
        "none: the end of the work is the effect",
        "effects = \"key\"",
        "Makes each task's effect at an external provider, a process with a store of its own: with an idempotency `key`; \
         without one, by `lookup` of what an earlier try has done; with neither, where an earlier try is taken back first \
         (`compensate`); or `blind`. The effect comes in the middle of the work, the commit in the task store at its end.",
        &["idempotency"],
    ),
    optional(
        "frame_max",
        Kind::Integer { min: 4_096, max: 131_072 },
        "`4096`",
        "frame_max = 4096",
        "The largest AMQP frame to ask for, in bytes. It sets lapin's memory: 64 of them a connection.",
        &["max_frame_size", "frame_size"],
    ),
    optional(
        "tls",
        Kind::Flag,
        "`false`",
        "tls = true",
        "Whether the connections are encrypted: the broker then listens with a certificate that the run makes (RabbitMQ on port \
         5671, Redis on 6380), and the client checks it. `{broker_url}` of a command line becomes `amqps://` or `rediss://`, and \
         `{ca_file}` names the authority's certificate. In the docker lab there is no such listener.",
        &["ssl", "use_tls", "use_ssl", "broker_use_ssl"],
    ),
    optional(
        "peer_reads",
        Kind::Flag,
        "`true`",
        "peer_reads = false",
        "Whether the embedded peer reads what a `tcp-writer` sends. If not, the writer fills the peer's window as soon as \
         all trials are ready, writes no messages, and is cut with the window closed.",
        &[],
    ),
    optional(
        "link",
        Kind::OffOr(LINK),
        "`off`",
        "link = { delay = \"50ms\", loss = \"1%\" }",
        "What the path does to packets all the time, apart from the fault, in the router (netem). Where the kernel has no \
         netem, loss and rate are made by nftables and a token bucket, and the rest needs the virtual-time guest. A \
         field that an arm leaves out comes from `[defaults]`.",
        &["netem", "path"],
    ),
    optional(
        "sysctl",
        Kind::Sysctls,
        "the kernel's own",
        "sysctl = { tcp_retries2 = 5 }",
        "Sysctls `net.ipv4.*` of the arm's network namespace; `sysctl.tcp_retries2 = 5` is the same.",
        &["sysctls"],
    ),
    optional(
        "client",
        Kind::Native,
        "none",
        "client = { broker_transport_options = { socket_timeout = 60 } }",
        "Options in the client's own words, handed to it as they stand: for Celery, its configuration; for a command line, what \
         `{conf}` and `{client.NAME}` stand for. What the kernel says is set stands beside them in the report.",
        &["native", "conf", "config"],
    ),
];
