//! Airflow's watcher of *running* rows: the task heartbeat.
//!
//! `scheduler_zombie_task_threshold` (later `task_instance_heartbeat_timeout`): the job that works on a row writes
//! `latest_heartbeat` into the metadata database; every `zombie_detection_interval` (10 s) rows in state *running* whose last
//! one is older than the threshold (300 s) are failed. It is not the watcher of queued rows, whose timeout it knows nothing of.

use crate::units::Offset;
use std::time::Duration;

/// The watcher's name.
pub const TASK_HEARTBEAT: &str = "task_heartbeat";

/// Threshold and interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskHeartbeat {
    /// A row whose last heartbeat is older is failed.
    pub timeout: Duration,
    /// How often rows are looked at.
    pub interval: Duration,
}

impl Default for TaskHeartbeat {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(300), interval: Duration::from_secs(10) }
    }
}

impl TaskHeartbeat {
    /// Whether a running row is failed at `now`: the query is `latest_heartbeat < now − timeout`, so the limit itself does
    /// not count. A row without a heartbeat counts from when it began to run.
    #[must_use]
    pub fn fails(&self, running_since: Offset, last_heartbeat: Option<Offset>, now: Offset) -> bool {
        last_heartbeat.map_or(running_since, |beat| beat.max(running_since)) < now - self.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> Offset {
        Offset::from_secs(seconds)
    }

    #[test]
    fn five_minutes_without_a_heartbeat_and_not_exactly_five() {
        let rule = TaskHeartbeat::default();
        assert!(!rule.fails(at(0.0), Some(at(100.0)), at(400.0)));
        assert!(rule.fails(at(0.0), Some(at(100.0)), at(400.001)));
        assert!(rule.fails(at(0.0), None, at(300.001)), "it never wrote one");
        assert!(!rule.fails(at(390.0), Some(at(10.0)), at(400.0)), "that heartbeat was of its earlier try");
    }

    #[test]
    fn a_stall_of_1284_seconds_is_not_this_watchers() {
        // Swept every 10 s, a dead running row is failed within 310 s of its last heartbeat.
        let rule = TaskHeartbeat::default();
        let sweeps = (0..200u32).map(|k| at(3.7) + rule.interval * k);
        let failed = sweeps.into_iter().find(|now| rule.fails(at(0.0), Some(at(0.0)), *now)).unwrap();
        assert!((300.0..310.0).contains(&failed.as_secs()), "{failed}");
    }

    proptest! {
        #[test]
        fn a_row_that_beats_in_time_lives(beats in prop::collection::vec(1f64..299.0, 1..50)) {
            let (rule, mut last) = (TaskHeartbeat::default(), 0.0);
            for gap in beats {
                let next = last + gap;
                prop_assert!(!rule.fails(at(0.0), Some(at(last)), at(next)));
                last = next;
            }
        }
    }
}
