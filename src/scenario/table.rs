//! The one table of the scenario file's keys. Reading, unknown-key errors, `halfopen schema` and `docs/scenario.md`
//! all come from here; a key exists when it is in this table.

use super::injection::Injection;
use super::keys::{Key, Kind, Limits, Repeat, Section};
use super::options::HEARTBEAT;
pub(super) use super::options::{KEEPALIVE, OPTIONS};
use super::table_reaper::{REAPER, USER};
use std::time::Duration;

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const DAY: Duration = secs(86_400);

/// A time of the harness itself.
pub(super) const fn any(min: Duration) -> Kind {
    Kind::Time(Limits { min, max: DAY, step: ms(1), usual: (ms(0), DAY) })
}

/// The most trials of an arm over all its faults: what the address plan has room for.
pub const MAX_TRIALS: u32 = 30_000;

/// The most trials with `tls = true`: their brokers' certificate names the address of each, six bytes of a handshake message,
/// of which rustls takes 64 KiB.
pub const MAX_TLS_TRIALS: u32 = 8_000;

/// The most arms: one network each.
pub const MAX_ARMS: usize = 64;

pub(super) const fn required(name: &'static str, kind: Kind, example: &'static str, doc: &'static str) -> Key {
    Key { name, kind, required: true, default: "", doc, example, since: "0.1", aliases: &[] }
}

pub(super) const fn optional(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    example: &'static str,
    doc: &'static str,
    aliases: &'static [&'static str],
) -> Key {
    Key { name, kind, required: false, default, doc, example, since: "0.1", aliases }
}

const SCENARIO: &[Key] = &[
    required("name", Kind::Name, "name = \"first-look\"", "Its name; also the folder of its run."),
    required("horizon", any(ms(100)), "horizon = \"200s\"", "How long each trial is watched after its cut."),
    optional(
        "trials",
        Kind::Integer { min: 1, max: MAX_TRIALS as i64 },
        "`10`",
        "trials = 25",
        "Trials of each arm for each fault. An arm may have its own.",
        &["n", "runs", "repeat"],
    ),
    optional(
        "seed",
        Kind::Integer { min: 0, max: i64::MAX },
        "`1`",
        "seed = 7",
        "Seed of everything that is drawn.",
        &["random_seed"],
    ),
    optional(
        "at_once",
        Kind::Integer { min: 1, max: MAX_TRIALS as i64 },
        "all",
        "at_once = 100",
        "The most trials at once, where a program a trial needs much memory: more are done in waves, each like a run, and \
         joined. A part (`run --partition`) is done at once.",
        &["waves", "batch", "parallel"],
    ),
    optional("ci", Kind::Flag, "`false`", "ci = true", "Whether CI runs it.", &[]),
    optional(
        "settle",
        any(ms(0)),
        "the longest heartbeat in force, at least `1s`, at most `15s`",
        "settle = \"2s\"",
        "Quiet time between \"consuming\" and the earliest cut: heartbeats have been exchanged once.",
        &["warmup"],
    ),
];

const BROKER: &[Key] = &[
    optional(
        "kind",
        Kind::Choices(&["rabbitmq", "redis", "none"]),
        "what the subjects speak",
        "kind = \"rabbitmq\"",
        "The brokers, one or a list. `none` is bare TCP against an embedded peer.",
        &["type", "kinds"],
    ),
    optional(
        "image",
        Kind::Images,
        "the lab's own image",
        "image = \"rabbitmq:3.13-management\"",
        "With `--lab docker`: the container image of the broker. Of a list, each makes a run of its own.",
        &["images"],
    ),
    optional(
        "heartbeat",
        Kind::Setting(HEARTBEAT),
        "RabbitMQ's own, `60s`",
        "heartbeat = \"60s\"",
        "RabbitMQ's own `heartbeat`, whole seconds; `none` is 0.",
        &[],
    ),
    optional(
        "consumer_timeout",
        any(secs(1)),
        "RabbitMQ's own, `30m`",
        "consumer_timeout = \"30m\"",
        "RabbitMQ's `consumer_timeout`.",
        &[],
    ),
];

const ARM: &[Key] = &[
    required("name", Kind::Name, "name = \"proposed\"", "Its name in reports, once in a file."),
    optional(
        "trials",
        Kind::Integer { min: 1, max: MAX_TRIALS as i64 },
        "`[scenario] trials`",
        "trials = 25",
        "Trials of this arm for each fault.",
        &[],
    ),
    optional(
        "load",
        Kind::Choice(&["on", "off"]),
        "`on`",
        "load = \"off\"",
        "Whether the messages of `[load]` flow on this arm's connections too.",
        &["messages"],
    ),
    optional(
        "expect",
        Kind::Choice(&["censored"]),
        "a timer that fits into the horizon",
        "expect = \"censored\"",
        "The arm is meant to go undetected: its timers are not held against the horizon.",
        &["expected"],
    ),
    optional(
        "liveness",
        Kind::Choice(&["redis", "table", "none"]),
        "`[reaper] liveness`",
        "liveness = \"table\"",
        "Where the workers of this arm give their signs of life, so that arms can be compared.",
        &[],
    ),
    optional(
        "clock_ahead",
        any(ms(1)),
        "its clock is right",
        "clock_ahead = \"5m\"",
        "How far the clocks of this arm's workers are ahead, in what they write as the time of a sign of life.",
        &["clock_skew"],
    ),
    optional(
        "clock_behind",
        any(ms(1)),
        "its clock is right",
        "clock_behind = \"5m\"",
        "How far they are behind.",
        &[],
    ),
    optional(
        "clock_steps_after",
        any(ms(1)),
        "wrong from the beginning",
        "clock_steps_after = \"6s\"",
        "The clocks are right at first and step, by `clock_ahead` or `clock_behind`, so long after the worker's first sign of life.",
        &["clock_step"],
    ),
];

const LOAD: &[Key] = &[
    required(
        "rate",
        Kind::Rate,
        "rate = \"1/s\"",
        "Numbered messages on each connection, before, through and after the fault.",
    ),
    optional(
        "count",
        Kind::Integer { min: 1, max: 10_000_000 },
        "without end",
        "count = 500",
        "How many messages each connection has altogether: what is published early enough can be worked off by the end.",
        &["messages", "total"],
    ),
    optional(
        "eta",
        any(ms(1)),
        "none",
        "eta = \"15s\"",
        "Celery: the first message is a task whose ETA lies this long after the cut (`at` must be fixed), and which the \
         worker holds by then. When it falls due the worker lowers its prefetch again with a synchronous `basic.qos`.",
        &["countdown"],
    ),
    optional(
        "second_consumer",
        Kind::Flag,
        "`false`",
        "second_consumer = true",
        "A second, healthy consumer of the harness's own on each queue, over a connection that no fault touches. What is taken back \
         from a dead one is delivered to it: by RabbitMQ, on Redis by kombu's `visibility_timeout`.",
        &["healthy_consumer"],
    ),
    optional(
        "durable",
        Kind::Flag,
        "`false`",
        "durable = true",
        "On RabbitMQ: the queues of this harness' own clients are durable and their messages persistent, so that what was confirmed \
         survives the broker's death.",
        &["persistent"],
    ),
];

const FAULT: &[Key] = &[
    required("profile", Kind::Profile, "profile = \"blackhole\"", "A file in `netem/`; `none` is a control."),
    optional(
        "name",
        Kind::Name,
        "the profile's name",
        "name = \"short-cut\"",
        "Its name in gates and reports; two faults of one profile and scope need one each.",
        &[],
    ),
    optional(
        "scope",
        Kind::Choice(&["flow", "pair", "host"]),
        "`flow`",
        "scope = \"flow\"",
        "What is cut: this connection (`flow`); everything between the client's address and the broker's, whatever the ports, \
         reconnects too (`pair`); or everything of the client's address, whoever the other end is (`host`).",
        &[],
    ),
    optional(
        "injection",
        Kind::Choice(&Injection::NAMES),
        "`router`",
        "injection = \"router\"",
        "Where and how a `blackhole` is made. All but `router` are distorted, since the subject's own kernel notices them: `run` \
         refuses them without `--allow-distorted`, and labels the run with it (docs/faults.md).",
        &["where", "inject", "place", "location"],
    ),
    optional(
        "at",
        Kind::Phase,
        "`uniform`",
        "at = \"uniform\"",
        "The phase of the cut after settling: drawn from the phase window, or a fixed time such as `2s`. `in-flight` draws \
         it and then waits for the next delivery, so that the cut finds it unacknowledged; `after-heartbeat` waits for \
         the next segment from the broker; `before-effect`, `after-effect` (and before the worker's own commit) and \
         `after-commit` (and before the acknowledgement) wait until a worker stands at that point of the next task that \
         it begins, where it stays until the fault is in force; `reconnect` has the broker's kernel end the connection with a \
         RST and cuts the new one: before its SYN gets through with `scope = \"pair\"` or `\"host\"`, as soon as the client \
         says that it stands with `\"flow\"`.",
        &["phase"],
    ),
    optional(
        "connection",
        Kind::Choice(&["consumer", "control", "event", "subscriber", "publisher"]),
        "`consumer`",
        "connection = \"control\"",
        "Which connection of a client from outside is the one under test, by what is heard on it: a Celery worker on Redis \
         has one for its remote `control`.",
        &["role", "socket"],
    ),
    optional(
        "phase_window",
        any(ms(1)),
        "the arm's longest period, at least `1s`, at most `60s`",
        "phase_window = \"10s\"",
        "The cut falls at settle + U(0, this).",
        &["window"],
    ),
    optional(
        "idle",
        any(secs(1)),
        "the phase decides",
        "idle = \"350s\"",
        "With a profile of a middlebox: it forgets a connection that was silent for this long, whole seconds, by itself. A \
         connection that never is survives.",
        &["idle_timeout", "nat_idle"],
    ),
    optional(
        "duration",
        Kind::Setting(Limits { min: ms(1), max: DAY, step: ms(1), usual: (ms(0), DAY) }),
        "`none`: to the end of the trial",
        "duration = \"30s\"",
        "Healed after this long. The kernel holds to it too: should the harness hang, the rules expire 2 s later. What was killed \
         (a worker, the reaper, the store, the broker) is started again, and the fault is healed once it answers.",
        &["heal_after"],
    ),
    optional(
        "repeat",
        Kind::Integer { min: 2, max: 1_000 },
        "once",
        "repeat = 3",
        "How often it comes altogether; needs `duration` and `pause`.",
        &["times"],
    ),
    optional(
        "pause",
        any(ms(10)),
        "none",
        "pause = \"10s\"",
        "The healthy time between a heal and the next cut, with `repeat`. What is killed again lives for U(0, this), drawn \
         by the seed.",
        &["gap"],
    ),
];

/// A time of a scheduler, or of what it does.
const fn long(min: Duration) -> Kind {
    Kind::Time(Limits { min, max: secs(365 * 86_400), step: ms(1), usual: (ms(0), secs(365 * 86_400)) })
}

const TASKS: &[Key] = &[
    required(
        "count",
        Kind::Integer { min: 1, max: 1_000_000_000 },
        "count = 200000",
        "All tasks. Each arm meets the same ones under each fault.",
    ),
    required("over", long(secs(1)), "over = \"30d\"", "The time over which they are spread evenly."),
    required(
        "half_open",
        Kind::Share,
        "half_open = 0.000015",
        "The share whose connection dies as they are handed over; the trials are those, drawn by the seed.",
    ),
];

const PUBLISHED: &[Key] = &[
    required("mean", any(ms(1)), "mean = \"1283.9s\"", "Its mean."),
    required("median", any(ms(1)), "median = \"1288.4s\"", "Its median."),
    required("from", any(ms(0)), "from = \"1100s\"", "A range that a share is known of: from here"),
    required("to", any(ms(1)), "to = \"1400s\"", "to here."),
    required("share", Kind::Share, "share = 0.8", "At least this share lies in it."),
];

const GATE: &[Key] = &[
    optional("arm", Kind::Text, "all arms", "arm = \"proposed\"", "The arm that it looks at.", &[]),
    optional("fault", Kind::Text, "all faults", "fault = \"blackhole\"", "The fault that it looks at, by name.", &[]),
    required(
        "metric",
        Kind::Column,
        "metric = \"ttd_s\"",
        "A column of `trials.csv`; or `agreement`, the share of trials inside the window that the timer model gave them \
         beforehand, and `detected_before_reaper`, the share of those in which a message waited that were detected before a \
         reaper had dealt with it; these two take no measure: `min = \"97%\"`.",
    ),
    optional(
        "quantile",
        Kind::Quantile,
        "one of the six",
        "quantile = 0.99",
        "A quantile of a numeric column; a censored trial is beyond every bound.",
        &["q", "percentile"],
    ),
    optional(
        "fraction",
        Kind::Text,
        "one of the six",
        "fraction = \"detected\"",
        "The share of trials with this value, 0 to 1.",
        &["share"],
    ),
    optional(
        "count",
        Kind::TextOrTrue,
        "one of the six",
        "count = \"void\"",
        "The number of trials with this value, or with any (`true`) in a numeric column.",
        &[],
    ),
    optional(
        "uniform",
        Kind::Range,
        "one of the six",
        "uniform = \"10s to 12s\"",
        "How well a column of times fits a uniform distribution between these two: the p-value of the Kolmogorov–Smirnov \
         test, 0 to 1. A censored trial is beyond both. `min = 0.01`: a gate fails for one true uniform sample in a hundred.",
        &["ks"],
    ),
    optional(
        "min",
        Kind::Bound,
        "no lower bound",
        "min = \"15s\"",
        "At least this: a duration for `*_s` columns, `0.95` or `\"95%\"` for fractions, a number for counts and p-values.",
        &["minimum", "at_least"],
    ),
    optional("max", Kind::Bound, "no upper bound", "max = \"30s\"", "At most this.", &["maximum", "at_most"]),
    optional(
        "mean",
        Kind::Flag,
        "one of the six",
        "mean = true",
        "The mean of `ttd_s`, `ttr_s` or `stuck_s`, cut off at the horizon: who was not detected counts with it.",
        &["average"],
    ),
    optional(
        "rate",
        Kind::Flag,
        "one of the six",
        "rate = true",
        "Of `false_alarm`: events an hour of healthy connection under watch. Bounds are rates: `max = \"1/1000h\"`.",
        &[],
    ),
    optional(
        "confidence",
        Kind::Percent,
        "the sample as it is; with `no_worse_than` `95%`",
        "confidence = \"95%\"",
        "How sure the verdict must be. The gate holds only where the whole interval of this one-sided level is within the \
         bound, fails only where all of it is beyond, and is inconclusive else; the report says how many trials would do.",
        &["level"],
    ),
    optional(
        "no_worse_than",
        Kind::Text,
        "a bound",
        "no_worse_than = \"current\"",
        "Instead of a bound: another arm of this scenario, which runs side by side, or `baseline`, the same arm in a stored \
         run (`run --baseline DIR`, see [baselines.md](baselines.md)). Needs `arm` and `margin`.",
        &["noninferior_to"],
    ),
    optional(
        "margin",
        Kind::Bound,
        "required with `no_worse_than`",
        "margin = \"2s\"",
        "The smallest difference that matters, in the unit of the bound; or a percentage of the other side's value (of a \
         share: in points). Held: it is surely no worse by more. Failed: it is worse, and may be so by more.",
        &["tolerance"],
    ),
];

const fn section(
    name: &'static str,
    repeat: Repeat,
    required: bool,
    keys: &'static [Key],
    options: bool,
    doc: &'static str,
) -> Section {
    Section { name, repeat, required, doc, keys, options, refused: None }
}

/// The sections, in the order of the documentation.
pub(super) const SECTIONS: &[Section] = &[
    section("scenario", Repeat::Once, true, SCENARIO, false, "The run as a whole."),
    section("broker", Repeat::Once, false, BROKER, false, "The servers that the subjects talk to."),
    section(
        "defaults",
        Repeat::Once,
        false,
        &[],
        true,
        "Options of every arm whose subject has them; one that fits no arm at all is an error.",
    ),
    section(
        "arm",
        Repeat::Many,
        true,
        ARM,
        true,
        "One column of the comparison. An option that its subject can't have is an error.",
    ),
    section("load", Repeat::Once, false, LOAD, false, "Messages that flow. Without it the connections are idle."),
    section(
        "job",
        Repeat::Many,
        false,
        super::delivery::JOB,
        false,
        "The kinds of work that the messages of `[load]` stand for, in turns. Without it they are all alike.",
    ),
    section("fault", Repeat::OnceOrMany, true, FAULT, false, "What happens to the path. Every arm meets every fault."),
    section(
        "reaper",
        Repeat::Once,
        false,
        REAPER,
        false,
        "The fallback that cleans up afterwards: a scheduler that goes by a store of tasks, of which each message of \
         `[load]` is one. Its first sweep falls anywhere within an interval, drawn by the seed; each further one comes an \
         interval after the end of the one before. `horizon` must leave it the time to act. With `--engine kernel` it \
         needs a broker: what a bare TCP connection carries waits in no queue.",
    ),
    section(
        "user",
        Repeat::Once,
        false,
        USER,
        false,
        "Somebody who waits for each task and polls: the stall as the user sees it is `user_stuck_s`. Needs `[reaper]`, whose \
         store it looks at, and runs with `--engine kernel` only.",
    ),
    section(
        "tasks",
        Repeat::Once,
        false,
        TASKS,
        false,
        "Many tasks over a long time, of which few meet a half-open connection: those are the trials, the others are \
         counted. It stands in for `[load]` and `trials`, and runs with `--engine model` only: its months are not waited \
         for.",
    ),
    section(
        "published",
        Repeat::Once,
        false,
        PUBLISHED,
        false,
        "Stuck durations from elsewhere, which the report shows beside those of the run.",
    ),
    section("gate", Repeat::Many, false, GATE, false, "A bound that the run must hold, or its exit code is 1."),
];

/// The section of this name.
pub(super) fn find(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
