//! What can happen.

use super::Tuple;
use crate::units::Offset;
use serde::{Deserialize, Serialize};

/// How a client came to know that its connection, or an attempt at one, is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A blocking read returned `EAGAIN`: `SO_RCVTIMEO` ran out.
    ReadTimeout,
    /// A blocking write returned `EAGAIN`: `SO_SNDTIMEO` ran out.
    SendTimeout,
    /// The client's own connect timeout ran out.
    ConnectTimeout,
    /// The system's resolver gave a name up.
    Resolver,
    /// The client's own AMQP heartbeat check found frames missing.
    AmqpHeartbeat,
    /// An application-level health check got no answer.
    HealthCheck,
    /// The kernel returned an error; `errno` says which.
    Errno,
    /// End of file: the peer closed.
    Eof,
    /// The peer closed in its protocol (AMQP `connection.close` or `channel.close`).
    ClosedByPeer,
    /// Anything else; `text` has the client's own words.
    Other,
}

/// A notice with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The class of the notice.
    pub how: How,
    /// The error number, where the kernel gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The client's own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Options as `getsockopt` read them back from the live socket; `None` is "could not be read".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EffectiveOptions {
    /// `SO_RCVTIMEO` in milliseconds; 0 is "none".
    pub so_rcvtimeo_ms: Option<u64>,
    /// `SO_SNDTIMEO` in milliseconds; 0 is "none".
    pub so_sndtimeo_ms: Option<u64>,
    /// `SO_KEEPALIVE`.
    pub keepalive: Option<bool>,
    /// `TCP_KEEPIDLE` in seconds.
    pub keepalive_idle_s: Option<u32>,
    /// `TCP_KEEPINTVL` in seconds.
    pub keepalive_interval_s: Option<u32>,
    /// `TCP_KEEPCNT`.
    pub keepalive_probes: Option<u32>,
    /// `TCP_USER_TIMEOUT` in milliseconds; 0 is "none".
    pub tcp_user_timeout_ms: Option<u32>,
    /// Whether the descriptor is non-blocking, where `SO_RCVTIMEO` does nothing at all.
    pub nonblocking: Option<bool>,
    /// The heartbeat that client and broker agreed on, in seconds; 0 is "none".
    pub heartbeat_s: Option<u32>,
    /// The AMQP frame size agreed on, in bytes.
    pub frame_max: Option<u32>,
    /// The prefetch that was set.
    pub prefetch: Option<u16>,
}

/// A look at one socket through `sock_diag`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketSnapshot {
    /// TCP state by its kernel number (1 = ESTABLISHED).
    pub state: u8,
    /// The running timer: 0 none, 1 retransmission, 2 keepalive, 3 TIME-WAIT, 4 zero-window probe.
    pub timer: u8,
    /// Milliseconds until it expires.
    pub expires_ms: u32,
    /// Retransmissions or probes so far (`idiag_retrans`).
    pub retrans: u8,
    /// Back-off exponent.
    pub backoff: u8,
    /// Keepalive or window probes outstanding.
    pub probes: u8,
    /// Bytes in the receive queue.
    pub rqueue: u32,
    /// Bytes not yet acknowledged.
    pub wqueue: u32,
    /// Segments in flight.
    pub unacked: u32,
    /// Milliseconds since data was last received.
    pub last_data_recv_ms: u32,
    /// Milliseconds since an acknowledgement was last received.
    pub last_ack_recv_ms: u32,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Retransmission timeout in microseconds.
    pub rto_us: u32,
}

/// What the router counted for one trial since its cut. Packets, not bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Offered to the router, client to broker.
    pub offered_to_broker: u64,
    /// Offered to the router, broker to client.
    pub offered_to_client: u64,
    /// Dropped by the fault, client to broker.
    pub dropped_to_broker: u64,
    /// Dropped by the fault, broker to client.
    pub dropped_to_client: u64,
    /// Left the router towards the broker.
    pub passed_to_broker: u64,
    /// Left the router towards the client.
    pub passed_to_client: u64,
    /// RST segments that left the router towards the client.
    pub rst_to_client: u64,
    /// FIN segments that left the router towards the client.
    pub fin_to_client: u64,
    /// ICMP packets that left the router towards the client's address.
    pub icmp_to_client: u64,
    /// RST segments that left the router towards the broker, where a middlebox is in the path; among those that passed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub rst_to_broker: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Counters {
    /// Packets to the broker that were offered and neither dropped by the fault nor passed on.
    #[must_use]
    pub fn lost_to_broker(&self) -> u64 {
        self.offered_to_broker.saturating_sub(self.dropped_to_broker).saturating_sub(self.passed_to_broker)
    }

    /// Packets to the client that were offered and neither dropped by the fault nor passed on.
    #[must_use]
    pub fn lost_to_client(&self) -> u64 {
        self.offered_to_client.saturating_sub(self.dropped_to_client).saturating_sub(self.passed_to_client)
    }
}

/// What happened. Kinds may be added; a reader skips those that it does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// The client starts to connect. Attempt 0 is the connection under test, later ones are reconnects.
    Connecting {
        /// Which attempt.
        attempt: u32,
    },
    /// The TCP handshake is done and the 4-tuple known.
    Connected {
        /// Which attempt.
        attempt: u32,
        /// The connection's name.
        tuple: Tuple,
    },
    /// The harness ended the connection at the broker's end, with a RST, so that the client reconnects.
    HungUp {
        /// The connection's name.
        tuple: Tuple,
        /// Clock reading before the kernel was asked.
        before: Offset,
        /// Clock reading after its answer.
        after: Offset,
        /// What the router had counted for the trial as the cut came wholly into force: the RST, and what was cut before.
        #[serde(default)]
        counted: Counters,
    },
    /// The options that the kernel says are set.
    Options {
        /// Which attempt.
        attempt: u32,
        /// As read back.
        effective: EffectiveOptions,
    },
    /// The client consumes: subscribed, or its blocking read is outstanding.
    Ready {
        /// Which attempt.
        attempt: u32,
    },
    /// A connection attempt failed.
    ConnectFailed {
        /// Which attempt.
        attempt: u32,
        /// Why.
        cause: Cause,
    },
    /// The client noticed the end of its connection: the first moment at which it could act.
    Notice {
        /// Which attempt's connection.
        attempt: u32,
        /// How it came to know.
        cause: Cause,
    },
    /// A numbered message reached the client.
    Delivered {
        /// Which attempt's connection.
        attempt: u32,
        /// The message's number within its trial.
        message: u64,
        /// Whether the broker marked it as delivered before.
        redelivered: bool,
    },
    /// A second consumer of the harness's own, which no fault touches, took the message, did its work and acknowledged it.
    Elsewhere {
        /// The message.
        message: u64,
        /// Whether the broker marked it as delivered before: another consumer had it and did not acknowledge it.
        redelivered: bool,
    },
    /// The client acknowledged a message (its own word; the broker may never hear it).
    Acked {
        /// Which attempt's connection.
        attempt: u32,
        /// The message.
        message: u64,
    },
    /// The client makes a synchronous call, whose reply it waits for.
    Called {
        /// Which attempt's connection.
        attempt: u32,
        /// The method: `basic.qos`.
        method: String,
    },
    /// A bare TCP writer handed a numbered message to its kernel.
    Sent {
        /// Which attempt's connection.
        attempt: u32,
        /// The message.
        message: u64,
    },
    /// The work that a message stands for was done: one external effect, by the consumer's own word, or by the provider's at
    /// which it was made. Of a client that is watched from outside it is the proof of consumption.
    Effect {
        /// The message.
        message: u64,
    },
    /// An effect was taken back at the provider.
    Compensated {
        /// The message.
        message: u64,
    },
    /// The worker stands at a point of its work at which a fault waits for it.
    Halted {
        /// Which attempt's connection had brought the message.
        attempt: u32,
        /// The message.
        message: u64,
        /// The point: `before-effect`, `after-effect`, `after-commit`.
        point: String,
    },
    /// The client's own log says that it gave a connection up.
    Said {
        /// How it came to know, by its words.
        how: How,
        /// The line.
        text: String,
    },
    /// A proxy stands between the two ends of a connection.
    Relayed {
        /// The connection, as the client names it.
        tuple: Tuple,
        /// The proxy's own connection to the broker for it, as the proxy names it.
        upstream: Tuple,
    },
    /// What a connection is for, by what went over it or by the broker's own word.
    Role {
        /// The connection, as the client names it.
        tuple: Tuple,
        /// `consumer`: it subscribed to the trial's queue.
        role: String,
        /// Whose word it is: `rabbitmqctl`, `client_list`; empty is the traffic's.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        from: String,
    },
    /// The process that hosts the subject ended.
    SubjectExited {
        /// Exit status or signal, in words.
        status: String,
    },
    /// The publisher handed a message to the broker.
    Published {
        /// The message.
        message: u64,
    },
    /// The broker confirmed a message to the publisher.
    Confirmed {
        /// The message.
        message: u64,
    },
    /// The embedded peer received a numbered message of a bare TCP writer.
    PeerReceived {
        /// The message.
        message: u64,
    },
    /// The work that a message stands for began; where there is a task store the consumer has written so into it.
    Started {
        /// Which attempt's connection had brought it.
        attempt: u32,
        /// The message.
        message: u64,
    },
    /// That work is done, and the task store knows.
    Finished {
        /// Which attempt's connection had brought it.
        attempt: u32,
        /// The message.
        message: u64,
    },
    /// A consumer rejected a message for good: it will not have it again.
    Refused {
        /// Which attempt's connection.
        attempt: u32,
        /// The message.
        message: u64,
    },
    /// A message that was rejected reached the queue of dead letters.
    DeadLettered {
        /// The message.
        message: u64,
    },
    /// The work on a message failed and its worker has published it once more; the broker has confirmed that.
    Retried {
        /// Which attempt's connection.
        attempt: u32,
        /// The message.
        message: u64,
        /// Which retry it is, from 1.
        retry: u32,
    },
    /// A message came out of this queue, by its name in the scenario.
    Routed {
        /// The message.
        message: u64,
        /// The queue; empty for the trial's own.
        queue: String,
    },
    /// A reaper had the work that a message stands for queued again, by what its store says.
    Requeued {
        /// The message.
        message: u64,
    },
    /// A reaper failed the work that a message stands for, by what its store says.
    Reaped {
        /// The message.
        message: u64,
        /// The rule, by its watcher's name: `queued_timeout` …
        rule: String,
        /// Whether the work's own retries take over: it will be queued again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retried: bool,
    },
    /// A reaper looked at its store. Without a trial where it sweeps by itself; with that of the worker that sweeps, where the
    /// sweep came through the broker.
    Swept {
        /// Rows that it had to judge.
        rows: u64,
        /// Rows that it failed.
        failed: u64,
        /// Why the brake let it fail none, where it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<String>,
    },
    /// A worker gave, or tried to give, a sign of life.
    Beat {
        /// Whether the store took it.
        ok: bool,
        /// How long that took, in microseconds.
        took_us: u64,
    },
    /// A user's poll saw the end of the work that a message stands for.
    Seen {
        /// The message.
        message: u64,
        /// `done` or `failed`.
        status: String,
    },
    /// A user asked for the work of a message once more.
    AskedAgain {
        /// The message.
        message: u64,
    },
    /// A message was published because a user had asked for another one's work once more.
    Reissued {
        /// The new message.
        message: u64,
        /// Its predecessor.
        of: u64,
    },
    /// The embedded peer's own end of the connection came to an end.
    PeerEnded {
        /// The connection, as the client names it.
        tuple: Tuple,
        /// How the peer came to know.
        cause: Cause,
    },
    /// What a client that is a program of somebody else's had used by its end, all of its processes together.
    Used {
        /// User and system time.
        cpu_ms: u64,
        /// The sum of the peaks of resident memory.
        peak_rss_kib: u64,
        /// How many processes it had.
        processes: u32,
    },
    /// The kernel took the connection out of ESTABLISHED.
    KernelEnd {
        /// The connection.
        tuple: Tuple,
        /// The error that the kernel stored (`sk_err`), where a tracepoint showed it; 0 is "none".
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<i32>,
        /// How exact `offset` is: the previous look that still saw the connection, for a poll.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Offset>,
        /// `tracepoint` or `sock_diag`.
        by: String,
    },
    /// A look at the connection's socket.
    Snapshot {
        /// The connection.
        tuple: Tuple,
        /// What was seen.
        socket: SocketSnapshot,
    },
    /// The broker gave the connection up, or lost sight of it.
    BrokerEnd {
        /// The connection, as the client names it.
        tuple: Tuple,
        /// `missed_heartbeats`, `closed`, `timeout`, `gone` …
        reason: String,
        /// The log line or table entry that says so.
        text: String,
    },
    /// The fault is in force: the rule was acknowledged by the kernel.
    FaultApplied {
        /// The connection that was cut.
        tuple: Tuple,
        /// Clock reading before the rule was sent.
        before: Offset,
        /// Clock reading after the kernel's acknowledgement.
        after: Offset,
        /// Age of the last segment received at the cut, in seconds, where `sock_diag` told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        age_at_fault_s: Option<f64>,
    },
    /// The fault could not be put in force.
    FaultFailed {
        /// Why.
        reason: String,
    },
    /// The router's counter of dropped packets was first seen above zero.
    FirstDrop {
        /// The previous reading, which was still zero.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Offset>,
    },
    /// The fault was taken back.
    FaultHealed {
        /// Clock reading before the rule was sent.
        before: Offset,
        /// Clock reading after the kernel's acknowledgement.
        after: Offset,
    },
    /// The fault came again after it had been taken back.
    FaultRepeated {
        /// Which time it is: 2 for the first repetition.
        time: u32,
        /// Clock reading before the rule was sent.
        before: Offset,
        /// Clock reading after the kernel's acknowledgement.
        after: Offset,
    },
    /// A look at what a fault beyond the path does: is the broker really stopped, is it gone?
    Proof {
        /// What was looked at and seen.
        what: String,
        /// Whether it is as the fault says.
        holds: bool,
    },
    /// The router's counts for the trial, read at its end (and at the detection, where there was one).
    Certificate {
        /// The counts.
        counters: Counters,
        /// Whether the rules and elements were all still in place.
        intact: bool,
    },
    /// The trial's horizon was reached, or its watch ended early because nothing more can happen.
    TrialEnded {
        /// `horizon`, `complete` or `interrupted`.
        why: String,
    },
    /// A line for people: what the harness did, or a finding outside a trial.
    Note {
        /// The text.
        text: String,
    },
}
