use super::*;

fn settings(sets: &[(&str, &str)]) -> Settings {
    let sets: Vec<(String, String)> = sets.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
    crate::scenario::from_sets(&sets).unwrap()
}

#[test]
fn every_adapter_can_be_read_and_knows_only_real_claims() {
    for kind in SubjectKind::ALL.into_iter().filter(|kind| kind.is_command() && !kind.is_own_command()) {
        let adapter = adapter_of(kind).unwrap();
        assert_eq!(adapter.name, kind.name());
        assert_eq!(adapter.locked_versions().len(), adapter.versions.len());
        let known = ["read_timeout", "amqp_heartbeat", "health_check", "connect_timeout", "closed_by_peer"];
        assert!(adapter.words.values().all(|how| known.contains(&how.as_str())));
        assert!(adapter.lock.lines().filter(|line| !line.starts_with('#')).all(|line| line.contains("--hash=sha256:")));
        let known = ["so_rcvtimeo", "so_sndtimeo", "keepalive"];
        assert!(adapter.claims.values().all(|claim| known.contains(&claim.as_str())), "{:?}", adapter.claims);
    }
}

#[test]
fn options_get_their_native_names_and_native_options_stand_over_them() {
    let adapter = adapter_of(SubjectKind::Celery).unwrap();
    let conf = |sets: &[(&str, &str)]| Value::Object(adapter.configuration(&settings(sets))).to_string();
    assert_eq!(
        conf(&[("subject", "celery")]),
        r#"{"broker_heartbeat":120,"broker_connection_timeout":4,"worker_prefetch_multiplier":4,"task_acks_late":false}"#
    );
    let both = conf(&[
        ("subject", "celery"),
        ("heartbeat", "none"),
        ("read_timeout", "60s"),
        ("client.broker_transport_options.socket_timeout", "60"),
    ]);
    assert!(both.contains(r#""broker_heartbeat":0"#), "{both}");
    assert!(both.contains(r#""broker_transport_options":{"read_timeout":60,"socket_timeout":60}"#), "{both}");
}

#[test]
fn the_mapping_and_the_claims_name_the_clients_own_options() {
    let asks = settings(&[("subject", "celery"), ("client.broker_transport_options.socket_timeout", "60")]);
    let claims = asked(&asks);
    let expected = ("broker_transport_options.socket_timeout".to_string(), 60.into(), "so_rcvtimeo".to_string());
    assert_eq!(claims, [expected]);
    assert!(mapping(&asks).contains(&"client → broker_transport_options.socket_timeout = 60".to_string()));
    assert!(mapping(&asks).contains(&"heartbeat → broker_heartbeat = 120".to_string()));
}

#[test]
fn braces_are_filled_in_but_never_inside_of_the_configuration() {
    let place = Where {
        environment: Some("/cache/e".into()),
        started_in: "/srv".into(),
        trial: 7,
        broker: BrokerKind::Rabbitmq,
        broker_host: "10.128.128.1".into(),
        broker_port: 5672,
        vhost: "%2F".into(),
        db: 3,
        queue: "halfopen.7".into(),
        user: "u".into(),
        password: "p".into(),
        effects: "/tmp/e".into(),
        ca_file: None,
        log: "/run/l".into(),
    };
    let asks = settings(&[("subject", "celery"), ("client.note", "{password}")]);
    let program = adapter_of(SubjectKind::Celery).unwrap().program(&asks, &place);
    assert_eq!(program.argv[0], "/cache/e/bin/python");
    let env = |name: &str| program.env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).unwrap_or_default();
    assert_eq!(env("HALFOPEN_BROKER_URL"), "amqp://u:p@10.128.128.1:5672/%2F");
    assert!(env("HALFOPEN_CLIENT_CONF").contains("\"{password}\""));
    let text = "# ?\n[scenario]\nname = \"x\"\nhorizon = \"9s\"\n[[arm]]\nname = \"a\"\nexpect = \"censored\"\nclient = { limit = 5 \
                }\nsubject = { command = [\"w\", \"--limit={client.limit}\", \"{broker_url}\", \"{x}\"], broker = \"redis\", \
                cwd = \"app\" }\n[fault]\nprofile = \"blackhole\"\n";
    let text = text.replace(", \"{x}\"", "");
    let settings = crate::scenario::read("x.toml", &text).unwrap().arms[0].settings.clone();
    let program = adapter(&settings).unwrap().program(&settings, &Where { broker: BrokerKind::Redis, ..place });
    assert_eq!(program.argv, ["w", "--limit=5", "redis://:p@10.128.128.1:5672/3"]);
    assert_eq!((program.cwd, program.ready), (Some("/srv/app".into()), ReadyWhen::Consumes));
}
