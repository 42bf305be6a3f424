//! Who cleans up by a store, from `--set` alone: for those who know the connection itself better than any setting does.

use super::arm::Arm;
use super::request::AdviceError;
use super::{sets, situations};
use crate::timers::{BrokerKind, FaultScope, Reaper, Row, Subject};

/// The keys that say so.
const KEYS: [&str; 12] = [
    "queued_timeout",
    "queued_check_interval",
    "task_heartbeat_timeout",
    "task_heartbeat_check_interval",
    "airflow.version",
    "liveness.ttl",
    "liveness.period",
    "liveness.sweep",
    "pending_timeout",
    "processing_timeout",
    "reaper_sweep",
    "progress",
];

/// Who cleans up, and what the store says of the work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cleanup {
    /// The watchers.
    pub reaper: Reaper,
    /// The row that they judge.
    pub row: Option<Row>,
}

/// Reads them.
///
/// # Errors
/// A key that is none of these, or a value that is none; one line with the mend.
pub fn cleanup(list: &[(String, String)]) -> Result<Cleanup, AdviceError> {
    if let Some((key, value)) = list.iter().find(|(key, _)| !KEYS.contains(&key.trim())) {
        return Err(AdviceError::UnknownKey {
            set: format!("{key}={value}"),
            key: key.clone(),
            mend: format!("here it takes who cleans up: {}", KEYS.join(", ")),
        });
    }
    let combinations = sets::combinations(list)?;
    if combinations.len() > 1 {
        let (key, value) = list.iter().find(|(_, value)| value.contains(',')).cloned().unwrap_or_default();
        return Err(AdviceError::Value { set: format!("{key}={value}"), why: "one value only".to_string() });
    }
    let mut arm = Arm::stock(Subject::Celery, BrokerKind::RabbitMq);
    for combination in &combinations {
        sets::apply(&mut arm, combination)?;
    }
    let row = situations::usual_row(&arm, FaultScope::Flow);
    Ok(Cleanup { reaper: arm.settings.reaper, row })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, value: &str) -> Result<Cleanup, AdviceError> {
        cleanup(&[(key.to_string(), value.to_string())])
    }

    #[test]
    fn a_reaper_and_its_row_come_from_its_keys_alone() {
        let airflow = of("queued_timeout", "1200s").unwrap();
        assert_eq!(airflow.row, Some(Row::Queued));
        assert_eq!(airflow.reaper.airflow.unwrap().queued_timeout.as_secs(), 1200);
        assert_eq!(of("pending_timeout", "5m").unwrap().row, Some(Row::Processing));
        assert_eq!(cleanup(&[]).unwrap(), Cleanup::default());
        assert!(of("heartbeat", "10s").unwrap_err().to_string().contains("queued_timeout"));
        assert!(of("queued_timeout", "1s,2s").unwrap_err().to_string().contains("one value"));
    }
}
