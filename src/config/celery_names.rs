//! The names of Celery's settings, in their three spellings.

use super::literal::showable_key;

/// Every setting of Celery 5.7.0 (`celery/app/defaults.py`, `NAMESPACES`, flattened), sorted, and those that its
/// backends read without declaring them.
const ALL: &[&str] = &[
    "accept_content",
    "arangodb_backend_settings",
    "azureblockblob_base_path",
    "azureblockblob_connection_timeout",
    "azureblockblob_container_name",
    "azureblockblob_read_timeout",
    "azureblockblob_retry_increment_base",
    "azureblockblob_retry_initial_backoff_sec",
    "azureblockblob_retry_max_attempts",
    "beat_cron_starting_deadline",
    "beat_enable_remote_control",
    "beat_max_loop_interval",
    "beat_remote_control_max_tick_age",
    "beat_schedule",
    "beat_schedule_filename",
    "beat_scheduler",
    "beat_sync_every",
    "broker_channel_error_retry",
    "broker_connection_max_retries",
    "broker_connection_retry",
    "broker_connection_retry_on_startup",
    "broker_connection_timeout",
    "broker_failover_strategy",
    "broker_heartbeat",
    "broker_heartbeat_checkrate",
    "broker_host",
    "broker_login_method",
    "broker_native_delayed_delivery_queue_type",
    "broker_password",
    "broker_pool_acquire_timeout",
    "broker_pool_limit",
    "broker_port",
    "broker_read_url",
    "broker_transport",
    "broker_transport_options",
    "broker_url",
    "broker_use_ssl",
    "broker_user",
    "broker_vhost",
    "broker_write_url",
    "cache_backend",
    "cache_backend_options",
    "cassandra_auth_kwargs",
    "cassandra_auth_provider",
    "cassandra_bundle_path",
    "cassandra_entry_ttl",
    "cassandra_keyspace",
    "cassandra_options",
    "cassandra_port",
    "cassandra_read_consistency",
    "cassandra_servers",
    "cassandra_table",
    "cassandra_write_consistency",
    "control_exchange",
    "control_queue_durable",
    "control_queue_exclusive",
    "control_queue_expires",
    "control_queue_ttl",
    "cosmosdbsql_collection_name",
    "cosmosdbsql_consistency_level",
    "cosmosdbsql_database_name",
    "cosmosdbsql_max_retry_attempts",
    "cosmosdbsql_max_retry_wait_time",
    "couchbase_backend_settings",
    "database_create_tables_at_setup",
    "database_engine_callback",
    "database_engine_options",
    "database_short_lived_sessions",
    "database_table_names",
    "database_table_schemas",
    "database_url",
    "elasticsearch_max_retries",
    "elasticsearch_retry_on_timeout",
    "elasticsearch_save_meta_as_text",
    "elasticsearch_timeout",
    "enable_utc",
    "event_exchange",
    "event_queue_durable",
    "event_queue_exclusive",
    "event_queue_expires",
    "event_queue_prefix",
    "event_queue_ttl",
    "event_serializer",
    "gcs_base_path",
    "gcs_bucket",
    "gcs_project",
    "gcs_ttl",
    "imports",
    "include",
    "mongodb_backend_settings",
    "redis_backend_use_ssl",
    "redis_db",
    "redis_host",
    "redis_max_connections",
    "redis_password",
    "redis_port",
    "redis_retry_on_timeout",
    "redis_socket_connect_timeout",
    "redis_socket_keepalive",
    "redis_socket_timeout",
    "redis_username",
    "result_accept_content",
    "result_backend",
    "result_backend_always_retry",
    "result_backend_base_sleep_between_retries_ms",
    "result_backend_max_retries",
    "result_backend_max_sleep_between_retries_ms",
    "result_backend_transport_options",
    "result_cache_max",
    "result_chord_expires",
    "result_chord_join_timeout",
    "result_chord_retry_interval",
    "result_compression",
    "result_exchange",
    "result_exchange_type",
    "result_expires",
    "result_extended",
    "result_failure_expires",
    "result_persistent",
    "result_serializer",
    "s3_access_key_id",
    "s3_base_path",
    "s3_bucket",
    "s3_endpoint_url",
    "s3_region",
    "s3_secret_access_key",
    "security_cert_store",
    "security_certificate",
    "security_digest",
    "security_key",
    "security_key_password",
    "task_acks_late",
    "task_acks_on_failure",
    "task_acks_on_failure_or_timeout",
    "task_acks_on_timeout",
    "task_allow_error_cb_on_chord_header",
    "task_always_eager",
    "task_annotations",
    "task_compression",
    "task_create_missing_queue_exchange_type",
    "task_create_missing_queue_type",
    "task_create_missing_queues",
    "task_default_delivery_mode",
    "task_default_exchange",
    "task_default_exchange_type",
    "task_default_priority",
    "task_default_queue",
    "task_default_queue_type",
    "task_default_rate_limit",
    "task_default_routing_key",
    "task_eager_propagates",
    "task_ignore_result",
    "task_inherit_parent_priority",
    "task_protocol",
    "task_publish_retry",
    "task_publish_retry_policy",
    "task_queue_max_priority",
    "task_queues",
    "task_reject_on_worker_lost",
    "task_remote_tracebacks",
    "task_repr_maxlevels",
    "task_retry_on_worker_lost",
    "task_routes",
    "task_send_sent_event",
    "task_serializer",
    "task_soft_time_limit",
    "task_store_eager_result",
    "task_store_errors_even_if_ignored",
    "task_time_limit",
    "task_track_started",
    "timezone",
    "worker_agent",
    "worker_autoscaler",
    "worker_cancel_long_running_tasks_on_connection_loss",
    "worker_concurrency",
    "worker_consumer",
    "worker_deduplicate_successful_tasks",
    "worker_detect_quorum_queues",
    "worker_direct",
    "worker_disable_prefetch",
    "worker_disable_rate_limits",
    "worker_enable_prefetch_count_reduction",
    "worker_enable_remote_control",
    "worker_enable_soft_shutdown_on_idle",
    "worker_eta_task_limit",
    "worker_hijack_root_logger",
    "worker_log_color",
    "worker_log_datefmt",
    "worker_log_format",
    "worker_lost_wait",
    "worker_max_memory_per_child",
    "worker_max_tasks_per_child",
    "worker_pool",
    "worker_pool_putlocks",
    "worker_pool_restarts",
    "worker_pool_start_method",
    "worker_prefetch_multiplier",
    "worker_proc_alive_timeout",
    "worker_redirect_stdouts",
    "worker_redirect_stdouts_level",
    "worker_send_task_events",
    "worker_soft_shutdown_timeout",
    "worker_state_db",
    "worker_task_log_datefmt",
    "worker_task_log_format",
    "worker_timer",
    "worker_timer_precision",
];

/// Settings that matter here: new name, old name (`celery/app/defaults.py`, `_TO_OLD_KEY`).
const RELEVANT: [(&str, &str); 22] = [
    ("broker_connection_timeout", "BROKER_CONNECTION_TIMEOUT"),
    ("broker_heartbeat", "BROKER_HEARTBEAT"),
    ("broker_heartbeat_checkrate", "BROKER_HEARTBEAT_CHECKRATE"),
    ("broker_login_method", "BROKER_LOGIN_METHOD"),
    ("broker_read_url", "BROKER_READ_URL"),
    ("broker_transport", "BROKER_TRANSPORT"),
    ("broker_transport_options", "BROKER_TRANSPORT_OPTIONS"),
    ("broker_url", "BROKER_URL"),
    ("redis_backend_health_check_interval", "CELERY_REDIS_BACKEND_HEALTH_CHECK_INTERVAL"),
    ("redis_retry_on_timeout", "CELERY_REDIS_RETRY_ON_TIMEOUT"),
    ("redis_socket_connect_timeout", "CELERY_REDIS_SOCKET_CONNECT_TIMEOUT"),
    ("redis_socket_keepalive", "CELERY_REDIS_SOCKET_KEEPALIVE"),
    ("redis_socket_timeout", "CELERY_REDIS_SOCKET_TIMEOUT"),
    ("result_backend", "CELERY_RESULT_BACKEND"),
    ("result_backend_transport_options", "CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS"),
    ("task_acks_late", "CELERY_ACKS_LATE"),
    ("task_soft_time_limit", "CELERYD_TASK_SOFT_TIME_LIMIT"),
    ("task_time_limit", "CELERYD_TASK_TIME_LIMIT"),
    ("worker_concurrency", "CELERYD_CONCURRENCY"),
    ("worker_disable_prefetch", "CELERYD_DISABLE_PREFETCH"),
    ("worker_pool", "CELERYD_POOL"),
    ("worker_prefetch_multiplier", "CELERYD_PREFETCH_MULTIPLIER"),
];

/// How a setting is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `broker_heartbeat`.
    New,
    /// `BROKER_HEARTBEAT`, `CELERYD_CONCURRENCY`.
    Old,
    /// `CELERY_BROKER_HEARTBEAT`: the namespace of Django projects.
    Namespaced,
}

/// What a name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// A setting that matters here, by its new name.
    Setting(&'static str, Style),
    /// Another setting of Celery's.
    Other,
    /// No setting of Celery's.
    Foreign,
}

/// Looks a name up. `CELERY_RESULT_BACKEND` is an old name and a namespaced one at once, with one meaning.
pub(crate) fn look_up(name: &str) -> Name {
    if let Some((new, _)) = RELEVANT.iter().find(|(new, _)| *new == name) {
        return Name::Setting(new, Style::New);
    }
    if let Some((new, _)) = RELEVANT.iter().find(|(_, old)| *old == name) {
        return Name::Setting(new, Style::Old);
    }
    let lower = name.to_ascii_lowercase();
    if name.starts_with("CELERY_") {
        let bare = &lower["celery_".len()..];
        if let Some((new, _)) = RELEVANT.iter().find(|(new, _)| *new == bare) {
            return Name::Setting(new, Style::Namespaced);
        }
        if is_setting(bare) {
            return Name::Other;
        }
    }
    if is_setting(&lower) { Name::Other } else { Name::Foreign }
}

/// Whether a new-style name is one of Celery's.
pub(crate) fn is_setting(name: &str) -> bool {
    ALL.binary_search(&name).is_ok() || RELEVANT.iter().any(|(new, _)| *new == name)
}

/// The setting that a foreign name resembles, in the same spelling; only among those that matter here, so that an
/// application's own names are left alone.
pub(crate) fn nearest(name: &str) -> Option<String> {
    let name = showable_key(name)?;
    let upper = name.chars().all(|c| !c.is_ascii_lowercase());
    let candidates = RELEVANT.iter().flat_map(|(new, old)| {
        if upper {
            vec![(*old).to_string(), format!("CELERY_{}", new.to_ascii_uppercase())]
        } else {
            vec![(*new).to_string()]
        }
    });
    super::nearest::nearest(name, candidates, 0.82)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_spellings_are_one_setting() {
        assert_eq!(look_up("broker_heartbeat"), Name::Setting("broker_heartbeat", Style::New));
        assert_eq!(look_up("BROKER_HEARTBEAT"), Name::Setting("broker_heartbeat", Style::Old));
        assert_eq!(look_up("CELERY_BROKER_HEARTBEAT"), Name::Setting("broker_heartbeat", Style::Namespaced));
        assert_eq!(look_up("CELERYD_PREFETCH_MULTIPLIER"), Name::Setting("worker_prefetch_multiplier", Style::Old));
        assert_eq!(look_up("timezone"), Name::Other);
        assert_eq!(look_up("CELERY_BEAT_SCHEDULE"), Name::Other);
        assert_eq!(look_up("SECRET_KEY"), Name::Foreign);
    }

    #[test]
    fn a_slip_of_the_keyboard_finds_its_setting_and_strangers_do_not() {
        assert_eq!(nearest("broker_hearbeat").as_deref(), Some("broker_heartbeat"));
        assert_eq!(nearest("CELERY_BROKER_HEARTBEET").as_deref(), Some("CELERY_BROKER_HEARTBEAT"));
        assert_eq!(nearest("DATABASES"), None);
        assert_eq!(nearest("MY_TASK_QUEUE"), None);
    }

    #[test]
    fn the_list_is_sorted_for_its_search() {
        assert!(ALL.is_sorted());
    }
}
