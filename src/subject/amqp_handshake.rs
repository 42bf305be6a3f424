//! From a connected socket to a subscribed consumer: py-amqp's side of the AMQP handshake, blocking, step by step.

use super::amqp_heartbeat::negotiate;
use super::amqp_wire::{Arrival, Failure, Wire};
use amq_protocol::auth::Credentials;
use amq_protocol::frame::{AMQPFrame, ProtocolVersion};
use amq_protocol::protocol::{AMQPClass, basic, channel, connection, queue};
use amq_protocol::types::{AMQPValue, FieldTable, LongString, ShortString};
use amq_protocol::uri::SASLMechanism;

/// What the client asks for.
#[derive(Debug, Clone)]
pub(super) struct Wishes<'a> {
    /// Login; empty is `guest`.
    pub user: &'a str,
    /// Password; empty is `guest`.
    pub password: &'a str,
    /// The name in the broker's tables and log.
    pub name: String,
    /// Heartbeat in seconds; 0 is none.
    pub heartbeat_s: u16,
    /// Largest frame in bytes.
    pub frame_max: u32,
    /// The queue to consume from.
    pub queue: &'a str,
    /// Whether it outlives the broker.
    pub durable: bool,
    /// The consumer's tag.
    pub tag: String,
    /// `basic.qos`; none leaves the broker's.
    pub prefetch: Option<u16>,
}

/// What both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The heartbeat in force in seconds; 0 is none.
    pub heartbeat_s: u16,
    /// Largest frame in bytes.
    pub frame_max: u32,
}

/// Opens connection and channel, declares the queue and subscribes.
///
/// # Errors
/// The first step that fails.
pub(super) fn shake_hands(wire: &mut Wire, wishes: &Wishes<'_>) -> Result<Agreed, Failure> {
    wire.line().send(&AMQPFrame::ProtocolHeader(ProtocolVersion::amqp_0_9_1()))?;
    let agreed = open_connection(wire, wishes)?;
    let ask = channel::AMQPMethod::Open(channel::Open {});
    call(wire, AMQPClass::Channel(ask), |reply| {
        matches!(reply, AMQPClass::Channel(channel::AMQPMethod::OpenOk(_))).then_some(())
    })?;
    if let Some(prefetch) = wishes.prefetch {
        call(wire, qos(prefetch), is_qos_ok)?;
    }
    let queue = short(wishes.queue)?;
    // The same flags as the producer's: a difference closes the channel.
    let declare = queue::Declare { queue: queue.clone(), durable: wishes.durable, ..queue::Declare::default() };
    call(wire, AMQPClass::Queue(queue::AMQPMethod::Declare(declare)), |reply| {
        matches!(reply, AMQPClass::Queue(queue::AMQPMethod::DeclareOk(_))).then_some(())
    })?;
    let consume = basic::Consume { queue, consumer_tag: short(&wishes.tag)?, ..basic::Consume::default() };
    call(wire, AMQPClass::Basic(basic::AMQPMethod::Consume(consume)), |reply| {
        matches!(reply, AMQPClass::Basic(basic::AMQPMethod::ConsumeOk(_))).then_some(())
    })?;
    Ok(agreed)
}

/// `basic.qos`.
pub(super) fn qos(prefetch_count: u16) -> AMQPClass {
    AMQPClass::Basic(basic::AMQPMethod::Qos(basic::Qos { prefetch_count, global: false }))
}

/// Its reply.
pub(super) fn is_qos_ok(method: &AMQPClass) -> Option<()> {
    matches!(method, AMQPClass::Basic(basic::AMQPMethod::QosOk(_))).then_some(())
}

fn open_connection(wire: &mut Wire, wishes: &Wishes<'_>) -> Result<Agreed, Failure> {
    use connection::AMQPMethod as M;
    wait(wire, |method| matches!(method, AMQPClass::Connection(M::Start(_))).then_some(()))?;
    let or_guest = |text: &str| LongString::from(if text.is_empty() { "guest" } else { text }.to_string());
    let credentials = Credentials::new(or_guest(wishes.user), or_guest(wishes.password));
    let start_ok = connection::StartOk {
        client_properties: properties(&wishes.name),
        mechanism: "PLAIN".into(),
        response: credentials.sasl_auth_string(SASLMechanism::Plain),
        locale: "en_US".into(),
    };
    let tune = call(wire, AMQPClass::Connection(M::StartOk(start_ok)), |reply| match reply {
        AMQPClass::Connection(M::Tune(tune)) => Some(tune.clone()),
        _ => None,
    })?;
    let agreed = Agreed {
        heartbeat_s: negotiate(wishes.heartbeat_s, tune.heartbeat),
        frame_max: if tune.frame_max == 0 { wishes.frame_max } else { tune.frame_max.min(wishes.frame_max) },
    };
    wire.limit(agreed.frame_max);
    let Agreed { heartbeat_s: heartbeat, frame_max } = agreed;
    let tune_ok = connection::TuneOk { channel_max: tune.channel_max, frame_max, heartbeat };
    wire.send(AMQPClass::Connection(M::TuneOk(tune_ok)))?;
    let open = connection::Open { virtual_host: "/".into() };
    call(wire, AMQPClass::Connection(M::Open(open)), |reply| {
        matches!(reply, AMQPClass::Connection(M::OpenOk(_))).then_some(())
    })?;
    Ok(agreed)
}

/// What py-amqp says it understands: the broker may cancel a consumer, and says why it refuses a login.
fn properties(name: &str) -> FieldTable {
    let mut capabilities = FieldTable::default();
    for capability in ["consumer_cancel_notify", "connection.blocked", "authentication_failure_close"] {
        capabilities.insert(capability.into(), AMQPValue::Boolean(true));
    }
    let text = |text: &str| AMQPValue::LongString(text.to_string().into());
    let mut properties = FieldTable::default();
    properties.insert("product".into(), text("halfopen"));
    properties.insert("connection_name".into(), text(name));
    properties.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    properties
}

fn short(text: &str) -> Result<ShortString, Failure> {
    ShortString::try_new(text).map_err(|error| Failure::Unexpected(error.to_string()))
}

/// A call whose reply is waited for.
fn call<T>(wire: &mut Wire, method: AMQPClass, want: impl Fn(&AMQPClass) -> Option<T>) -> Result<T, Failure> {
    wire.send(method)?;
    wait(wire, want)
}

/// Nothing but the reply may come: no consumer is subscribed yet.
fn wait<T>(wire: &mut Wire, want: impl Fn(&AMQPClass) -> Option<T>) -> Result<T, Failure> {
    loop {
        match wire.next()? {
            Arrival::Method(AMQPClass::Connection(
                connection::AMQPMethod::Blocked(_) | connection::AMQPMethod::Unblocked(_),
            )) => {}
            Arrival::Method(method) => {
                return want(&method).ok_or_else(|| Failure::Unexpected(format!("{method:?}")));
            }
            Arrival::Message { .. } => return Err(Failure::Unexpected("a message before the subscription".into())),
        }
    }
}
