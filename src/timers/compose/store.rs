//! Watchers of the broker, and of schedulers and reapers that judge by a store.

use super::super::application::broker::{consumer_timeout_window, rabbitmq_gives_up_after, visibility_window};
use super::super::application::reapers::swept;
use super::super::conditions::{FaultKind, FaultScope, Row};
use super::super::draw::Phase;
use super::super::prediction::WatcherState::{NeverArmed, NeverTriggered};
use super::super::settings::BrokerKind;
use super::super::span::Span;
use super::super::watcher::Watcher;
use super::{Findings, Scene};

pub(super) fn add(scene: &Scene<'_>, out: &mut Findings) {
    broker_heartbeat(scene, out);
    unacknowledged(scene, out);
    airflow(scene, out);
    task_table(scene, out);
    match scene.case.settings.reaper.progress.get() {
        Some(limit) => {
            let at = Span::point(limit.as_secs_f64());
            out.fire(Watcher::Progress, at, at, "work waits and nothing is taken");
        }
        None => out.silent(Watcher::Progress, NeverArmed, "nobody watches progress"),
    }
}

fn broker_heartbeat(scene: &Scene<'_>, out: &mut Findings) {
    let case = scene.case;
    let watcher = Watcher::BrokerHeartbeat;
    if case.settings.broker != BrokerKind::RabbitMq {
        return out.silent(watcher, NeverArmed, "only RabbitMQ has one");
    }
    let Some(heartbeat) = scene.heartbeat else {
        return out.silent(watcher, NeverArmed, "negotiated to 0");
    };
    let blocked = scene.client_thread_blocked();
    // A thread that waits in a read is let go by each message, and answers it.
    let let_go = scene.only_reads() && !scene.reader_starves();
    match case.fault.kind {
        FaultKind::FrozenPeer => return out.silent(watcher, NeverTriggered, "the broker itself is frozen"),
        FaultKind::None if !blocked || let_go => {
            return out.silent(watcher, NeverTriggered, "the client's frames arrive");
        }
        _ => {}
    }
    let period = scene.client_period(false).map_or(0.0, |d| d.as_secs_f64());
    let before = Span::point(0.0) - scene.draw.within(Phase::ClientSend, Span::new(0.0, period));
    // Where the client's data still arrives, its first send after the fault counts as well.
    let last = match scene.client_sends() {
        Some(send) if case.fault.kind == FaultKind::ToClient => send,
        _ => before,
    };
    let span = (scene.draw.within(Phase::BrokerCheck, rabbitmq_gives_up_after(heartbeat)) + last).not_before_zero();
    let why = if blocked {
        "the client's blocked thread sends no frames"
    } else {
        "no frame of the client's for 2 to 3 heartbeats"
    };
    out.fire(watcher, span, Span::new(span.lo_s / 2.0, span.hi_s), why);
}

fn unacknowledged(scene: &Scene<'_>, out: &mut Findings) {
    let case = scene.case;
    let peer = &case.settings.peer;
    let frozen = case.fault.kind == FaultKind::FrozenPeer;
    let mut add = |watcher, kind: BrokerKind, window: Option<Span>, why: &str| match window {
        _ if case.settings.broker != kind => out.silent(watcher, NeverArmed, "not on this broker"),
        None => out.silent(watcher, NeverArmed, "it is off"),
        Some(_) if !case.conditions.unacked_delivery => {
            out.silent(watcher, NeverTriggered, "no delivery is unacknowledged");
        }
        // Redis' sweep is a healthy worker's, but it asks the same server.
        Some(_) if frozen => out.silent(watcher, NeverTriggered, "the broker itself is frozen"),
        Some(window) => {
            let at = scene.draw.within(Phase::ReaperCheck, window);
            out.fire(watcher, at, at, why);
        }
    };
    let consumer = peer.consumer_timeout.get().map(consumer_timeout_window);
    add(
        Watcher::ConsumerTimeout,
        BrokerKind::RabbitMq,
        consumer,
        "a delivery stays unacknowledged; counts from the delivery",
    );
    let visibility = peer.visibility_timeout.get().map(|v| visibility_window(v, peer.visibility_sweep));
    add(
        Watcher::VisibilityTimeout,
        BrokerKind::Redis,
        visibility,
        "a healthy worker's sweep; counts from the delivery",
    );
}

fn airflow(scene: &Scene<'_>, out: &mut Findings) {
    let row = scene.case.conditions.row;
    let Some(airflow) = scene.case.settings.reaper.airflow else {
        out.silent(Watcher::QueuedTimeout, NeverArmed, "no such scheduler");
        return out.silent(Watcher::TaskHeartbeat, NeverArmed, "no such scheduler");
    };
    if row == Some(Row::Queued) {
        let at = scene.draw.within(Phase::ReaperCheck, airflow.queued_window());
        out.fire(Watcher::QueuedTimeout, at, at, "the row stays queued; counts from queued_dttm");
    } else {
        out.silent(Watcher::QueuedTimeout, NeverTriggered, "it selects only rows in state queued");
    }
    match row {
        Some(Row::Running) if scene.case.fault.scope == FaultScope::Host => {
            let at = scene.draw.within(Phase::ReaperCheck, airflow.task_heartbeat_window());
            out.fire(Watcher::TaskHeartbeat, at, at, "the running row gets no heartbeat");
        }
        Some(Row::Running) => {
            let why = "the task heartbeats over a connection of its own, which is not cut";
            out.silent(Watcher::TaskHeartbeat, NeverTriggered, why);
        }
        _ => out.silent(Watcher::TaskHeartbeat, NeverTriggered, "no row is running"),
    }
}

fn task_table(scene: &Scene<'_>, out: &mut Findings) {
    let case = scene.case;
    let row = case.conditions.row;
    match case.settings.reaper.liveness {
        None => out.silent(Watcher::LivenessTtl, NeverArmed, "no liveness key"),
        Some(_) if row != Some(Row::Processing) => {
            out.silent(Watcher::LivenessTtl, NeverTriggered, "only a PROCESSING row is judged by its worker");
        }
        // Of a broker that is Redis it is taken that the keys are kept there.
        Some(_)
            if case.fault.scope == FaultScope::Flow
                || (case.fault.scope == FaultScope::Pair && case.settings.broker != BrokerKind::Redis) =>
        {
            let why = "the worker lives and renews its key over another connection";
            out.silent(Watcher::LivenessTtl, NeverTriggered, why);
        }
        Some(liveness) => {
            let at = scene.draw.within(Phase::ReaperCheck, liveness.window());
            out.fire(Watcher::LivenessTtl, at, at, "the worker's key expires and a sweep sees it");
        }
    }
    for (watcher, wanted) in [(Watcher::PendingTimeout, Row::Pending), (Watcher::ProcessingTimeout, Row::Processing)] {
        match case.settings.reaper.ages {
            None => out.silent(watcher, NeverArmed, "no sweep by age"),
            Some(_) if row != Some(wanted) => out.silent(watcher, NeverTriggered, "no row is in that state"),
            Some(ages) => {
                let limit = if wanted == Row::Pending { ages.pending } else { ages.processing };
                let at = scene.draw.within(Phase::ReaperCheck, swept(limit, ages.sweep));
                out.fire(watcher, at, at, "the row is too old; counts from updated_at");
            }
        }
    }
}
