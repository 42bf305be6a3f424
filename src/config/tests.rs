//! The room as its callers see it.

use super::*;
use proptest::prelude::*;
use std::time::Duration;

fn findings(sources: &[(&str, &str)]) -> Findings {
    let readings: Vec<Reading> = sources.iter().map(|(label, text)| read(label, text).unwrap()).collect();
    interpret(&readings, &Hints::default())
}

fn from_env(variables: &[(&str, &str)]) -> Findings {
    interpret(&[read_environment("environment", variables.iter().copied())], &Hints::default())
}

fn value(findings: &Findings, option: &OptionName) -> String {
    findings.get(option).map_or("-".to_string(), |f| f.value.to_string())
}

fn lint<'a>(findings: &'a Findings, code: &str) -> &'a Lint {
    findings.lints.iter().find(|l| l.code == code).unwrap_or_else(|| panic!("no {code} in {:#?}", findings.lints))
}

fn codes(findings: &Findings) -> Vec<&str> {
    findings.lints.iter().map(|l| l.code).collect()
}

const STALL: [(&str, &str); 7] = [
    ("AIRFLOW__CELERY__BROKER_URL", "amqp://airflow:s3cret@rabbit:5672//"),
    ("AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__SOCKET_TIMEOUT", "60"),
    ("AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__SOCKET_CONNECT_TIMEOUT", "10"),
    ("AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT", "1200"),
    ("AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL", "120"),
    ("AIRFLOW__SCHEDULER__SCHEDULER_ZOMBIE_TASK_THRESHOLD", "300"),
    ("PATH", "/usr/bin"),
];

#[test]
fn the_stall_of_1284_seconds_both_options_of_its_fix_are_ignored() {
    let f = from_env(&STALL);
    assert_eq!(value(&f, &OptionName::BrokerKind), "rabbitmq");
    assert_eq!(value(&f, &OptionName::Client), "celery");
    assert_eq!(value(&f, &OptionName::ReadTimeout), "none", "the published fix sets nothing");
    assert_eq!(value(&f, &OptionName::ConnectTimeout), "4s");
    assert_eq!(value(&f, &OptionName::QueuedTimeout), "20m");
    assert_eq!(value(&f, &OptionName::QueuedCheckInterval), "2m");
    assert_eq!(value(&f, &OptionName::TaskHeartbeatTimeout), "5m");
    assert_eq!(value(&f, &OptionName::TcpUserTimeout), "1s");
    assert_eq!(value(&f, &OptionName::Ack), "late");
    assert_eq!(value(&f, &OptionName::Prefetch), "16");
    let ignored: Vec<(&str, &str, Option<&str>)> =
        f.ignored.iter().map(|i| (i.key.as_str(), i.value.as_str(), i.meant.as_deref())).collect();
    assert_eq!(
        ignored,
        [("socket_timeout", "60", Some("read_timeout")), ("socket_connect_timeout", "10", Some("connect_timeout"))]
    );
    assert_eq!(
        lint(&f, "ignored-option").to_string(),
        "environment AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__SOCKET_TIMEOUT: `socket_timeout` has no effect: belongs to the Redis \
         transport; the AMQP transport (py-amqp) silently ignores it; write `AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__READ_TIMEOUT`"
    );
    assert!(!format!("{f:?}{}", serde_json::to_string(&f).unwrap()).contains("s3cret"));
}

#[test]
fn the_same_options_take_effect_on_redis() {
    let mut variables = STALL;
    variables[0].1 = "redis://:s3cret@redis:6379/0";
    let f = from_env(&variables);
    assert_eq!(value(&f, &OptionName::ReadTimeout), "1m");
    assert_eq!(value(&f, &OptionName::ConnectTimeout), "10s");
    assert_eq!(value(&f, &OptionName::VisibilityTimeout), "24h", "Airflow's own default, not kombu's hour");
    assert!(f.ignored.is_empty());
}

#[test]
fn every_fact_has_its_place() {
    let f =
        findings(&[("cc.py", "broker_url = 'amqp://h//'\n\nbroker_transport_options = {\n  'read_timeout': 60,\n}\n")]);
    let fact = f.get(&OptionName::ReadTimeout).unwrap();
    assert_eq!(
        (fact.place.to_string(), fact.origin),
        ("cc.py:4 broker_transport_options[\"read_timeout\"]".to_string(), Origin::Written)
    );
    let default = f.get(&OptionName::TcpUserTimeout).unwrap();
    assert_eq!(
        (default.place.to_string(), default.origin),
        ("default of py-amqp 5.4.2 amqp/transport.py".to_string(), Origin::Default)
    );
}

#[test]
fn transport_options_outrank_the_address_which_outranks_celery() {
    let f = findings(&[(
        "cc.py",
        "broker_url = 'amqp://h//?heartbeat=40'\nbroker_heartbeat = 50\nbroker_connection_timeout = 6\n\
         broker_transport_options = {'connect_timeout': 9}\n",
    )]);
    assert_eq!(value(&f, &OptionName::Heartbeat), "40s");
    assert_eq!(value(&f, &OptionName::ConnectTimeout), "9s");
    let losers: Vec<String> =
        f.overridden.iter().map(|o| format!("{} {} by {}", o.fact.option, o.fact.value, o.value)).collect();
    assert_eq!(losers, ["heartbeat 50s by 40s", "connect_timeout 6s by 9s"]);
}

#[test]
fn variables_outrank_files_and_extra_celery_config_outranks_both() {
    let cfg = "[celery]\nbroker_url = amqp://h//\nworker_concurrency = 4\nextra_celery_config = {\"broker_heartbeat\": 20, \"worker_concurrency\": 2}\n";
    let readings = [
        read_environment("environment", [("AIRFLOW__CELERY__WORKER_CONCURRENCY", "8")]),
        read("airflow.cfg", cfg).unwrap(),
    ];
    let f = interpret(&readings, &Hints::default());
    assert_eq!(value(&f, &OptionName::Concurrency), "2");
    assert_eq!(value(&f, &OptionName::Heartbeat), "20s");
}

#[test]
fn an_address_with_options_that_kombu_refuses() {
    let f = findings(&[("cc.py", "broker_url = 'redis://h/0?socket_timeout=5'\n")]);
    assert_eq!(lint(&f, "address-option").mend, "move `socket_timeout` to broker_transport_options");
    let f = findings(&[("cc.py", "broker_url = 'amqp://h//?connect_timeout=5'\n")]);
    assert_eq!(lint(&f, "address-connect-timeout").severity, Severity::Error);
}

#[test]
fn a_bare_redis_address_is_redis_py() {
    let f = findings(&[(
        "address",
        "rediss://user:s3cret@cache:6380/1?socket_timeout=60000&health_check_interval=30&socket_keepalive=no",
    )]);
    assert_eq!(value(&f, &OptionName::Client), "redis-py");
    assert_eq!(value(&f, &OptionName::Address), "rediss://cache:6380");
    assert_eq!(value(&f, &OptionName::HealthCheckInterval), "30s");
    assert_eq!(value(&f, &OptionName::Keepalive), "off");
    assert_eq!(
        lint(&f, "milliseconds-for-seconds").to_string(),
        "address address ?socket_timeout=: `address ?socket_timeout=` is in seconds: 60000 means 1000m; it looks like milliseconds; write 60 for 1m"
            .replace("`address ?socket_timeout=`", "`socket_timeout`")
    );
}

#[test]
fn without_an_address_transport_options_are_not_judged() {
    let readings = [read("o.json", "{\"socket_timeout\": 60}").unwrap()];
    let f = interpret(&readings, &Hints::default());
    assert_eq!((f.ignored.len(), f.not_understood.len()), (0, 1));
    let f = interpret(&readings, &Hints { transport: Some(Transport::Redis), celery: false });
    assert_eq!(value(&f, &OptionName::ReadTimeout), "1m");
    let f = interpret(&readings, &Hints { transport: Some(Transport::Pyamqp), celery: false });
    assert_eq!(f.ignored.len(), 1);
}

#[test]
fn the_server_s_side_and_the_negotiation() {
    let conf = "heartbeat = 30\nconsumer_timeout = 1800\n";
    let f = findings(&[("cc.py", "broker_url = 'amqp://h//'\nbroker_heartbeat = 120\n"), ("rabbitmq.conf", conf)]);
    assert_eq!(value(&f, &OptionName::ConsumerTimeout), "1.8s");
    assert_eq!(
        lint(&f, "heartbeat-negotiated-down").to_string(),
        "cc.py:2 broker_heartbeat: heartbeat 2m is larger than RabbitMQ's `heartbeat` of 30s: the smaller takes effect, 30s; count with \
         30s, or raise `heartbeat` in rabbitmq.conf"
    );
    assert_eq!(
        lint(&f, "seconds-for-milliseconds").to_string(),
        "rabbitmq.conf:2 consumer_timeout: `consumer_timeout` is in milliseconds: 1800 means 1.8s; it looks like seconds; write 1800000 for 30m"
    );
}

#[test]
fn half_a_minute_of_consumer_timeout_is_short_but_no_slip() {
    let f = findings(&[("rabbitmq.conf", "consumer_timeout = 30000\n")]);
    assert!(f.lints.iter().all(|l| l.code != "seconds-for-milliseconds"), "{:?}", f.lints);
    let found = lint(&f, "below-the-check-interval");
    assert_eq!(found.severity, Severity::Note);
    assert!(found.text.contains("so 30s means 30s to 90s"), "{found}");
    for usual in ["60000", "1800000"] {
        let f = findings(&[("rabbitmq.conf", &format!("consumer_timeout = {usual}\n"))]);
        assert!(f.lints.is_empty(), "{:?}", f.lints);
    }
}

#[test]
fn socket_options_by_number_take_effect_and_by_name_break_the_client() {
    let good = "import socket\nbroker_url = 'amqp://h//'\nbroker_transport_options = {'socket_settings': {socket.TCP_USER_TIMEOUT: 30000,\n socket.TCP_KEEPIDLE: 1200}}\n";
    let f = findings(&[("cc.py", good)]);
    assert_eq!(
        (value(&f, &OptionName::TcpUserTimeout), value(&f, &OptionName::KeepaliveIdle)),
        ("30s".into(), "20m".into())
    );
    assert_eq!(f.get(&OptionName::KeepaliveIdle).unwrap().place.line, Some(4));
    let f = findings(&[(
        "s.json",
        "{\"broker_url\": \"amqp://h//\", \"broker_transport_options\": {\"socket_settings\": {\"18\": 30000}}}",
    )]);
    assert_eq!(lint(&f, "socket-option-name").severity, Severity::Error);
    assert_eq!(value(&f, &OptionName::TcpUserTimeout), "1s", "the default: the client never gets that far");
    let f = findings(&[(
        "cc.py",
        "broker_url = 'amqp://h//'\nbroker_transport_options = {'socket_settings': {4: 60000}}\n",
    )]);
    assert!(lint(&f, "socket-option-range").text.contains("EINVAL"));
    let f = findings(&[(
        "cc.py",
        "broker_url = 'redis://h/0'\nbroker_transport_options = {'socket_keepalive_options': {4: 60}}\n",
    )]);
    assert_eq!(f.ignored[0].meant.as_deref(), Some("socket_keepalive"));
}

#[test]
fn a_user_timeout_without_keepalive_is_found_on_facts_from_anywhere() {
    let place = Place { label: "--set".to_string(), line: None, key: "tcp_user_timeout".to_string() };
    let fact = |option, value| Fact { option, value, origin: Origin::Written, place: place.clone(), note: None };
    let limit = Value::Time("30s".parse().unwrap());
    let facts = |keepalive| {
        vec![
            fact(OptionName::Keepalive, Value::Flag(keepalive)),
            fact(OptionName::KeepaliveIdle, Value::Time("60s".parse().unwrap())),
            fact(OptionName::TcpUserTimeout, limit.clone()),
        ]
    };
    let lints = lint_facts(facts(false));
    assert_eq!(
        lints[0].to_string(),
        "--set tcp_user_timeout: TCP_USER_TIMEOUT (30s) without keepalive: it watches sent data only, so an idle reader never notices; \
         turn keepalive on as well"
    );
    assert_eq!((lints.len(), lint_facts(facts(true)).len()), (1, 0));
}

#[test]
fn keepalive_after_the_reaper_and_behind_middleboxes() {
    let text = "import socket\nbroker_url = 'amqp://h//'\nbroker_heartbeat = 0\nbroker_transport_options = {'socket_settings': {socket.TCP_KEEPIDLE: 1100, 18: 0}}\n";
    let f = interpret(
        &[
            read("cc.py", text).unwrap(),
            read_environment("environment", [("AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT", "1190")]),
        ],
        &Hints::default(),
    );
    assert_eq!(
        lint(&f, "keepalive-after-reaper").text,
        "keepalive ends an idle dead connection after 1190s (idle 1100s + probes every 10s), not before the reaper's queued_timeout of 1190s"
    );
    assert!(lint(&f, "keepalive-behind-middlebox").text.contains("AWS network load balancer (350 s)"));
    assert!(lint(&f, "heartbeat-off").text.contains("frozen above TCP"));
}

#[test]
fn keepalive_totals_are_those_of_the_kernel() {
    let s = Duration::from_secs;
    assert_eq!(keepalive_total(s(60), s(10), 9, None), s(150));
    assert_eq!(keepalive_total(s(60), s(10), 9, Some(s(1))), s(70), "py-amqp's defaults");
    assert_eq!(keepalive_total(s(5), s(1), 3, Some(s(30))), s(30));
    assert_eq!(keepalive_total(s(5), s(1), 3, Some(Duration::from_millis(6500))), s(7));
    assert_eq!(keepalive_total(s(1), s(0), 3, Some(s(5))), s(1));
}

#[test]
fn heartbeats_longer_than_middleboxes_and_spellings() {
    let f = findings(&[
        ("cc.py", "broker_url = 'amqp://h//'\nbroker_heartbeat = 400\nBROKER_HEARTBEAT = 10\n"),
        ("rabbitmq.conf", "heartbeat = 0\n"),
    ]);
    assert!(
        lint(&f, "heartbeat-behind-middlebox")
            .text
            .contains("Azure load balancer (240 s), AWS network load balancer (350 s):")
    );
    assert!(lint(&f, "two-spellings").text.contains("`broker_heartbeat` (400s)"), "{}", lint(&f, "two-spellings").text);
    assert_eq!(value(&f, &OptionName::Heartbeat), "400s", "the new name wins, wherever it stands");
    assert!(codes(&f).contains(&"broker-heartbeat-off"));
    let f = findings(&[("cc.py", "broker_url = 'amqp://h//'\nCELERYD_CONCURRENCY = 4\n")]);
    assert!(lint(&f, "mixed-spellings").text.contains("ImproperlyConfigured"));
    let f = findings(&[("cc.py", "BROKER_URL = 'amqp://h//'\nCELERYD_CONCURRENCY = 4\n")]);
    assert!(!codes(&f).contains(&"mixed-spellings"));
}

#[test]
fn redis_lints() {
    let f = findings(&[(
        "cc.py",
        "broker_url = 'redis://h/0'\nbroker_transport_options = {'visibility_timeout': 1800, 'socket_connect_timeout': 0, 'health_check_interval': '25'}\n\
         task_time_limit = 3600\nredis_socket_timeout = 30\nbroker_heartbeat = 10\nbroker_connection_timeout = 5\n",
    )]);
    assert!(lint(&f, "visibility-below-time-limit").text.contains("30m is shorter than task_time_limit of 1h"));
    assert!(lint(&f, "zero-timeout").text.contains("socket_connect_timeout"));
    assert!(lint(&f, "number-as-text").text.contains("health_check_interval"));
    assert!(lint(&f, "result-timeout-only").text.contains("redis_socket_timeout"));
    let ignored: Vec<&str> = f.ignored.iter().map(|i| i.key.as_str()).collect();
    assert_eq!(ignored, ["broker_heartbeat", "broker_connection_timeout"]);
}

#[test]
fn a_celery_variable_says_who_must_map_it() {
    let f = from_env(&[("CELERY_BROKER_URL", "amqp://h//"), ("CELERY_BROKER_HEARTBEAT", "10")]);
    let fact = f.get(&OptionName::Heartbeat).unwrap();
    assert_eq!(fact.value.to_string(), "10s");
    assert!(fact.note.as_deref().unwrap().contains("Celery itself does not read this variable"), "{fact:?}");
}

#[test]
fn wrong_values_are_named() {
    let f =
        from_env(&[("AIRFLOW__CELERY__BROKER_URL", "amqp://h//"), ("AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT", "20m")]);
    let found = lint(&f, "wrong-value");
    assert_eq!(found.text, "`AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT` is not a number of seconds");
    assert_eq!(value(&f, &OptionName::QueuedTimeout), "10m", "the default stands");
}

#[test]
fn sources_are_recognised() {
    for (label, text, kind) in [
        ("x", "redis://h:6379/0", SourceKind::Address),
        (".env", "A=1", SourceKind::EnvFile),
        ("prod.env", "", SourceKind::EnvFile),
        ("dump", "PATH=/bin\nCELERY_BROKER_URL=amqp://h//\nHOME=/root\n", SourceKind::EnvFile),
        ("x", "{\"socket_timeout\": 1}", SourceKind::Json),
        ("cc.py", "", SourceKind::CeleryModule),
        ("-", "broker_url = 'amqp://h//'\nbroker_heartbeat = 3\n", SourceKind::CeleryModule),
        ("-", "app.conf.broker_heartbeat = 3\n", SourceKind::CeleryModule),
        ("-", "\nsoftware -> celery:5.4.0 (opalescent) kombu:5.4.2 py:3.12.1\n", SourceKind::CeleryReport),
        ("my.cfg", "[core]\ndags_folder = /x\n", SourceKind::AirflowCfg),
        ("-", "heartbeat = 60\n", SourceKind::RabbitmqConf),
        ("-", "listeners.tcp.default = 5672\ncluster_name = x\nheartbeat = 60\n", SourceKind::RabbitmqConf),
        ("-", "bind 127.0.0.1\ntimeout 0\n", SourceKind::RedisConf),
        ("-", "timeout\n0\ntcp-keepalive\n300\n", SourceKind::RedisConfigGet),
        ("-", "1) \"timeout\"\n2) \"0\"\n", SourceKind::RedisConfigGet),
        ("-", "kernel.panic = 0\nnet.ipv4.tcp_retries2 = 15\n", SourceKind::Sysctl),
    ] {
        assert_eq!(recognise(label, text), Some(kind), "{label}: {text}");
    }
    for text in ["", "hello\n", "\u{0}\u{1}"] {
        let error = read("notes.txt", text).unwrap_err();
        assert!(matches!(error, ReadError::Unrecognised { .. }));
    }
}

const ALL_KINDS: [SourceKind; 11] = [
    SourceKind::Environment,
    SourceKind::EnvFile,
    SourceKind::CeleryModule,
    SourceKind::CeleryReport,
    SourceKind::AirflowCfg,
    SourceKind::Json,
    SourceKind::RabbitmqConf,
    SourceKind::RedisConf,
    SourceKind::RedisConfigGet,
    SourceKind::Address,
    SourceKind::Sysctl,
];

/// Everything that a caller could print.
fn all_output(readings: &[Reading]) -> String {
    let mut out = format!("{readings:?}");
    for transport in [None, Some(Transport::Pyamqp), Some(Transport::Redis)] {
        let f = interpret(readings, &Hints { transport, celery: false });
        out += &format!("{f:?}{}", serde_json::to_string(&f).unwrap());
        for lint in &f.lints {
            out += &lint.to_string();
        }
    }
    out
}

/// Texts made of the pieces that the readers look for.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("broker_heartbeat".to_string()),
        Just("broker_transport_options".to_string()),
        Just("AIRFLOW__CELERY__BROKER_URL=".to_string()),
        Just("amqp://u:p@h//?heartbeat=".to_string()),
        Just("socket_settings".to_string()),
        Just("conf.update(".to_string()),
        Just("[celery]\n".to_string()),
        Just("{\"".to_string()),
        Just("consumer_timeout".to_string()),
        Just("net.ipv4.tcp_retries2".to_string()),
        Just("1) \"timeout\"".to_string()),
        Just("99999999999999999999999".to_string()),
        Just("-1e308".to_string()),
        "[\\[\\](){}'\"=:,.#;\\\\ \n\t*+/%-]",
        "[a-z_]{1,8}",
        "[0-9]{1,4}",
        "\\PC",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|v| v.concat())
}

/// A place for a secret in a realistic source.
fn hiding_places(secret: &str) -> Vec<(SourceKind, String)> {
    let url = format!("amqp://user:{secret}@rabbit:5672//?heartbeat=10");
    vec![
        (SourceKind::Address, url.clone()),
        (SourceKind::Address, format!("redis://:{secret}@h:6379/0?socket_timeout=5&password={secret}")),
        (SourceKind::Address, format!("amqp://{secret}@h//;amqp://u:{secret}@i//")),
        (
            SourceKind::EnvFile,
            format!("CELERY_BROKER_URL={url}\nAIRFLOW__CELERY__BROKER_URL='{url}'\nDB_PASSWORD={secret}\n"),
        ),
        (
            SourceKind::EnvFile,
            format!("AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__PASSWORD={secret}\nCELERY_BROKER_HEARTBEAT={secret}\n"),
        ),
        (
            SourceKind::EnvFile,
            format!("CELERY_BROKER_TRANSPORT_OPTIONS={{\"read_timeout\": \"{secret}\"}}\nKEY=\"x\n{secret}=\n\"\n"),
        ),
        (
            SourceKind::CeleryModule,
            format!(
                "broker_url = '{url}'\nbroker_transport_options = {{'password': '{secret}', 'read_timeout': '{secret}', 'zz': '{secret}'}}\n"
            ),
        ),
        (
            SourceKind::CeleryModule,
            format!(
                "app = Celery('x', broker='{url}')\nbroker_heartbeat = '{secret}'\nbroker_hearbeat = '{secret}'\nx = f'{secret}'\n"
            ),
        ),
        (
            SourceKind::CeleryReport,
            format!(
                "software -> celery:5.7.0 kombu:{secret} py:3.11\n\nbroker_url: '{url}'\nbroker_transport_options: \n    'sentinel_kwargs': {{'password': '{secret}'}},\n    'zz': '{secret}'}}\n"
            ),
        ),
        (
            SourceKind::AirflowCfg,
            format!(
                "[celery]\nbroker_url = {url}\nbroker_url_cmd = echo {secret}\nbroker_heartbeat = {secret}\n[celery_broker_transport_options]\nsentinel_kwargs = {{\"password\": \"{secret}\"}}\nzz = {secret}\n"
            ),
        ),
        (
            SourceKind::Json,
            format!(
                "{{\"broker_url\": \"{url}\", \"broker_transport_options\": {{\"password\": \"{secret}\", \"zz\": \"{secret}\"}}}}"
            ),
        ),
        (SourceKind::Json, format!("{{\"password\": \"{secret}\", \"read_timeout\": [\"{secret}\"]}}")),
        (
            SourceKind::RabbitmqConf,
            format!("default_pass = {secret}\nheartbeat = {secret}\nconsumer_timeouts = {secret}\n"),
        ),
        (SourceKind::RedisConf, format!("requirepass {secret}\nmasterauth {secret}\ntimeout {secret}\n")),
        (SourceKind::RedisConfigGet, format!("requirepass\n{secret}\ntimeout\n{secret}\n")),
        (SourceKind::Sysctl, format!("net.ipv4.tcp_retries2 = {secret}\nnet.ipv4.tcp_retires2 = {secret}\n")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_is_read_or_refused_without_panic(text in "(?s).{0,200}", label in "\\PC{0,20}") {
        let _ = read(&label, &text);
        for kind in ALL_KINDS {
            if let Ok(reading) = read_as(kind, &label, &text) {
                all_output(&[reading]);
            }
        }
    }

    #[test]
    fn any_mixture_of_known_pieces_is_read_without_panic(text in pieces()) {
        let readings: Vec<Reading> = ALL_KINDS.iter().filter_map(|kind| read_as(*kind, "file", &text).ok()).collect();
        all_output(&readings);
    }

    #[test]
    fn secrets_never_appear_in_any_output(secret in "Zq[A-Za-z0-9_~-]{6,16}X", special in "[/?#;@:&= ]?") {
        for (kind, text) in hiding_places(&secret) {
            if let Ok(reading) = read_as(kind, "file", &text) {
                prop_assert!(!all_output(&[reading]).contains(&secret), "{kind}: {text}");
            }
        }
        // A password with an unescaped separator in it: neither half may show.
        let torn = format!("{secret}{special}{secret}");
        for (kind, text) in hiding_places(&torn) {
            match read_as(kind, "file", &text) {
                Ok(reading) => prop_assert!(!all_output(&[reading]).contains(&secret), "{kind}: {text}"),
                Err(error) => prop_assert!(!error.to_string().contains(&secret)),
            }
        }
    }
}
