//! A real RabbitMQ of the run's own: its files, its configuration, its port mapper, its start.

use super::alarm::DISK_FREE;
use super::broker::{Broker, Patience, wait_ready};
use super::code_path::CodePath;
use super::running::{Recipe, Running};
use super::{Certificates, LabError, LabSpec, Programs, Site, amqp};
use crate::host::netns::NetNs;
use crate::host::process::{Launch, Stream};
use crate::host::programs::Program;
use crate::scenario::{BrokerKind, BrokerSettings};
use crate::units::Setting;
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const KIND: BrokerKind = BrokerKind::Rabbitmq;
pub(super) const USER: &str = "halfopen";
const EPMD_PORT: u16 = 4369;
/// Names are looked up in this file and nowhere else. RabbitMQ asks for the name of every client's address and for its
/// own; in a lab nobody answers, and a resolver gives up after 5 s, which would be part of every handshake.
pub(super) const INETRC: &str = "{lookup, [file]}.\n{host, {127,0,0,1}, [\"localhost\"]}.\n";
/// Erlang's schedulers spin a while before they sleep: processor time taken from the clients under test, and in a guest
/// whose clock moves only when all sleep, time that never passes. Nothing else depends on it.
pub(super) const NO_BUSY_WAITING: &str = "+sbwt none +sbwtdcpu none +sbwtdio none";

/// Where it finds Erlang and the shell's tools.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Starts it and waits for a login.
pub(super) fn start(
    spec: &LabSpec<'_>,
    programs: &Programs,
    site: &Site<'_>,
    patience: &Patience,
) -> Result<Broker, LabError> {
    let (Some(program), Some(epmd)) = (&programs.rabbitmq, &programs.epmd) else {
        return Err(LabError::NoProgram {
            program: Program::RabbitmqServer.name(),
            mend: Program::RabbitmqServer.mend(),
        });
    };
    let io = |what: &'static str| move |source: io::Error| LabError::Io { kind: KIND, what, source };
    let Site { ns: server, dir, password, tls, .. } = site;
    let files = Files::new(dir.clone(), CodePath::find(program, PATH));
    files.write(spec.brokers, &spec.vhosts, password, *tls).map_err(io("write its files"))?;
    // Before it and as a child of our own: the one that Erlang would start detaches and outlives the broker.
    let epmd = start_epmd(epmd, &spec.run_id, &files, server, patience)?;
    let mut launch = Launch::new(program);
    launch.env = files.environment(&spec.run_id, spec.nofile);
    launch.only_env = true;
    launch.cwd = Some(files.dir.clone());
    launch.netns = Some((*server).clone());
    launch.nofile = Some(spec.nofile);
    (launch.stdout, launch.stderr) = (Stream::File(files.output()), Stream::File(files.output()));
    let mut process: Running = launch.clone().spawn().map_err(io("start it"))?.into();
    let log = files.log();
    let port = KIND.port();
    let handshake = |stream: &mut TcpStream| amqp::log_in(stream, USER, password);
    let startup = wait_ready(KIND, port, &mut process, server, patience, &[&log, &files.output()], handshake)?;
    Ok(Broker {
        kind: KIND,
        port,
        user: USER.into(),
        version: Program::RabbitmqServer.version(program),
        startup,
        unlike_stock: Some(files.unlike_stock()),
        log,
        process,
        control: Some(Launch {
            program: program.with_file_name("rabbitmqctl"),
            env: launch.env.clone(),
            only_env: true,
            cwd: launch.cwd.clone(),
            netns: launch.netns.clone(),
            ..Launch::new(program)
        }),
        recipe: Recipe::Own(launch),
        helpers: vec![epmd],
        dir: files.dir,
        password: password.clone(),
    })
}

fn start_epmd(
    program: &Path,
    run_id: &str,
    files: &Files,
    server: &NetNs,
    patience: &Patience,
) -> Result<Running, LabError> {
    let mut launch = Launch::new(program).args(["-address", "127.0.0.1", "-port", &EPMD_PORT.to_string()]);
    launch.netns = Some(server.clone());
    launch.env = vec![("HALFOPEN_RUN_ID".into(), run_id.into())];
    launch.only_env = true;
    (launch.stdout, launch.stderr) = (Stream::File(files.output()), Stream::File(files.output()));
    let what = "start its port mapper";
    let mut epmd: Running = launch.spawn().map_err(|source| LabError::Io { kind: KIND, what, source })?.into();
    wait_ready(KIND, EPMD_PORT, &mut epmd, server, patience, &[&files.output()], |_| Ok(()))?;
    Ok(epmd)
}

struct Files {
    dir: PathBuf,
    code_path: Option<CodePath>,
}

impl Files {
    fn new(dir: PathBuf, code_path: Option<CodePath>) -> Self {
        Self { dir, code_path }
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log/rabbitmq.log")
    }

    /// What it prints before its log begins.
    fn output(&self) -> PathBuf {
        self.dir.join("output")
    }

    fn write(
        &self,
        settings: &BrokerSettings,
        vhosts: &[String],
        password: &str,
        tls: Option<&Certificates>,
    ) -> io::Result<()> {
        for dir in ["", "home", "log", "mnesia", "config"] {
            fs::create_dir_all(self.dir.join(dir))?;
        }
        let mut configured = configuration(settings, password);
        configured.extend(tls.map(listener));
        if !vhosts.is_empty() {
            let path = self.dir.join("definitions.json");
            fs::write(&path, definitions(vhosts, password))?;
            configured.push_str(&format!("load_definitions = {}\n", path.display()));
        }
        fs::write(self.dir.join("rabbitmq.conf"), configured)?;
        fs::write(self.dir.join("enabled_plugins"), "[].\n")?;
        fs::write(self.dir.join("rabbitmq-env.conf"), "")?;
        fs::write(self.dir.join("inetrc"), INETRC)?;
        if let Some(code) = &self.code_path {
            code.link_plugins(&self.dir.join("plugins"))?;
        }
        let cookie = self.dir.join("home/.erlang.cookie");
        fs::write(&cookie, crate::host::secret::password()?)?;
        // Erlang refuses a cookie that others can read.
        fs::set_permissions(cookie, fs::Permissions::from_mode(0o400))
    }

    /// In what its start differs from the package's own, in words for the run directory.
    fn unlike_stock(&self) -> String {
        let arguments =
            format!("ERL_AFLAGS {NO_BUSY_WAITING} -start_epmd false (its port mapper is started before it)");
        match &self.code_path {
            None => arguments,
            Some(code) => format!(
                "{arguments}, {} directories first in the code path, no plugins but rabbit in RABBITMQ_PLUGINS_DIR",
                code.len()
            ),
        }
    }

    /// All of its environment: nothing of the machine's own configuration reaches it.
    fn environment(&self, run_id: &str, nofile: u64) -> Vec<(String, OsString)> {
        let file = |name: &str| self.dir.join(name).into_os_string();
        let text = |value: &str| OsString::from(value);
        let code_path = self.code_path.as_ref().map_or_else(String::new, CodePath::arguments);
        let plugins = self.code_path.is_some().then(|| ("RABBITMQ_PLUGINS_DIR", file("plugins")));
        [
            ("PATH", text(PATH)),
            ("LANG", text("C.UTF-8")),
            // The log's clock.
            ("TZ", text("UTC")),
            ("HALFOPEN_RUN_ID", text(run_id)),
            ("HOME", file("home")),
            ("RABBITMQ_CONF_ENV_FILE", file("rabbitmq-env.conf")),
            ("RABBITMQ_CONFIG_FILE", file("rabbitmq.conf")),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", file("advanced.config")),
            ("RABBITMQ_GENERATED_CONFIG_DIR", file("config")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins")),
            ("RABBITMQ_MNESIA_BASE", file("mnesia")),
            ("RABBITMQ_LOG_BASE", file("log")),
            ("RABBITMQ_PID_FILE", file("pid")),
            ("RABBITMQ_NODENAME", text(&node_name(run_id))),
            // Makes the script become the Erlang machine, so that our child is the broker and no shell in between.
            ("RUNNING_UNDER_SYSTEMD", text("true")),
            ("ERL_INETRC", file("inetrc")),
            ("ERL_EPMD_ADDRESS", text("127.0.0.1")),
            ("ERL_EPMD_PORT", text(&EPMD_PORT.to_string())),
            ("ERL_AFLAGS", text(&format!("{NO_BUSY_WAITING} -start_epmd false {code_path}"))),
            ("ERL_MAX_PORTS", text(&nofile.max(1024).to_string())),
        ]
        .into_iter()
        .chain(plugins)
        .map(|(name, value)| (name.to_string(), value))
        .collect()
    }
}

/// A name that Erlang takes as it is: a dot in it would be read as part of a host.
fn node_name(run_id: &str) -> String {
    let plain: String = run_id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("halfopen-{plain}@localhost")
}

/// `rabbitmq.conf`.
pub(super) fn configuration(settings: &BrokerSettings, password: &str) -> String {
    let mut lines = vec![
        format!("listeners.tcp.1 = 0.0.0.0:{}", KIND.port()),
        format!("default_user = {USER}"),
        format!("default_pass = {password}"),
        "loopback_users = none".into(),
        format!("disk_free_limit.absolute = {DISK_FREE}"),
        "tcp_listen_options.backlog = 4096".into(),
        // One of these keys written replaces the whole list of RabbitMQ's own, so the others are written as they are there.
        // Without `linger` a connection that it gives up is not reset: its FIN waits behind unacknowledged data.
        "tcp_listen_options.nodelay = true".into(),
        "tcp_listen_options.linger.on = true".into(),
        "tcp_listen_options.linger.timeout = 0".into(),
        "tcp_listen_options.exit_on_close = false".into(),
        "log.console = false".into(),
        "log.file = rabbitmq.log".into(),
        "log.file.level = info".into(),
        "log.connection.level = info".into(),
        "log.file.formatter = plaintext".into(),
        // Microseconds.
        "log.file.formatter.time_format = rfc3339_space".into(),
    ];
    match settings.heartbeat {
        None => {}
        Some(Setting::None) => lines.push("heartbeat = 0".into()),
        Some(Setting::After(d)) => lines.push(format!("heartbeat = {}", d.as_secs_f64().ceil())),
    }
    if let Some(timeout) = settings.consumer_timeout {
        lines.push(format!("consumer_timeout = {}", timeout.as_millis()));
    }
    lines.join("\n") + "\n"
}

/// The lines of `rabbitmq.conf` for a listener that shows a certificate and asks for none.
pub(super) fn listener(files: &Certificates) -> String {
    format!(
        "listeners.ssl.1 = 0.0.0.0:{}\nssl_options.cacertfile = {}\nssl_options.certfile = {}\nssl_options.keyfile = {}\n\
         ssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n",
        KIND.tls_port(),
        files.ca.display(),
        files.certificate.display(),
        files.key.display()
    )
}

/// Virtual hosts, which it makes as it starts. With definitions it makes no default user, so that one is among them.
pub(super) fn definitions(vhosts: &[String], password: &str) -> String {
    let all = || std::iter::once("/").chain(vhosts.iter().map(String::as_str));
    let permission =
        |vhost: &str| json!({ "user": USER, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*" });
    let definitions = json!({
        "users": [{ "name": USER, "password": password, "tags": "administrator" }],
        "vhosts": all().map(|vhost| json!({ "name": vhost })).collect::<Vec<_>>(),
        "permissions": all().map(permission).collect::<Vec<_>>(),
    });
    definitions.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_configuration_carries_what_the_scenario_sets_and_no_more() {
        let plain = configuration(&BrokerSettings::default(), "pw");
        assert!(plain.contains("default_pass = pw\n"));
        // A broker that gives a connection up resets it, as it does with no configuration at all.
        assert!(plain.contains("linger.on = true\n") && plain.contains("linger.timeout = 0\n"), "{plain}");
        assert!(!plain.contains("heartbeat =") && !plain.contains("consumer_timeout"));
        let set = BrokerSettings {
            heartbeat: Some(Setting::After(Duration::from_secs(5))),
            consumer_timeout: Some(Duration::from_secs(30)),
            ..BrokerSettings::default()
        };
        let text = configuration(&set, "pw");
        assert!(text.contains("heartbeat = 5\n") && text.contains("consumer_timeout = 30000\n"), "{text}");
        let off = BrokerSettings { heartbeat: Some(Setting::None), ..BrokerSettings::default() };
        assert!(configuration(&off, "pw").contains("heartbeat = 0\n"));
    }

    #[test]
    fn a_node_name_has_no_dots() {
        assert_eq!(node_name("2026.1_a"), "halfopen-2026-1-a@localhost");
    }
}
