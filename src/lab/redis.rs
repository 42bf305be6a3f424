//! A real Redis of the run's own.

use super::broker::{Broker, Patience, wait_ready};
use super::running::{Recipe, Running};
use super::{Certificates, LabError, LabSpec, Programs, Site};
use crate::host::process::{Launch, Stream};
use crate::host::programs::Program;
use crate::scenario::BrokerKind;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

/// As many as it has by itself.
const DATABASES: u32 = 16;

const KIND: BrokerKind = BrokerKind::Redis;

/// Starts it and waits for the answer to `PING`.
pub(super) fn start(
    spec: &LabSpec<'_>,
    programs: &Programs,
    site: &Site<'_>,
    patience: &Patience,
) -> Result<Broker, LabError> {
    let Some(program) = &programs.redis else {
        return Err(LabError::NoProgram { program: Program::RedisServer.name(), mend: Program::RedisServer.mend() });
    };
    let io = |what: &'static str| move |source: io::Error| LabError::Io { kind: KIND, what, source };
    let Site { ns: server, dir, password, tls, .. } = site;
    let (config, log, output) = (dir.join("redis.conf"), dir.join("redis.log"), dir.join("output"));
    std::fs::create_dir_all(dir)
        .and_then(|()| {
            let mut configured = configuration(dir, &log, password, spec.nofile, spec.databases);
            configured.extend(tls.map(listener));
            std::fs::write(&config, configured)
        })
        .map_err(io("write its files"))?;
    let mut launch = Launch::new(program).args([config]);
    launch.env = vec![("TZ".into(), "UTC".into()), ("HALFOPEN_RUN_ID".into(), spec.run_id.clone().into())];
    launch.only_env = true;
    launch.cwd = Some(dir.clone());
    launch.netns = Some((*server).clone());
    launch.nofile = Some(spec.nofile);
    (launch.stdout, launch.stderr) = (Stream::File(output.clone()), Stream::File(output.clone()));
    let mut process: Running = launch.clone().spawn().map_err(io("start it"))?.into();
    let port = KIND.port();
    let startup =
        wait_ready(KIND, port, &mut process, server, patience, &[&log, &output], |stream| log_in(stream, password))?;
    Ok(Broker {
        kind: KIND,
        port,
        user: "default".into(),
        version: Program::RedisServer.version(program),
        startup,
        unlike_stock: None,
        log,
        process,
        recipe: Recipe::Own(launch),
        control: None,
        helpers: Vec::new(),
        dir: dir.clone(),
        password: password.clone(),
    })
}

/// `redis.conf`. Timeouts and keepalive stay at their defaults: they are part of what is measured.
pub(super) fn configuration(dir: &Path, log: &Path, password: &str, nofile: u64, databases: u32) -> String {
    // Redis keeps 32 descriptors for itself and refuses to start when the rest is below `maxclients`.
    let clients = nofile.saturating_sub(64).clamp(64, 200_000);
    format!(
        "bind 0.0.0.0\nport {}\nprotected-mode no\nrequirepass {password}\nsave \"\"\nappendonly no\ndaemonize no\n\
         dir \"{}\"\nlogfile \"{}\"\ntcp-backlog 4096\nmaxclients {clients}\n\
         databases {}\n",
        KIND.port(),
        dir.display(),
        log.display(),
        databases.max(DATABASES)
    )
}

/// The lines of `redis.conf` for a listener that shows a certificate and asks for none.
pub(super) fn listener(files: &Certificates) -> String {
    format!(
        "tls-port {}\ntls-cert-file \"{}\"\ntls-key-file \"{}\"\ntls-ca-cert-file \"{}\"\ntls-auth-clients no\n",
        KIND.tls_port(),
        files.certificate.display(),
        files.key.display(),
        files.ca.display()
    )
}

pub(super) fn log_in(stream: &mut (impl Read + Write), password: &str) -> io::Result<()> {
    write!(stream, "AUTH {password}\r\nPING\r\n")?;
    let mut lines = BufReader::new(stream).lines();
    for wanted in ["+OK", "+PONG"] {
        let line = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
        if line != wanted {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("`{line}` instead of `{wanted}`")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_leaves_the_timers_alone() {
        let text = configuration(Path::new("/w"), Path::new("/w/log"), "pw", 20_000, 0);
        assert!(text.contains("requirepass pw\n") && text.contains("maxclients 19936\n"), "{text}");
        assert!(!text.contains("tcp-keepalive") && !text.contains("timeout"));
    }
}
