//! Timers above the kernel: AMQP heartbeats by client, Redis, RabbitMQ's own, liveness keys and schedulers.
//!
//! Each rule names its source. Left out: what a client does after it noticed (reconnecting is the subject's matter), and
//! protocols other than AMQP 0-9-1 and Redis.

pub mod amqp;
pub mod broker;
pub mod reapers;
