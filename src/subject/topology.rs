//! The queues of a trial, the exchange before them and their bindings, as `lapin` declares them on RabbitMQ.
//!
//! Publisher and consumer declare the same, whoever comes first. Which queue a message must come out of is
//! `scenario::routing`'s to say; here it is only asked of the broker. What is left out: queues of programs of somebody
//! else's, which declare their own.

use super::protocol::Routing;
use crate::scenario::{DEFAULT_QUEUE, Delivery, Exchange, Match};
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{Channel, ExchangeKind};

/// A queue of the trial by its name in the scenario.
pub(super) fn queue_name(own: &str, name: &str) -> String {
    if name == DEFAULT_QUEUE { own.to_string() } else { format!("{own}.{name}") }
}

/// The queue of what consumers rejected.
pub(super) fn dead_letters(own: &str) -> String {
    format!("{own}.dead")
}

/// The exchange that messages are published to.
pub(super) fn exchange_name(own: &str) -> String {
    format!("{own}.x")
}

/// What the trial's queues are declared with.
pub(super) fn arguments(own: &str, delivery: &Delivery) -> FieldTable {
    let mut all = FieldTable::default();
    if let Some(priority) = delivery.max_priority {
        all.insert("x-max-priority".into(), AMQPValue::LongInt(priority.into()));
    }
    if delivery.quorum {
        all.insert("x-queue-type".into(), text("quorum"));
    }
    if delivery.dead_letters {
        all.insert("x-dead-letter-exchange".into(), text(""));
        all.insert("x-dead-letter-routing-key".into(), text(&dead_letters(own)));
    }
    all
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

fn kind(exchange: Exchange) -> Option<ExchangeKind> {
    match exchange {
        Exchange::None => None,
        Exchange::Direct => Some(ExchangeKind::Direct),
        Exchange::Topic => Some(ExchangeKind::Topic),
        Exchange::Fanout => Some(ExchangeKind::Fanout),
        Exchange::Headers => Some(ExchangeKind::Headers),
    }
}

/// Declares all of it. Consumer and publisher must ask for the same: a difference closes the channel.
///
/// Queues that are not durable (nothing outlives the run) are neither exclusive nor deleted with their last consumer: a
/// reconnect must find them, with the messages that waited.
///
/// # Errors
/// The client's.
pub(super) async fn declare(channel: &Channel, own: &str, routing: &Routing, durable: bool) -> lapin::Result<()> {
    let delivery = &routing.delivery;
    let options = QueueDeclareOptions { durable, ..QueueDeclareOptions::default() };
    // RabbitMQ has no quorum queue that is not.
    let own_options = QueueDeclareOptions { durable: durable || delivery.quorum, ..options };
    for name in delivery.queues(&routing.jobs) {
        channel.queue_declare(queue_name(own, name).into(), own_options, arguments(own, delivery)).await?;
    }
    if delivery.dead_letters {
        channel.queue_declare(dead_letters(own).into(), options, FieldTable::default()).await?;
    }
    let Some(kind) = kind(delivery.exchange) else { return Ok(()) };
    let (exchange, rest) = (exchange_name(own), format!("{own}.rest"));
    let plain = ExchangeDeclareOptions::default();
    channel.exchange_declare(rest.as_str().into(), ExchangeKind::Fanout, plain, FieldTable::default()).await?;
    let bind = QueueBindOptions::default();
    channel.queue_bind(own.into(), rest.as_str().into(), "".into(), bind, FieldTable::default()).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("alternate-exchange".into(), text(&rest));
    channel.exchange_declare(exchange.as_str().into(), kind, plain, arguments).await?;
    for (pattern, name) in &delivery.routes {
        let queue = queue_name(own, name);
        let (key, wanted) = match delivery.exchange {
            Exchange::Headers => ("", headers(pattern)),
            _ => (pattern.as_str(), FieldTable::default()),
        };
        channel.queue_bind(queue.into(), exchange.as_str().into(), key.into(), bind, wanted).await?;
    }
    Ok(())
}

/// A binding's arguments on a headers exchange.
fn headers(pattern: &str) -> FieldTable {
    let mut all = FieldTable::default();
    if let Some(wanted) = Match::parse(pattern) {
        all.insert("x-match".into(), text(if wanted.any { "any" } else { "all" }));
        for (name, value) in wanted.wanted {
            all.insert(ShortString::from(name), text(value));
        }
    }
    all
}

/// Exchange and routing key of a message.
pub(super) fn address(own: &str, routing: &Routing, message: u64) -> (String, String) {
    let Some(job) = routing.job_of(message) else { return (String::new(), own.to_string()) };
    if routing.delivery.exchange == Exchange::None || job.queue.is_some() {
        let name = routing.delivery.destinations(job).first().copied().unwrap_or(DEFAULT_QUEUE);
        return (String::new(), queue_name(own, name));
    }
    (exchange_name(own), job.name.clone())
}
