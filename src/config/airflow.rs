//! Airflow's options, from `airflow.cfg` or the environment.
//!
//! Sources: apache-airflow-core 3.3.2 `config_templates/config.yml` and `_shared/configuration/parser.py`,
//! apache-airflow-providers-celery 3.26.0 `executors/default_celery.py`.

use super::address::Address;
use super::celery_names::Style;
use super::entry::{Domain, Reading, UnknownKey};
use super::literal::Literal;
use super::model::SourceKind;

/// Options of `[scheduler]` that matter here, with their older names (`cli/commands/config_command.py`'s renames).
pub(super) const SCHEDULER: [(&str, &str); 7] = [
    ("task_queued_timeout", "task_queued_timeout"),
    ("task_queued_timeout_check_interval", "task_queued_timeout_check_interval"),
    ("task_instance_heartbeat_timeout", "task_instance_heartbeat_timeout"),
    ("scheduler_zombie_task_threshold", "task_instance_heartbeat_timeout"),
    ("task_instance_heartbeat_timeout_detection_interval", "task_instance_heartbeat_timeout_detection_interval"),
    ("zombie_detection_interval", "task_instance_heartbeat_timeout_detection_interval"),
    ("task_instance_heartbeat_sec", "task_instance_heartbeat_sec"),
];

/// Options of `[celery]` (provider 3.26.0, `get_provider_info.py`).
const CELERY: [&str; 29] = [
    "broker_connection_retry_on_startup",
    "broker_url",
    "celery_app_name",
    "celery_config_options",
    "extra_celery_config",
    "flower_basic_auth",
    "flower_host",
    "flower_port",
    "flower_url_prefix",
    "json_logs",
    "mp_start_method",
    "operation_timeout",
    "pool",
    "result_backend",
    "result_backend_sqlalchemy_engine_options",
    "ssl_active",
    "ssl_cacert",
    "ssl_cert",
    "ssl_key",
    "ssl_mutual_tls",
    "sync_parallelism",
    "task_acks_late",
    "task_publish_max_retries",
    "task_track_started",
    "worker_autoscale",
    "worker_concurrency",
    "worker_enable_remote_control",
    "worker_prefetch_multiplier",
    "worker_umask",
];

/// One option; `written` is the key in the user's spelling.
pub(super) fn option(
    reading: &mut Reading,
    section: &str,
    key: &str,
    value: &Literal,
    line: Option<u32>,
    written: &str,
) {
    let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
    let matters = matches!(section.as_str(), "celery" | "celery_broker_transport_options" | "scheduler");
    if let (true, Some(real)) = (matters, key.strip_suffix("_cmd").or_else(|| key.strip_suffix("_secret"))) {
        if matters_here(&section, real) {
            reading.refuse(line, written, "the value comes from a command or a secret store, which is not run here");
        }
        return;
    }
    let rank = reading.rank();
    match section.as_str() {
        "celery_broker_transport_options" => {
            let place = reading.place(line, written);
            // `getsection` turns what looks like a number or a switch into one; the rest stays text.
            reading.push_ranked(Domain::Transport, &key, typed(value), place, Style::New, rank);
        }
        "celery" => celery(reading, &key, value, line, written, rank),
        "scheduler" => match SCHEDULER.iter().find(|(name, _)| *name == key) {
            Some((name, new)) => {
                let place = reading.place(line, written);
                let style = if name == new { Style::New } else { Style::Old };
                reading.push_ranked(Domain::Airflow, &format!("scheduler.{new}"), value.clone(), place, style, rank);
            }
            None => unknown(reading, &section, &key, value, line, written),
        },
        _ => {}
    }
}

fn celery(reading: &mut Reading, key: &str, value: &Literal, line: Option<u32>, written: &str, rank: u8) {
    let place = reading.place(line, written);
    match key {
        "broker_url" => match value.as_str().and_then(Address::parse) {
            Some(address) => reading.addresses.push((address, place, rank)),
            None => reading.refuse(line, written, "not a broker address"),
        },
        "worker_prefetch_multiplier" | "worker_concurrency" | "task_acks_late" => {
            reading.push_ranked(Domain::Celery, key, value.clone(), place, Style::New, rank);
        }
        "pool" => reading.push_ranked(Domain::Celery, "worker_pool", value.clone(), place, Style::New, rank),
        "extra_celery_config" => match value.as_str().and_then(|t| super::json::parse(t).ok()) {
            Some(Literal::Dict(items)) => {
                for item in items {
                    if let Some(name) = item.key.as_ref().and_then(Literal::as_str) {
                        // Spread over Airflow's own settings at last: it outranks them.
                        reading.celery(name, &item.value, line, 4);
                    }
                }
            }
            _ => reading.refuse(line, written, "not a JSON mapping"),
        },
        "celery_config_options" => {
            let own = value.as_str().is_some_and(|t| t.trim().ends_with("DEFAULT_CELERY_CONFIG"));
            if !own {
                reading.refuse(line, written, "Celery's settings come from this Python object; give its file too");
            }
        }
        key if CELERY.contains(&key) => {}
        key => unknown(reading, "celery", key, value, line, written),
    }
}

/// A key that its section does not have, if it names something that matters here.
fn unknown(reading: &mut Reading, section: &str, key: &str, value: &Literal, line: Option<u32>, written: &str) {
    let place = reading.place(line, written);
    let spelled = |section: &str, key: &str| match reading.kind {
        SourceKind::AirflowCfg => format!("[{section}] {key}"),
        _ => format!("AIRFLOW__{}__{}", section.to_ascii_uppercase(), key.to_ascii_uppercase()),
    };
    let (why, meant) = if section == "celery" && super::transport::is_an_option_somewhere(key) {
        let meant = spelled("celery_broker_transport_options", key);
        (format!("Airflow's [celery] section has no `{key}`"), Some(meant))
    } else if section == "celery" && super::celery_names::is_setting(key) {
        (
            format!("Airflow passes no `{key}` on to Celery"),
            Some(format!("{} = {{\"{key}\": …}}", spelled("celery", "extra_celery_config"))),
        )
    } else {
        let names: Vec<String> = match section {
            "celery" => ["broker_url", "worker_prefetch_multiplier", "worker_concurrency", "task_acks_late"]
                .map(String::from)
                .into(),
            _ => SCHEDULER.iter().map(|(name, _)| (*name).to_string()).collect(),
        };
        let Some(near) = super::nearest::nearest(key, names, 0.82) else { return };
        (format!("Airflow's [{section}] section has no `{key}`"), Some(spelled(section, &near)))
    };
    reading.unknown.push((key.to_string(), value.clone(), place, UnknownKey { why, meant }));
}

fn matters_here(section: &str, key: &str) -> bool {
    section == "celery_broker_transport_options"
        || matches!(key, "broker_url" | "celery_config_options" | "extra_celery_config")
        || SCHEDULER.iter().any(|(name, _)| *name == key)
}

/// `getsection` of Airflow's parser: int, then float, then `t`/`true`/`f`/`false`, else text.
fn typed(value: &Literal) -> Literal {
    let Some(text) = value.as_str() else { return value.clone() };
    let trimmed = text.trim();
    if let Ok(n) = trimmed.replace('_', "").parse::<i64>() {
        return Literal::Int(n);
    }
    match (trimmed.to_ascii_lowercase().as_str(), trimmed.parse::<f64>()) {
        (_, Ok(n)) if n.is_finite() => Literal::Float(n),
        ("t" | "true", _) => Literal::Bool(true),
        ("f" | "false", _) => Literal::Bool(false),
        _ => Literal::text(text),
    }
}

/// Reads `airflow.cfg`: sections, comments on lines of their own (`#`, `;`), values continued on indented lines.
pub(super) fn read(label: &str, text: &str) -> Reading {
    let mut reading = Reading::new(label, SourceKind::AirflowCfg);
    let mut section = String::new();
    let mut pending: Option<(String, String, u32)> = None;
    let finish = |reading: &mut Reading, section: &str, pending: &mut Option<(String, String, u32)>| {
        if let Some((key, value, line)) = pending.take() {
            option(reading, section, &key, &Literal::word(value.trim()), Some(line), &key);
        }
    };
    for (number, raw) in text.lines().enumerate() {
        let line = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if raw.starts_with([' ', '\t'])
            && let Some((_, value, _)) = &mut pending
        {
            value.push('\n');
            value.push_str(trimmed);
            continue;
        }
        finish(&mut reading, &section, &mut pending);
        if let Some(name) = trimmed.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            section = name.trim().to_string();
        } else if let Some((key, value)) = trimmed.split_once(['=', ':']) {
            pending = Some((key.trim().to_string(), value.trim().to_string(), line));
        }
    }
    finish(&mut reading, &section, &mut pending);
    reading
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "[core]\nexecutor = CeleryExecutor\nfernet_key = topsecret\n\n[celery]\n# the broker\n\
broker_url = amqp://airflow:s3cret@rabbit//\nworker_prefetch_multiplier = 1\nsocket_timeout = 60\nbroker_heartbeat = 30\n\
extra_celery_config = {\n    \"broker_heartbeat\": 20\n    }\n[celery_broker_transport_options]\nvisibility_timeout = 21600\n\
socket_connect_timeout: 10\n[scheduler]\ntask_queued_timeout = 1200.0\nscheduler_zombie_task_threshold = 300\n\
task_queued_timout = 5\n";

    #[test]
    fn a_real_airflow_cfg() {
        let reading = read("airflow.cfg", SAMPLE);
        let keys: Vec<(&str, Option<u32>)> = reading.entries.iter().map(|e| (e.key.as_str(), e.place.line)).collect();
        assert_eq!(
            keys,
            [
                ("worker_prefetch_multiplier", Some(8)),
                ("broker_heartbeat", Some(11)),
                ("visibility_timeout", Some(15)),
                ("socket_connect_timeout", Some(16)),
                ("scheduler.task_queued_timeout", Some(18)),
                ("scheduler.task_instance_heartbeat_timeout", Some(19)),
            ]
        );
        assert_eq!(reading.entries[2].value, Literal::Int(21600));
        let meant: Vec<&str> = reading.unknown.iter().map(|u| u.3.meant.as_deref().unwrap_or("")).collect();
        assert_eq!(
            meant,
            [
                "[celery_broker_transport_options] socket_timeout",
                "[celery] extra_celery_config = {\"broker_heartbeat\": …}",
                "[scheduler] task_queued_timeout"
            ]
        );
        let shown = format!("{reading:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("topsecret"));
    }

    #[test]
    fn commands_are_not_run() {
        let reading = read("airflow.cfg", "[celery]\nbroker_url_cmd = cat /run/secrets/url\n");
        assert_eq!(reading.not_understood.len(), 1);
        assert!(!format!("{reading:?}").contains("/run/secrets"));
    }
}
