//! The producer process: numbered messages to the real brokers, over connections that no fault ever touches.

use super::child::{self, Role};
use super::protocol::{Command, Routing, Task};
use super::report::Reporter;
use super::subject_process::LIBRARIES;
use super::tasks::TaskLog;
use super::{publish_amqp, publish_redis};
use crate::events::Source;
use crate::scenario::BrokerKind;
use crate::units::Offset;
use std::io;
use std::time::Duration;

pub(super) fn main(args: &[String]) -> i32 {
    child::run(args, Source::Producer, &LIBRARIES, |reporter| {
        let tasks = TaskLog::of_args(args)?;
        Ok(Producer {
            reporter: reporter.clone(),
            amqp: publish_amqp::Publisher::start(reporter.clone(), tasks.clone())?,
            redis: publish_redis::Publisher::start(reporter.clone(), tasks)?,
        })
    })
}

/// What a trial's messages are.
pub(super) struct Wanted {
    /// Time between two of them.
    pub interval: Duration,
    /// What they are, where they are more than their numbers.
    pub task: Option<Task>,
    /// The kinds of work, and where they go.
    pub routing: Box<Routing>,
    /// From when on a second consumer is on the queue; `None` is never.
    pub second: Option<Offset>,
    /// Whether each of them is a task, where there is a task store.
    pub tracked: bool,
}

struct Producer {
    reporter: Reporter,
    amqp: publish_amqp::Publisher,
    redis: publish_redis::Publisher,
}

impl Role for Producer {
    fn command(&mut self, command: Command) {
        let result: io::Result<()> = match command {
            Command::Publish {
                trial,
                broker,
                target,
                interval,
                task,
                routing,
                second_consumer,
                second_from,
                untracked,
            } => {
                let second = second_consumer.then(|| second_from.unwrap_or_else(|| self.reporter.now()));
                let wanted = Wanted { interval, task, routing, second, tracked: !untracked };
                match broker {
                    BrokerKind::Rabbitmq => {
                        self.amqp.publish(trial, target, wanted);
                        Ok(())
                    }
                    BrokerKind::Redis => self.redis.publish(trial, target, wanted),
                    BrokerKind::None => Err(io::Error::other("bare TCP has no queue to publish to")),
                }
            }
            Command::Close { trial } => {
                self.amqp.close(trial);
                self.redis.close(trial)
            }
            Command::Republish { trial, message } => {
                self.amqp.republish(trial, message);
                self.redis.republish(trial, message)
            }
            Command::Reissue { trial, of } => {
                self.amqp.reissue(trial, of);
                self.redis.reissue(trial, of)
            }
            Command::Reap { .. } | Command::Attend { .. } => {
                Err(io::Error::other("a producer neither reaps nor waits"))
            }
            Command::Await { trial, .. } => {
                Err(io::Error::other(format!("a producer waits for no task (trial {trial})")))
            }
            Command::Open { trial, .. } => Err(io::Error::other(format!("a producer opens no client (trial {trial})"))),
            Command::Inspect { trial, .. } => Err(io::Error::other(format!("a producer is no client (trial {trial})"))),
            Command::Fill { trial } => Err(io::Error::other(format!("a producer fills no window (trial {trial})"))),
            Command::HaltAt { trial, .. } | Command::GoOn { trial } => {
                Err(io::Error::other(format!("a producer does no work (trial {trial})")))
            }
            Command::Call { trial } => Err(io::Error::other(format!("a producer makes no call (trial {trial})"))),
            Command::Quit => Ok(()),
        };
        if let Err(error) = result {
            self.reporter.note(format!("producer: {error}"));
        }
    }
}
