//! A second, healthy consumer beside the client under test: whoever gets what the broker takes back from a dead connection.
//!
//! It shares the producer's process and place, which no fault touches, over a connection of its own. It works on nothing: a
//! message is done when it comes. What is left out: Redis, whose server gives nothing back (`second_redis`).

use super::{Link, Numbered, PAUSE};
use crate::events::Kind;
use crate::subject::causes;
use crate::units::Offset;
use futures::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use std::sync::Arc;

/// One message at a time: it holds nothing back that the client under test could have had.
const PREFETCH: u16 = 1;

/// The second consumer of one trial's queue.
pub(super) struct Second {
    /// The trial's messages, as they are published.
    pub numbered: Arc<Numbered>,
    /// Its own connection.
    pub link: Arc<Link>,
    /// When it begins.
    pub from: Offset,
}

impl Second {
    /// Consumes until the trial is closed.
    pub async fn run(&self) {
        tokio::select! {
            () = self.numbered.stop.stopped() => {}
            () = self.consume_for_ever() => {}
        }
    }

    async fn consume_for_ever(&self) {
        let Numbered { trial, reporter, .. } = self.numbered.as_ref();
        tokio::time::sleep(self.from.since(reporter.now())).await;
        loop {
            let why = match self.consume().await {
                Ok(()) => "it was cancelled".to_string(),
                Err(error) => causes::of_lapin(&error).text,
            };
            reporter.note(format!("second consumer of trial {trial}: {why}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn consume(&self) -> lapin::Result<()> {
        let Numbered { trial, reporter, target, .. } = self.numbered.as_ref();
        let channel = self.link.another_channel(target, reporter).await?;
        self.numbered.have_queue(&channel).await?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let (queue, tag) = (target.queue.as_str(), format!("second-{trial}"));
        let options = BasicConsumeOptions::default();
        let mut consumer = channel.basic_consume(queue.into(), tag.into(), options, FieldTable::default()).await?;
        while let Some(delivery) = consumer.next().await {
            let delivery = delivery?;
            let at = reporter.now();
            let number = delivery.properties.message_id().as_ref().and_then(|id| id.as_str().parse().ok());
            delivery.acker.ack(BasicAckOptions::default()).await?;
            match number {
                Some(message) => {
                    reporter.event(at, *trial, Kind::Elsewhere { message, redelivered: delivery.redelivered });
                }
                None => reporter.note(format!("second consumer of trial {trial}: a message without a number")),
            }
        }
        Ok(())
    }
}
