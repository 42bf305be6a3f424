//! What the transport and the consumer of a trial promise, for its ledger.

use super::trial::Case;
use crate::ledger::Terms;
use crate::scenario::{BrokerKind, SubjectKind};

/// By the subject and its arm: RabbitMQ keeps a message until it is acknowledged, `BRPOP` and bare TCP give it away for
/// good, kombu on Redis keeps it too; a program that is watched from outside shows its effects only.
pub(super) fn terms(case: &Case<'_>) -> Terms {
    let settings = &case.arm.settings;
    let (broker, outside) = (settings.subject.broker(), settings.subject.is_command());
    let keeps = acknowledges(settings.subject, settings.ack.is_some());
    let longest = case.scenario.jobs.iter().filter_map(|job| job.work).max();
    let (terms, work) = (Terms::default(), longest.unwrap_or_default().max(settings.work()));
    let (jobs, delivery) = (&case.scenario.jobs, &settings.delivery);
    let one_line = jobs.iter().all(|job| job.priority == jobs[0].priority)
        && delivery.consumers.is_none_or(|n| n == 1)
        && !delivery.routes_at_all(jobs);
    Terms {
        kept: broker == BrokerKind::Rabbitmq || outside || keeps,
        confirmed: broker != BrokerKind::None,
        acknowledged: keeps,
        // A sweep is no task.
        recorded: case.scenario.keeps_tasks() && !outside && case.scenario.sweeps_of(case.arm).is_none(),
        // A program works on several at a time, and its effects are all that is seen.
        ordered: !outside && one_line,
        inside: !outside,
        // Work that may still be going on at the end is no omission.
        grace_ms: terms.grace_ms.saturating_add(u64::try_from(work.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// Whether a subject of our own acknowledges, and says so.
pub(super) fn acknowledges(subject: SubjectKind, asked: bool) -> bool {
    asked && matches!(subject, SubjectKind::Lapin | SubjectKind::AmqpBlocking | SubjectKind::RedisBlocking)
}
