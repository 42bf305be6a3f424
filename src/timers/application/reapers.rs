//! Watchers that judge by a store: liveness keys, ages, and Airflow's scheduler in both generations.

use super::super::span::Span;
use std::time::Duration;

/// A liveness key with a time to live, renewed by the worker and read by a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// Time to live of the key (90 s).
    pub ttl: Duration,
    /// How often the worker renews it (30 s).
    pub period: Duration,
    /// How often the sweep looks (5 min).
    pub sweep: Duration,
}

impl Liveness {
    /// From the worker's last breath to the sweep that sees it: the rest of the key's life, then up to one sweep.
    #[must_use]
    pub fn window(&self) -> Span {
        let rest = Span::new((self.ttl.saturating_sub(self.period)).as_secs_f64(), self.ttl.as_secs_f64());
        rest + Span::new(0.0, self.sweep.as_secs_f64())
    }
}

/// Limits on the age of a task, judged by a sweep; the limit itself counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ages {
    /// PENDING for this long (5 min).
    pub pending: Duration,
    /// PROCESSING for this long (20 min).
    pub processing: Duration,
    /// How often the sweep looks (5 min).
    pub sweep: Duration,
}

/// Which Airflow: what happens to a row that was queued for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AirflowGeneration {
    /// Up to 2.10.3: the first sweep fails the row, and the task's own retries take over.
    FailsAtOnce,
    /// From 2.10.4: it is revoked and queued again twice first (`num_stuck_in_queued_retries` 2).
    RequeuesTwice,
}

/// Airflow's scheduler: `scheduler_job_runner.py`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Airflow {
    /// What happens to a row that was queued for too long.
    pub generation: AirflowGeneration,
    /// `task_queued_timeout` (600 s by default).
    pub queued_timeout: Duration,
    /// `task_queued_timeout_check_interval` (120 s), re-armed after the action.
    pub queued_check: Duration,
    /// `scheduler_zombie_task_threshold` / `task_instance_heartbeat_timeout` (300 s).
    pub task_heartbeat_timeout: Duration,
    /// `zombie_detection_interval` (10 s).
    pub task_heartbeat_check: Duration,
}

impl Default for Airflow {
    fn default() -> Self {
        Self {
            generation: AirflowGeneration::FailsAtOnce,
            queued_timeout: Duration::from_secs(600),
            queued_check: Duration::from_secs(120),
            task_heartbeat_timeout: Duration::from_secs(300),
            task_heartbeat_check: Duration::from_secs(10),
        }
    }
}

impl Airflow {
    /// From `queued_dttm` until the row is failed: the query is `queued_dttm < now − timeout` and runs once a check.
    #[must_use]
    pub fn queued_window(&self) -> Span {
        let once =
            Span::new(self.queued_timeout.as_secs_f64(), (self.queued_timeout + self.queued_check).as_secs_f64());
        match self.generation {
            AirflowGeneration::FailsAtOnce => once,
            AirflowGeneration::RequeuesTwice => once + once + once,
        }
    }

    /// From the last heartbeat of a *running* row until it is failed.
    #[must_use]
    pub fn task_heartbeat_window(&self) -> Span {
        let timeout = self.task_heartbeat_timeout;
        Span::new(timeout.as_secs_f64(), (timeout + self.task_heartbeat_check).as_secs_f64())
    }
}

/// A sweep of period `sweep` that acts on what is at least `limit` old.
#[must_use]
pub fn swept(limit: Duration, sweep: Duration) -> Span {
    Span::new(limit.as_secs_f64(), (limit + sweep).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stall_of_1284_seconds_fits_one_generation_only() {
        let old = Airflow { queued_timeout: Duration::from_secs(1200), ..Airflow::default() };
        assert_eq!(old.queued_window(), Span::new(1200.0, 1320.0));
        let new = Airflow { generation: AirflowGeneration::RequeuesTwice, ..old };
        assert_eq!(new.queued_window(), Span::new(3600.0, 3960.0));
    }

    #[test]
    fn liveness_of_case_7_and_of_the_mission() {
        let s = Duration::from_secs;
        assert_eq!(Liveness { ttl: s(60), period: s(20), sweep: s(30) }.window(), Span::new(40.0, 90.0));
        assert_eq!(Liveness { ttl: s(90), period: s(30), sweep: s(300) }.window(), Span::new(60.0, 390.0));
    }
}
