//! What the transport and the consumer of a trial promise, for its ledger.

use super::trial::Case;
use crate::ledger::Terms;
use crate::scenario::{BrokerKind, SubjectKind};

/// By the subject and its arm: RabbitMQ keeps a message until it is acknowledged, `BRPOP` and bare TCP give it away for
/// good, kombu on Redis keeps it too; a program that is watched from outside shows its effects only.
pub(super) fn terms(case: &Case<'_>) -> Terms {
    let settings = &case.arm.settings;
    let (broker, outside) = (settings.subject.broker(), settings.subject.is_command());
    let amqp = matches!(settings.subject, SubjectKind::Lapin | SubjectKind::AmqpBlocking);
    let (terms, work) = (Terms::default(), settings.work());
    Terms {
        kept: broker == BrokerKind::Rabbitmq || outside,
        confirmed: broker != BrokerKind::None,
        acknowledged: amqp && settings.ack.is_some(),
        // A sweep is no task.
        recorded: case.scenario.reaper.is_some() && !outside && case.scenario.sweeps_of(case.arm).is_none(),
        // A program works on several at a time, and its effects are all that is seen.
        ordered: !outside,
        inside: !outside,
        // Work that may still be going on at the end is no omission.
        grace_ms: terms.grace_ms.saturating_add(u64::try_from(work.as_millis()).unwrap_or(u64::MAX)),
    }
}
