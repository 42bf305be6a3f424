//! The real `lapin` client, consuming from RabbitMQ.
//!
//! One tokio task a connection, beside the thread that `lapin` itself starts for each. The notice is the first error
//! that the consumer's stream returns; `lapin` has no read timeout, its heartbeat check is what bounds silence.

use super::amqp::{self, FRAME_MAX, Wishes, whole_seconds};
use super::attempts::{End, Trial};
use super::message::{PICKLE, number_in};
use super::topology;
use super::{causes, socket};
use crate::events::{Cause, EffectiveOptions, How, Kind, Tuple};
use crate::scenario::Ack;
use crate::units::Offset;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, BasicRejectOptions,
    ConfirmSelectOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection};
use socket2::SockRef;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long an orderly `connection.close` may take before the socket is shut down.
const CLOSING: Duration = Duration::from_secs(1);

/// Lives until the trial is closed.
pub(super) async fn run(trial: Trial, gate: Arc<Semaphore>) {
    let trial = Arc::new(trial);
    for attempt in trial.first_attempt.. {
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
    /// What comes, with the name of the queue that it comes out of.
    deliveries: BoxStream<'static, (String, lapin::Result<Delivery>)>,
    /// Where failed tasks are published again.
    retries: Option<Channel>,
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
        Ok(Ok((deliveries, retries))) => return Ok(Session { connection, deliveries, retries, tuple }),
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

/// What comes, by queue, and where failed tasks go.
type Subscribed = (BoxStream<'static, (String, lapin::Result<Delivery>)>, Option<Channel>);

/// One consumer for each queue, or as many as are asked for: each with a channel and so a prefetch of its own.
async fn subscribe(trial: &Trial, connection: &Connection) -> lapin::Result<Subscribed> {
    let (own, routing) = (trial.target.queue.as_str(), &trial.routing);
    let queues = routing.delivery.queues(&routing.jobs);
    let consumers = routing.delivery.consumers.map_or(queues.len(), |n| n as usize);
    let mut all = Vec::new();
    for (index, name) in queues.iter().cycle().take(consumers).enumerate() {
        let channel = connection.create_channel().await?;
        if let Some(prefetch) = trial.settings.prefetch {
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        }
        if index == 0 {
            topology::declare(&channel, own, routing, trial.target.durable).await?;
        }
        let (queue, tag) = (topology::queue_name(own, name), format!("trial-{}-{index}", trial.id));
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(queue.into(), tag.into(), options, FieldTable::default()).await?;
        let name = (*name).to_string();
        all.push(consumer.map(move |next| (name.clone(), next)).boxed());
    }
    let retries = match routing.delivery.retry {
        Some(_) => {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Some(channel)
        }
        None => None,
    };
    Ok((stream::select_all(all).boxed(), retries))
}

async fn consume(trial: &Arc<Trial>, attempt: u32, mut session: Session) -> End {
    // Closing the trial shuts the socket down, which ends this stream like any other end.
    let (at, cause, error) = loop {
        let next = session.deliveries.next().await;
        let at = trial.reporter.now();
        match next {
            Some((queue, Ok(delivery))) => {
                let retries = session.retries.clone();
                handle(&Handling { trial: trial.clone(), attempt, queue, retries }, at, delivery);
            }
            Some((_, Err(error))) => break (at, causes::of_lapin(&error), Some(error)),
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

/// Whose delivery it is, and where it came from.
#[derive(Clone)]
struct Handling {
    trial: Arc<Trial>,
    attempt: u32,
    queue: String,
    retries: Option<Channel>,
}

/// Reports a delivery, acknowledges and works on it, beside the following ones: prefetch bounds how many.
fn handle(own: &Handling, at: Offset, delivery: Delivery) {
    let (trial, attempt) = (&own.trial, own.attempt);
    let Some(message) = number_in(&delivery) else {
        trial.reporter.note(format!("trial {}: a payload that is no number", trial.id));
        return;
    };
    trial.event_at(at, Kind::Delivered { attempt, message, redelivered: delivery.redelivered });
    if trial.routing.has_routes() {
        trial.event_at(at, Kind::Routed { message, queue: own.queue.clone() });
    }
    let own = own.clone();
    tokio::spawn(async move {
        let (trial, attempt) = (&own.trial, own.attempt);
        // What it can't read it must not even look at.
        if delivery.properties.content_type().as_ref().is_some_and(|kind| kind.as_str() == PICKLE) {
            return own.reject(message, &delivery).await;
        }
        let late = trial.settings.ack.unwrap_or(Ack::Late) == Ack::Late;
        if !late {
            own.ack(message, &delivery).await;
        }
        let retry = retries_of(&delivery);
        if retry >= trial.fails(message) {
            if !work(trial, attempt, message).await {
                return;
            }
        } else {
            trial.begin_work(attempt, message);
            tokio::time::sleep(trial.work_of(message)).await;
            trial.fail_work(message);
            if !own.again(message, retry, &delivery).await {
                return own.reject(message, &delivery).await;
            }
        }
        if late {
            own.ack(message, &delivery).await;
        }
    });
}

/// How often a message was tried before.
fn retries_of(delivery: &Delivery) -> u32 {
    let headers = delivery.properties.headers().as_ref();
    match headers.and_then(|all| all.inner().get(RETRIES)) {
        Some(AMQPValue::LongInt(n)) => u32::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}

/// Celery's header for it.
const RETRIES: &str = "retries";

impl Handling {
    /// A failure needs no report: the consumer's stream returns the error that caused it.
    async fn ack(&self, message: u64, delivery: &Delivery) {
        if delivery.acker.ack(BasicAckOptions::default()).await.is_ok_and(|sent| sent) {
            self.trial.event(Kind::Acked { attempt: self.attempt, message });
        }
    }

    /// For good. Of one that was acknowledged on receipt the broker knows nothing any more: lapin sends nothing then.
    async fn reject(&self, message: u64, delivery: &Delivery) {
        let options = BasicRejectOptions { requeue: false };
        if delivery.acker.reject(options).await.is_ok_and(|sent| sent) {
            self.trial.event(Kind::Refused { attempt: self.attempt, message });
        }
    }

    /// Publishes a failed task once more after its back-off, to the queue that it came out of; false where it is given up.
    async fn again(&self, message: u64, retry: u32, delivery: &Delivery) -> bool {
        let (Some(backoff), Some(channel)) = (self.trial.settings.delivery.retry, &self.retries) else { return false };
        if backoff.tries.is_some_and(|tries| retry >= tries) {
            return false;
        }
        tokio::time::sleep(backoff.delay(retry, self.trial.draw(message, retry))).await;
        let mut headers = delivery.properties.headers().clone().unwrap_or_default();
        headers.insert(RETRIES.into(), AMQPValue::LongInt(i32::try_from(retry + 1).unwrap_or(i32::MAX)));
        let properties = delivery.properties.clone().with_headers(headers);
        let queue = topology::queue_name(&self.trial.target.queue, &self.queue);
        let options = BasicPublishOptions::default();
        let handed = channel.basic_publish("".into(), queue.into(), options, &delivery.data, properties).await;
        let Ok(confirm) = handed else { return true };
        if confirm.await.is_ok() {
            self.trial.event(Kind::Retried { attempt: self.attempt, message, retry: retry + 1 });
        }
        true
    }
}

/// The work, and whether it came to an end. Where its steps may block (a store can be busy) they are taken off the runtime's
/// threads.
async fn work(trial: &Arc<Trial>, attempt: u32, message: u64) -> bool {
    let (before, after) = trial.work(message);
    // What is not there to be begun is acknowledged without work: it was failed meanwhile, or is done.
    if !step(trial, move |trial| trial.begin_work(attempt, message)).await {
        return true;
    }
    tokio::time::sleep(before).await;
    if !step(trial, move |trial| trial.make_effect(attempt, message)).await {
        return false;
    }
    tokio::time::sleep(after).await;
    step(trial, move |trial| {
        trial.finish_work(attempt, message);
        true
    })
    .await
}

async fn step(trial: &Arc<Trial>, step: impl FnOnce(&Trial) -> bool + Send + 'static) -> bool {
    if !trial.blocks() {
        return step(trial);
    }
    let own = trial.clone();
    tokio::task::spawn_blocking(move || step(&own)).await.unwrap_or(false)
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
