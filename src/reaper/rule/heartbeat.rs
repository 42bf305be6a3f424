//! Airflow's watcher of *running* rows: the task heartbeat.
//!
//! `scheduler_zombie_task_threshold` (later `task_instance_heartbeat_timeout`): the job that works on a row writes
//! `latest_heartbeat` into the metadata database; every `zombie_detection_interval` (10 s) rows in state *running* whose last
//! one is older than the threshold (300 s) are failed. It is not the watcher of queued rows, whose timeout it knows nothing of.

use super::super::{Status, Task};
use crate::scenario::TaskHeartbeat;
use crate::units::Offset;

/// The watcher's name.
pub const TASK_HEARTBEAT: &str = "task_heartbeat";

/// Whether a running row is failed at `now`: the query is `latest_heartbeat < now − timeout`, so the limit itself does not
/// count. A row without a heartbeat in this try counts from when it began to run.
#[must_use]
pub fn fails(row: &Task, rule: &TaskHeartbeat, now: Offset) -> bool {
    let last = row.heartbeat_at.map_or(row.updated_at, |beat| beat.max(row.updated_at));
    row.status == Status::Processing && last < now - rule.timeout
}

#[cfg(test)]
mod tests {
    use super::super::super::TaskId;
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> Offset {
        Offset::from_secs(seconds)
    }

    fn running(since: f64, heartbeat_at: Option<f64>) -> Task {
        Task {
            id: TaskId { trial: 1, message: 0 },
            status: Status::Processing,
            worker_id: Some("w".to_string()),
            error_code: None,
            queued_at: at(0.0),
            updated_at: at(since),
            attempts: 1,
            heartbeat_at: heartbeat_at.map(at),
            tries: 1,
            retry_at: None,
        }
    }

    fn failed(since: f64, beat: Option<f64>, now: f64) -> bool {
        fails(&running(since, beat), &TaskHeartbeat::default(), at(now))
    }

    #[test]
    fn five_minutes_without_a_heartbeat_and_not_exactly_five() {
        assert!(!failed(0.0, Some(100.0), 400.0));
        assert!(failed(0.0, Some(100.0), 400.001));
        assert!(failed(0.0, None, 300.001), "it never wrote one");
        assert!(!failed(390.0, Some(10.0), 400.0), "that heartbeat was of its earlier try");
        let queued = Task { status: Status::Pending, ..running(0.0, None) };
        assert!(!fails(&queued, &TaskHeartbeat::default(), at(9999.0)), "queued rows are another watcher's");
    }

    #[test]
    fn a_stall_of_1284_seconds_is_not_this_watchers() {
        // Swept every 10 s, a dead running row is failed within 310 s of its last heartbeat.
        let rule = TaskHeartbeat::default();
        let sweeps = (0..200u32).map(|k| at(3.7) + rule.interval * k);
        let failed = sweeps.into_iter().find(|now| fails(&running(0.0, Some(0.0)), &rule, *now)).unwrap();
        assert!((300.0..310.0).contains(&failed.as_secs()), "{failed}");
    }

    proptest! {
        #[test]
        fn a_row_that_beats_in_time_lives(beats in prop::collection::vec(1f64..299.0, 1..50)) {
            let mut last = 0.0;
            for gap in beats {
                let next = last + gap;
                prop_assert!(!failed(0.0, Some(last), next));
                last = next;
            }
        }
    }
}
