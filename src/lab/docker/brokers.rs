//! Brokers in containers: the image's own start, with the run's configuration laid in.
//!
//! Images keep to what the official ones of RabbitMQ and Redis do: `rabbitmq-server` and `redis-server` are the commands,
//! an entry point started as root becomes a user of its own. Logs and configuration lie in the run's working directory, so
//! that they are read as in the other labs.

use super::DockerSpec;
use super::api::Api;
use super::contained::{Contained, into_file};
use super::container::Made;
use super::remade::Remade;
use super::wire::Host;
use crate::host::process::Launch;
use crate::host::secret::password;
use crate::lab::broker::{Broker, Patience, wait_ready};
use crate::lab::running::{Recipe, Running};
use crate::lab::{Certificates, LabError, LabSpec, amqp, rabbitmq, redis};
use crate::scenario::BrokerKind;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where a broker finds the run's files.
const FILES: &str = "/halfopen";

/// Starts all brokers at once, those of the host that takes over as well, and waits until each has answered a login. Returns
/// the brokers and those of that other host.
pub(super) fn start_all(
    api: &Api,
    spec: &LabSpec<'_>,
    docker: &DockerSpec,
    (server, standby): (&Host, Option<&Host>),
    tls: Option<&Certificates>,
    patience: &Patience,
) -> Result<(Vec<Broker>, Vec<Broker>), LabError> {
    let mut starts = Vec::new();
    for kind in spec.brokers.kinds.iter().copied().filter(|kind| *kind != BrokerKind::None) {
        let password = password().map_err(|source| LabError::Io { kind, what: "make a password", source })?;
        let first = Start { api, spec, docker, server, stands_by: false, kind, password, tls };
        let second = standby.map(|server| Start { server, stands_by: true, password: first.password.clone(), ..first });
        starts.extend(second);
        starts.push(first);
    }
    std::thread::scope(|scope| {
        let going: Vec<_> = starts.iter().map(|start| (start, scope.spawn(|| start.go(patience)))).collect();
        let (mut first, mut second, mut error) = (Vec::new(), Vec::new(), None);
        for (start, thread) in going {
            match thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                Ok(broker) if start.stands_by => second.push(broker),
                Ok(broker) => first.push(broker),
                Err(e) => error = error.or(Some(e)),
            }
        }
        error.map_or(Ok((first, second)), Err)
    })
}

struct Start<'a> {
    api: &'a Api,
    spec: &'a LabSpec<'a>,
    docker: &'a DockerSpec,
    server: &'a Host,
    /// Whether it is on the host that takes over.
    stands_by: bool,
    kind: BrokerKind,
    /// Of the run's own login there.
    password: String,
    /// What it shows to clients that ask for it.
    tls: Option<&'a Certificates>,
}

/// What a kind of broker wants.
struct Wants {
    command: Vec<String>,
    env: Vec<String>,
    /// Where its data is: in the run's directory, which is in memory, so that one that is started again finds it.
    binds: Vec<String>,
    /// Its log, below the directory of its files.
    log: &'static str,
    user: &'static str,
    /// In what its start differs from the image's own.
    unlike_stock: Option<String>,
}

impl Start<'_> {
    fn go(&self, patience: &Patience) -> Result<Broker, LabError> {
        let kind = self.kind;
        let io = |what: &'static str| move |source: io::Error| LabError::Io { kind, what, source };
        let password = self.password.clone();
        let role = if self.stands_by { format!("standby-{kind}") } else { kind.name().to_string() };
        let dir = self.spec.work_dir.join(&role);
        let image = self.docker.images.get(&kind).cloned().unwrap_or_default();
        let wants = match kind {
            BrokerKind::Redis => self.redis(&dir, &password),
            BrokerKind::Rabbitmq | BrokerKind::None => self.rabbitmq(&dir, &password, &image),
        }
        .map_err(io("write its files"))?;
        let made = Made {
            run_id: self.spec.run_id.clone(),
            role,
            image: image.clone(),
            command: Some(wants.command),
            env: wants.env,
            binds: [vec![format!("{}:{FILES}", dir.display())], wants.binds].concat(),
            network: format!("container:{}", self.server.container),
            pid_of: Some(self.server.container.clone()),
            ..Made::default()
        };
        let started = self.api.wait(made.start(self.api))?;
        let (log, output) = (dir.join(wants.log), dir.join("output"));
        let (api, ns, nofile) = (self.api.clone(), self.server.ns.clone(), self.spec.nofile);
        let again = Remade { api, made, output: output.clone(), nofile, ns };
        let file = fs::File::create(&output).map_err(io("keep what it prints"))?;
        into_file(self.api, started.output, file);
        let mut process =
            Contained::main_process(self.api, started.pid).map(Running::Contained).map_err(io("watch it"))?;
        if let Running::Contained(process) = &process {
            process.raise_nofile(self.spec.nofile);
        }
        let (user, secret) = (wants.user, password.clone());
        let log_in = |stream: &mut TcpStream| match kind {
            BrokerKind::Redis => redis::log_in(stream, &secret),
            BrokerKind::Rabbitmq | BrokerKind::None => amqp::log_in(stream, user, &secret),
        };
        let port = kind.port();
        let startup = wait_ready(kind, port, &mut process, &self.server.ns, patience, &[&log, &output], log_in)?;
        let version = version_in(&fs::read(&log).unwrap_or_default(), kind);
        Ok(Broker {
            kind,
            port,
            user: user.into(),
            version: Some(format!("{} ({image})", version.unwrap_or_else(|| "unknown".into()))),
            startup,
            unlike_stock: wants.unlike_stock,
            log,
            process,
            recipe: Recipe::Contained(again),
            control: (kind == BrokerKind::Rabbitmq).then(|| control(&started.name)),
            helpers: Vec::new(),
            dir,
            password,
        })
    }

    fn rabbitmq(&self, dir: &Path, password: &str, image: &str) -> io::Result<Wants> {
        open_dir(dir)?;
        open_dir(&dir.join("log"))?;
        let data = dir.join("data");
        open_dir(&data)?;
        let mut configured = rabbitmq::configuration(self.spec.brokers, password);
        configured.extend(
            self.tls.map(|files| files.lay_into(dir, Path::new(FILES))).transpose()?.as_ref().map(rabbitmq::listener),
        );
        if !self.spec.vhosts.is_empty() {
            fs::write(dir.join("definitions.json"), rabbitmq::definitions(&self.spec.vhosts, password))?;
            configured.push_str(&format!("load_definitions = {FILES}/definitions.json\n"));
        }
        // Up to 3.8 the log has another writer, which does not know these.
        if self.env_of(image, "RABBITMQ_VERSION").is_some_and(|version| version.starts_with("3.8.")) {
            configured =
                configured.lines().filter(|line| !line.contains(".formatter")).map(|l| format!("{l}\n")).collect();
        }
        fs::write(dir.join("rabbitmq.conf"), configured)?;
        fs::write(dir.join("inetrc"), rabbitmq::INETRC)?;
        let env = [
            ("TZ", "UTC".to_string()),
            ("RABBITMQ_CONFIG_FILE", format!("{FILES}/rabbitmq.conf")),
            ("RABBITMQ_LOG_BASE", format!("{FILES}/log")),
            ("RABBITMQ_LOGS", format!("{FILES}/log/rabbitmq.log")),
            ("RABBITMQ_NODENAME", "halfopen@localhost".to_string()),
            ("ERL_INETRC", format!("{FILES}/inetrc")),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".to_string()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", rabbitmq::NO_BUSY_WAITING.to_string()),
            ("ERL_MAX_PORTS", self.spec.nofile.max(1024).to_string()),
        ];
        Ok(Wants {
            command: vec!["rabbitmq-server".into()],
            env: env.map(|(name, value)| format!("{name}={value}")).to_vec(),
            binds: vec![format!("{}:/var/lib/rabbitmq", data.display())],
            log: "log/rabbitmq.log",
            user: rabbitmq::USER,
            unlike_stock: Some(format!("{}; names of addresses are not looked up", rabbitmq::NO_BUSY_WAITING)),
        })
    }

    fn redis(&self, dir: &Path, password: &str) -> io::Result<Wants> {
        open_dir(dir)?;
        let (inside, log) = (Path::new(FILES), Path::new(FILES).join("redis.log"));
        let mut configured = redis::configuration(inside, &log, password, self.spec.nofile, self.spec.databases);
        configured.extend(self.tls.map(|files| files.lay_into(dir, inside)).transpose()?.as_ref().map(redis::listener));
        fs::write(dir.join("redis.conf"), configured)?;
        Ok(Wants {
            command: vec!["redis-server".into(), format!("{FILES}/redis.conf")],
            env: vec!["TZ=UTC".into()],
            binds: Vec::new(),
            log: "redis.log",
            user: "default",
            unlike_stock: None,
        })
    }

    /// A variable that an image sets.
    fn env_of(&self, image: &str, name: &str) -> Option<String> {
        let found = self.api.wait(self.api.docker().inspect_image(image)).ok()?;
        let all = found.config?.env?;
        all.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_string))
    }
}

/// RabbitMQ's own command line beside it. The official images and the project's own have its home, and with it the secret that
/// the two share, at the same place.
fn control(container: &str) -> Launch {
    let words = ["exec", "--env", "HOME=/var/lib/rabbitmq", container, "rabbitmqctl"];
    Launch::new("docker").args(words)
}

/// A directory into which a broker writes as a user of its own. Its parent is closed to others on this machine.
pub(super) fn open_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
}

/// The version that a broker writes into its log as it starts.
fn version_in(log: &[u8], kind: BrokerKind) -> Option<String> {
    let text = String::from_utf8_lossy(log);
    let (before, end) = match kind {
        BrokerKind::Rabbitmq => ("Starting RabbitMQ ", ' '),
        BrokerKind::Redis => ("Redis version=", ','),
        BrokerKind::None => return None,
    };
    let (_, rest) = text.split_once(before)?;
    Some(rest.split([end, '\n']).next()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_where_the_brokers_write_them() {
        let rabbit = b"2026-11-30 20:55:00.1+00:00 [info] <0.229.0>  Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]\n";
        assert_eq!(version_in(rabbit, BrokerKind::Rabbitmq).as_deref(), Some("3.10.8"));
        let redis =
            b"1:C 30 Nov 2026 * Redis version=7.0.15, bits=64, commit=00000000, modified=0, pid=1, just started\n";
        assert_eq!(version_in(redis, BrokerKind::Redis).as_deref(), Some("7.0.15"));
        assert_eq!(version_in(b"", BrokerKind::Redis), None);
    }
}
