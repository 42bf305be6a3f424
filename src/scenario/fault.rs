//! What a fault is: an impairment profile in a scope, at a phase, for a time, perhaps again and again.

use super::injection::{self, Injection};
use super::middlebox::Middlebox;
use crate::units::Setting;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which packets a fault drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Directions {
    /// Client to broker.
    pub to_broker: bool,
    /// Broker to client.
    pub to_client: bool,
}

impl Directions {
    /// Whether nothing is dropped.
    #[must_use]
    pub fn is_none(self) -> bool {
        !self.to_broker && !self.to_client
    }
}

/// What of a client is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This connection only; a reconnect gets through.
    Flow,
    /// Everything between this client's address and the broker's, whatever the ports: reconnects are cut too.
    Pair,
    /// Everything of this client's address, whoever the other end is: its host is off the network.
    Host,
}

impl Scope {
    /// All scopes, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Flow, Self::Pair, Self::Host];

    /// The scope of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    /// Whether a reconnect gets through.
    #[must_use]
    pub fn lets_reconnect(self) -> bool {
        self == Self::Flow
    }

    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Pair => "pair",
            Self::Host => "host",
        }
    }
}

/// What a fault does where it does not drop packets: to the broker, and with it to every connection to it; to the broker's
/// end of one connection; or to a proxy before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// The broker's processes are stopped (`SIGSTOP`); its kernel goes on acknowledging.
    FreezeBroker,
    /// The broker's processes are killed (`SIGKILL`); its kernel closes what they held.
    KillBroker,
    /// The broker's end of the connection is forgotten without a word, as by a host that reboots: a RST answers whatever
    /// comes next.
    RebootHost,
    /// The proxy between this client and the broker is stopped (`SIGSTOP`); its kernel goes on acknowledging.
    FreezeProxy,
    /// The proxy between this client and the broker goes on reading both of them and hands nothing on any more, not even the
    /// end of either.
    SwallowProxy,
    /// The proxy between this client and the broker withholds the last byte of the broker's next data and all after it. What
    /// the client sends still arrives.
    WithholdReply,
    /// The broker's host is gone and nobody has its address any more: the last router's ARP goes unanswered, and it says so
    /// to whoever sends (ICMP host unreachable).
    VanishHost,
    /// The address moves to another host with a broker of its own, which knows nothing of the connection.
    FailOver,
    /// RabbitMQ's memory alarm: it reads nothing more from whoever publishes.
    AlarmBroker,
    /// RabbitMQ's disk alarm, which has the same effect.
    AlarmDisk,
    /// The broker's processes are killed and started again, three times within three seconds.
    RestartBroker,
    /// The middlebox between the two forgets the connection: its entry is gone, by its idle timeout or at the phase.
    ForgetEntry,
    /// The process of one worker is killed (`SIGKILL`), with all that it does: its kernel closes what it held.
    KillWorker,
    /// The process of one worker is stopped (`SIGSTOP`), its thread that gives signs of life too.
    PauseWorker,
    /// The reapers' processes are killed.
    KillReaper,
    /// The processes of the task store's database are killed.
    KillStore,
    /// In the broker's place a process accepts connections and never says a word: in force before the client connects.
    StaySilent,
    /// The run's name server does not answer for the broker's name, or late: in force before the client asks.
    WithholdAnswer,
    /// Every connection between the client's address and the broker's is ended by a RST to both, three times within three
    /// seconds.
    ResetThrice,
}

impl Act {
    /// All acts, in the order of the documentation.
    pub const ALL: [Self; 19] = [
        Self::FreezeBroker,
        Self::KillBroker,
        Self::RebootHost,
        Self::FreezeProxy,
        Self::SwallowProxy,
        Self::WithholdReply,
        Self::VanishHost,
        Self::FailOver,
        Self::RestartBroker,
        Self::AlarmBroker,
        Self::AlarmDisk,
        Self::ForgetEntry,
        Self::KillWorker,
        Self::PauseWorker,
        Self::KillReaper,
        Self::KillStore,
        Self::StaySilent,
        Self::WithholdAnswer,
        Self::ResetThrice,
    ];

    /// The name in profiles and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FreezeBroker => "freeze_broker",
            Self::KillBroker => "kill_broker",
            Self::RebootHost => "reboot_host",
            Self::FreezeProxy => "freeze_proxy",
            Self::SwallowProxy => "swallow_proxy",
            Self::WithholdReply => "withhold_reply",
            Self::VanishHost => "vanish_host",
            Self::FailOver => "fail_over",
            Self::RestartBroker => "restart_broker",
            Self::AlarmBroker => "alarm_broker",
            Self::AlarmDisk => "alarm_disk",
            Self::ForgetEntry => "forget_entry",
            Self::KillWorker => "kill_worker",
            Self::PauseWorker => "pause_worker",
            Self::KillReaper => "kill_reaper",
            Self::KillStore => "kill_store",
            Self::StaySilent => "stay_silent",
            Self::WithholdAnswer => "withhold_answer",
            Self::ResetThrice => "reset_thrice",
        }
    }

    /// What it does, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::FreezeBroker => "the broker's processes are stopped",
            Self::KillBroker => "the broker's processes are killed",
            Self::RebootHost => "the broker's end is forgotten without a word",
            Self::FreezeProxy => "the proxy before the broker is stopped",
            Self::SwallowProxy => "the proxy before the broker acknowledges and swallows",
            Self::WithholdReply => "the proxy before the broker withholds the last byte of a reply and all after it",
            Self::VanishHost => "the broker's host is gone, and its address with it",
            Self::FailOver => "the broker's address moves to another host with a broker of its own",
            Self::RestartBroker => "the broker is killed and started three times within three seconds",
            Self::AlarmBroker => "the broker's memory alarm goes off, and it reads nothing more from whoever publishes",
            Self::AlarmDisk => "the broker's disk alarm goes off, and it reads nothing more from whoever publishes",
            Self::ForgetEntry => "the middlebox forgets the connection",
            Self::KillWorker => "the worker's process is killed",
            Self::PauseWorker => "the worker's process is stopped",
            Self::KillReaper => "the reaper's process is killed",
            Self::KillStore => "the processes of the task store's database are killed",
            Self::StaySilent => "in the broker's place a process accepts connections and never says a word",
            Self::WithholdAnswer => "the name server does not answer for the broker's name",
            Self::ResetThrice => "all connections of the client are reset three times within three seconds",
        }
    }

    /// Whether the client must not be told: no RST, FIN or ICMP. A broker that is killed has its kernel say so, and of a
    /// middlebox its profile says it.
    #[must_use]
    pub fn silent(self) -> bool {
        match self {
            Self::FreezeBroker | Self::AlarmBroker | Self::AlarmDisk => true,
            Self::KillReaper | Self::KillStore | Self::WithholdAnswer => true,
            Self::FreezeProxy | Self::SwallowProxy | Self::WithholdReply | Self::StaySilent => true,
            Self::KillBroker
            | Self::KillWorker
            | Self::PauseWorker
            | Self::RebootHost
            | Self::VanishHost
            | Self::FailOver
            | Self::RestartBroker
            | Self::ForgetEntry
            | Self::ResetThrice => false,
        }
    }

    /// Whether it hits every connection at once.
    #[must_use]
    pub fn hits_all(self) -> bool {
        match self {
            Self::FreezeBroker | Self::KillBroker | Self::RestartBroker => true,
            Self::AlarmBroker | Self::AlarmDisk => true,
            Self::KillReaper | Self::KillStore => true,
            Self::KillWorker
            | Self::PauseWorker
            | Self::RebootHost
            | Self::FreezeProxy
            | Self::SwallowProxy
            | Self::WithholdReply
            | Self::VanishHost
            | Self::FailOver
            | Self::ForgetEntry
            | Self::StaySilent
            | Self::WithholdAnswer
            | Self::ResetThrice => false,
        }
    }

    /// Whether it concerns the handshake: it is in force before the client connects, and the connection under test never
    /// gets as far as consuming.
    #[must_use]
    pub fn in_handshake(self) -> bool {
        matches!(self, Self::StaySilent | Self::WithholdAnswer)
    }

    /// Whether it ends the broker's processes: their kernel tells every client at once, and no later than the harness sees
    /// them gone.
    #[must_use]
    pub fn ends_processes(self) -> bool {
        matches!(self, Self::KillBroker | Self::RestartBroker)
    }

    /// Whether the client is told at once, and no later than the harness knows that it was.
    #[must_use]
    pub fn tells_at_once(self) -> bool {
        self.ends_processes() || self == Self::ResetThrice
    }

    /// Whether sockets of the broker's host are ended from outside.
    #[must_use]
    pub fn destroys(self) -> bool {
        self.forgets() || self == Self::ResetThrice
    }

    /// Whether the broker's end of the connection is forgotten without a word.
    #[must_use]
    pub fn forgets(self) -> bool {
        matches!(self, Self::RebootHost | Self::FailOver)
    }

    /// Whether it is done to the process of one trial's worker, which then is a process of its own.
    #[must_use]
    pub fn hits_worker(self) -> bool {
        matches!(self, Self::KillWorker | Self::PauseWorker)
    }

    /// Whether what it kills is started again where the fault has a duration: that is its heal.
    #[must_use]
    pub fn starts_again(self) -> bool {
        matches!(self, Self::KillBroker | Self::KillWorker | Self::KillReaper | Self::KillStore)
    }

    /// Whether it is dated from its signal: what a process held ends with it, before anybody can see that it is gone.
    #[must_use]
    pub fn kills(self) -> bool {
        self.starts_again() || self == Self::RestartBroker
    }

    /// Whether it concerns neither the connection nor an end of it.
    #[must_use]
    pub fn beside_the_connection(self) -> bool {
        matches!(self, Self::KillReaper | Self::KillStore)
    }

    /// Whether it is done to the broker's own host, so that nothing may stand between.
    #[must_use]
    pub fn moves_the_address(self) -> bool {
        matches!(self, Self::VanishHost | Self::FailOver)
    }

    /// Whether it is done to processes, which are then looked at, and not to the path.
    #[must_use]
    pub fn hits_processes(self) -> bool {
        match self {
            Self::FreezeBroker | Self::KillBroker | Self::RestartBroker => true,
            Self::AlarmBroker | Self::AlarmDisk => true,
            Self::FreezeProxy | Self::SwallowProxy | Self::WithholdReply | Self::StaySilent => true,
            Self::KillWorker | Self::PauseWorker | Self::KillReaper | Self::KillStore => true,
            Self::ResetThrice => false,
            Self::RebootHost | Self::VanishHost | Self::FailOver | Self::ForgetEntry | Self::WithholdAnswer => false,
        }
    }

    /// Whether it is an alarm of the broker's: whoever publishes is blocked, and nothing else is wrong.
    #[must_use]
    pub fn alarms(self) -> bool {
        matches!(self, Self::AlarmBroker | Self::AlarmDisk)
    }

    /// Whether it can be taken back.
    #[must_use]
    pub fn heals(self) -> bool {
        matches!(
            self,
            Self::FreezeBroker
                | Self::FreezeProxy
                | Self::AlarmBroker
                | Self::AlarmDisk
                | Self::PauseWorker
                | Self::WithholdAnswer
        )
    }

    /// Whether it is done to a proxy before the broker, which then stands there.
    #[must_use]
    pub fn in_proxy(self) -> bool {
        matches!(self, Self::FreezeProxy | Self::SwallowProxy | Self::WithholdReply | Self::StaySilent)
    }
}

/// What the cut waits for once its phase has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// The next delivery: the cut finds it in the client's hands and not yet acknowledged.
    InFlight,
    /// The next segment that the client's kernel received: a heartbeat, on a connection that carries nothing else.
    AfterHeartbeat,
    /// The worker stands before the effect of the next task that it begins.
    BeforeEffect,
    /// It stands between an effect and its own store's commit.
    AfterEffect,
    /// It stands between its own store's commit and the acknowledgement.
    AfterCommit,
    /// The reconnect of a client whose first connection the harness ends at the phase, at the broker's end and with a RST: the
    /// cut falls on the new connection.
    Reconnect,
}

impl Trigger {
    /// All triggers, in the order of the documentation.
    pub const ALL: [Self; 6] = [
        Self::InFlight,
        Self::AfterHeartbeat,
        Self::BeforeEffect,
        Self::AfterEffect,
        Self::AfterCommit,
        Self::Reconnect,
    ];

    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InFlight => "in-flight",
            Self::AfterHeartbeat => "after-heartbeat",
            Self::BeforeEffect => "before-effect",
            Self::AfterEffect => "after-effect",
            Self::AfterCommit => "after-commit",
            Self::Reconnect => "reconnect",
        }
    }

    /// Whether the worker stops at that point of its work until the fault is in force.
    #[must_use]
    pub fn halts(self) -> bool {
        matches!(self, Self::BeforeEffect | Self::AfterEffect | Self::AfterCommit)
    }
}

/// A fault that comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// How often the fault comes altogether, at least 2.
    pub times: u32,
    /// The healthy time between a heal and the next cut.
    pub pause: Duration,
}

/// A fault: an impairment profile in a scope, for a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Its name in gates and reports: the profile's, where the file gives none.
    #[serde(default)]
    pub name: String,
    /// The profile's name: a file in `netem/`, or `none` for a control.
    pub profile: String,
    /// What the profile drops.
    pub drop: Directions,
    /// What the profile does beside dropping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Act>,
    /// The box between client and broker that keeps an entry for each connection, where the profile is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub middlebox: Option<Middlebox>,
    /// The middlebox forgets a connection that was silent for this long, by itself; `None` lets it forget at the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    /// Where and how the profile's drops are made.
    #[serde(default, skip_serializing_if = "injection::is_usual")]
    pub injection: Injection,
    /// What is cut.
    pub scope: Scope,
    /// Healed after this long.
    pub duration: Setting,
    /// Comes again after each heal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// The cut falls at settle + U(0, this); `None` lets the plan take the arm's own longest period.
    pub phase_window: Option<Duration>,
    /// The cut falls at settle + exactly this; `None` is a uniform phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Duration>,
    /// What the cut waits for once its phase has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// Which connection of a client from outside is the one under test, by what it is for; `None` is the consumer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
}

impl Fault {
    /// Its name in gates and reports. Recordings from before faults had names fall back to the profile's.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.name.is_empty() { &self.profile } else { &self.name }
    }

    /// What of the clients it concerns, in files and reports: its scope, or `all` where it hits the broker and with it every
    /// connection.
    #[must_use]
    pub fn reach(&self) -> &'static str {
        if self.act.is_some_and(Act::hits_all) { "all" } else { self.scope.name() }
    }

    /// Whether nothing is done to the path or the peer: everything is watched and counted all the same.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.drop.is_none() && self.act.is_none()
    }

    /// Whether RST, FIN and ICMP that reach the client void the trial, as far as the way to the client is cut.
    #[must_use]
    pub fn silent(&self) -> bool {
        // A host that takes an address over and drops what it does not know.
        let swallowed = self.act == Some(Act::FailOver) && !self.drop.is_none();
        match self.middlebox {
            Some(middlebox) => middlebox.silent(),
            None => self.act.is_none_or(Act::silent) || swallowed,
        }
    }

    /// Whether it concerns the handshake, and not a connection that stands.
    #[must_use]
    pub fn in_handshake(&self) -> bool {
        self.act.is_some_and(Act::in_handshake)
    }

    /// How often it comes.
    #[must_use]
    pub fn times(&self) -> u32 {
        self.repeat.map_or(1, |repeat| repeat.times)
    }
}
