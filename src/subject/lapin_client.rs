//! The real `lapin` client, consuming from RabbitMQ.
//!
//! One tokio task a connection, beside the thread that `lapin` itself starts for each. The notice is the first error
//! that the consumer's stream returns; `lapin` has no read timeout, its heartbeat check is what bounds silence.

use super::amqp::{self, FRAME_MAX, Wishes, whole_seconds};
use super::attempts::{End, Trial};
use super::{causes, socket};
use crate::events::{Cause, EffectiveOptions, How, Kind, Tuple};
use crate::scenario::Ack;
use crate::units::Offset;
use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Connection, Consumer};
use socket2::SockRef;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long an orderly `connection.close` may take before the socket is shut down.
const CLOSING: Duration = Duration::from_secs(1);

/// Lives until the trial is closed.
pub(super) async fn run(trial: Trial, gate: Arc<Semaphore>) {
    let trial = Arc::new(trial);
    for attempt in 0.. {
        // Only first attempts come in thousands at a time; a reconnect's clock must not include a queue of ours.
        let mut place = match attempt {
            0 => gate.clone().acquire_owned().await.ok(),
            _ => None,
        };
        if trial.stop.is_stopped() {
            return;
        }
        let started = trial.begin(attempt);
        let end = match open(&trial, attempt, started).await {
            Ok(session) => {
                drop(place.take());
                trial.event(Kind::Ready { attempt });
                consume(&trial, attempt, session).await
            }
            Err((at, cause)) => End::Failed { at, cause },
        };
        drop(place);
        trial.stop.unwatch();
        if trial.stop.is_stopped() {
            return;
        }
        let pause = trial.finish(attempt, started, end);
        tokio::select! {
            () = trial.stop.stopped() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What consumes.
struct Session {
    connection: Connection,
    consumer: Consumer,
    tuple: Option<Tuple>,
}

/// Opens connection, channel and consumer, all under the connect timeout.
async fn open(trial: &Arc<Trial>, attempt: u32, started: Offset) -> Result<Session, (Offset, Cause)> {
    let failed = |cause| (trial.reporter.now(), cause);
    let tuple: Arc<Mutex<Option<Tuple>>> = Arc::default();
    let connected = {
        let (trial, tuple) = (trial.clone(), tuple.clone());
        move |found: Tuple| {
            *tuple.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            trial.connected(trial.reporter.now(), attempt, found);
        }
    };
    let limit = trial.settings.connect_timeout.get();
    let wishes = Wishes {
        settings: Some(trial.settings.clone()),
        heartbeat_s: trial.settings.heartbeat.map(|setting| setting.get().map_or(0, whole_seconds)),
        frame_max: trial.settings.frame_max.unwrap_or(FRAME_MAX),
        connect_timeout: limit,
        name: format!("halfopen trial {} attempt {attempt}", trial.id),
    };
    let connection = amqp::open(&trial.target, wishes, Arc::new(connected)).await.map_err(failed)?;
    let tuple = *tuple.lock().unwrap_or_else(PoisonError::into_inner);
    trial.event(Kind::Options { attempt, effective: effective(trial, &connection, tuple) });
    let left = limit.map(|limit| limit.saturating_sub(trial.reporter.now().since(started)));
    let subscribed = match left {
        Some(left) => tokio::time::timeout(left, subscribe(trial, &connection)).await,
        None => Ok(subscribe(trial, &connection).await),
    };
    let cause = match subscribed {
        Ok(Ok(consumer)) => return Ok(Session { connection, consumer, tuple }),
        Ok(Err(error)) => causes::of_lapin(&error),
        Err(_) => causes::cause(How::ConnectTimeout, None, "no answer while subscribing"),
    };
    let failure = failed(cause);
    tokio::spawn(close(connection, tuple));
    Err(failure)
}

fn effective(trial: &Trial, connection: &Connection, tuple: Option<Tuple>) -> EffectiveOptions {
    let options = tuple.and_then(socket::find).map(|own| socket::effective(SockRef::from(&own)));
    EffectiveOptions {
        heartbeat_s: Some(connection.configuration().heartbeat().into()),
        frame_max: Some(connection.configuration().frame_max()),
        prefetch: trial.settings.prefetch,
        ..options.unwrap_or_default()
    }
}

async fn subscribe(trial: &Trial, connection: &Connection) -> lapin::Result<Consumer> {
    let channel = connection.create_channel().await?;
    if let Some(prefetch) = trial.settings.prefetch {
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    }
    amqp::declare(&channel, &trial.target.queue, false).await?;
    let tag = format!("trial-{}", trial.id);
    let options = BasicConsumeOptions::default();
    channel.basic_consume(trial.target.queue.as_str().into(), tag.into(), options, FieldTable::default()).await
}

async fn consume(trial: &Arc<Trial>, attempt: u32, mut session: Session) -> End {
    // Closing the trial shuts the socket down, which ends this stream like any other end.
    let (at, cause, error) = loop {
        let next = session.consumer.next().await;
        let at = trial.reporter.now();
        match next {
            Some(Ok(delivery)) => handle(trial, attempt, at, delivery),
            Some(Err(error)) => break (at, causes::of_lapin(&error), Some(error)),
            None => break (at, causes::cause(How::ClosedByPeer, None, "the consumer was cancelled"), None),
        }
    };
    // lapin has ended the connection itself after an I/O error or missing heartbeats; after the end of a channel or a
    // consumer it lives on and must be closed.
    if error.is_none_or(|error| error.is_amqp_soft_error()) {
        tokio::spawn(close(session.connection, session.tuple));
    }
    End::Noticed { at, cause }
}

/// Reports a delivery, acknowledges and works on it, beside the following ones: prefetch bounds how many.
fn handle(trial: &Arc<Trial>, attempt: u32, at: Offset, delivery: Delivery) {
    let Some(message) = std::str::from_utf8(&delivery.data).ok().and_then(|text| text.parse().ok()) else {
        trial.reporter.note(format!("trial {}: a payload that is no number", trial.id));
        return;
    };
    trial.event_at(at, Kind::Delivered { attempt, message, redelivered: delivery.redelivered });
    let trial = trial.clone();
    tokio::spawn(async move {
        let late = trial.settings.ack.unwrap_or(Ack::Late) == Ack::Late;
        if late {
            work(&trial, attempt, message).await;
        }
        // A failure needs no report: the consumer's stream returns the error that caused it.
        if delivery.acker.ack(BasicAckOptions::default()).await.is_ok_and(|sent| sent) {
            trial.event(Kind::Acked { attempt, message });
        }
        if !late {
            work(&trial, attempt, message).await;
        }
    });
}

/// The work, written down in the task store where there is one: then off the runtime's threads, since a store can be
/// busy.
async fn work(trial: &Arc<Trial>, attempt: u32, message: u64) {
    if !trial.work_blocks() {
        trial.begin_work(attempt, message);
        tokio::time::sleep(trial.settings.work()).await;
        trial.finish_work(attempt, message);
        return;
    }
    let own = trial.clone();
    let begun = tokio::task::spawn_blocking(move || own.begin_work(attempt, message)).await;
    // What is not there to be begun is acknowledged without work: it was failed meanwhile, or is done.
    if begun.unwrap_or(false) {
        tokio::time::sleep(trial.settings.work()).await;
        let own = trial.clone();
        let _ = tokio::task::spawn_blocking(move || own.finish_work(attempt, message)).await;
    }
}

/// An orderly end, by force when the path doesn't let it through.
async fn close(connection: Connection, tuple: Option<Tuple>) {
    let orderly = tokio::time::timeout(CLOSING, connection.close(200, "bye".into())).await;
    if orderly.is_err()
        && let Some(own) = tuple.and_then(socket::find)
    {
        socket::shut_down(&own);
    }
}
