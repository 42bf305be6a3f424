//! The Docker engine of this machine: found, checked, asked.
//!
//! The cut sits at a bridge of this machine, so an engine elsewhere (another host, a virtual machine, a user's own
//! namespaces) can't be used; each such case is told with its mend.

use super::super::LabError;
use crate::host::clock::Clock;
use crate::host::netns::NetNs;
use crate::host::nft::{Family, NftClient, Op};
use crate::host::supervise::has_sys_admin;
use bollard::models::SystemInfo;
use bollard::{API_DEFAULT_VERSION, Docker};
use std::fmt;
use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::runtime::Runtime;

const SOCKET: &str = "/var/run/docker.sock";
/// A request that is not answered by then is not coming.
const ANSWER_S: u64 = 120;

/// A connection to the engine, and the runtime that its streams live on. Clones share both.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    docker: Docker,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Api")
    }
}

pub(super) fn cannot(text: impl Into<String>) -> LabError {
    LabError::Cannot(text.into())
}

/// What went wrong with a request, for [`LabError::Docker`].
pub(super) fn failed(what: impl Into<String>) -> impl FnOnce(bollard::errors::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Docker { what, source: io::Error::other(source.to_string()) }
}

impl Api {
    /// Connects to the engine of this machine.
    ///
    /// # Errors
    /// [`LabError::Cannot`], with the mend, where there is none, or not one that this user may ask.
    pub fn connect() -> Result<Self, LabError> {
        let host = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
        let context = std::env::var("DOCKER_CONTEXT").ok().filter(|name| !matches!(name.as_str(), "" | "default"));
        let path = socket_of(host.as_deref(), context.as_deref())?;
        UnixStream::connect(&path).map_err(|e| cannot(unreachable_engine(&path, &e)))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("docker")
            .enable_all()
            .build()
            .map_err(|source| LabError::Docker { what: "start the runtime of its streams".into(), source })?;
        let docker = Docker::connect_with_unix(&path, ANSWER_S, API_DEFAULT_VERSION)
            .map_err(|e| cannot(format!("{path}: {e}")))?;
        let docker = runtime.block_on(docker.negotiate_version()).map_err(failed("ask for its version"))?;
        Ok(Self(Arc::new(Inner { runtime, docker })))
    }

    /// The same, once everything that the lab needs of the engine, the kernel and the user's rights is known to be there.
    ///
    /// # Errors
    /// [`LabError::Cannot`], with the mend.
    pub fn usable() -> Result<Self, LabError> {
        let api = Self::connect()?;
        let info = api.wait(api.docker().info()).map_err(failed("ask what it is"))?;
        match unfit(&info) {
            Some(why) => return Err(cannot(why)),
            None if !has_sys_admin() => {
                return Err(cannot(
                    "the docker lab cuts with nftables at the bridge of this machine, which takes root; run it with sudo",
                ));
            }
            None => {}
        }
        bridge_tables()?;
        Ok(api)
    }

    pub(super) fn docker(&self) -> &Docker {
        &self.0.docker
    }

    /// Runs a request to its end. Not to be called from the runtime's own thread.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.runtime.block_on(work)
    }

    /// Lets work go on by itself.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.runtime.spawn(work);
    }
}

/// The socket that the user's environment means.
fn socket_of(host: Option<&str>, context: Option<&str>) -> Result<String, LabError> {
    match (host, context) {
        (Some(host), _) => match host.strip_prefix("unix://") {
            Some(path) => Ok(path.to_string()),
            None => Err(cannot(format!(
                "DOCKER_HOST is {host}: the cut sits at a bridge of the engine's own machine; run halfopen there, or unset \
                 DOCKER_HOST"
            ))),
        },
        (None, Some(context)) => Err(cannot(format!(
            "DOCKER_CONTEXT is {context}, which may be an engine elsewhere; unset it, or name a local socket in DOCKER_HOST \
             (unix:///…)"
        ))),
        (None, None) => Ok(SOCKET.to_string()),
    }
}

fn unreachable_engine(path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "no Docker engine on this machine ({path} is not there); apt-get install docker.io, or start it: systemctl start docker"
            )
        }
        io::ErrorKind::PermissionDenied => format!("no permission to use {path}; run it with sudo"),
        io::ErrorKind::ConnectionRefused => format!("no Docker engine answers at {path}; systemctl start docker"),
        _ => format!("{path}: {error}; is the Docker engine running? systemctl status docker"),
    }
}

/// Why an engine can't be used, with the mend.
fn unfit(info: &SystemInfo) -> Option<String> {
    let system = info.operating_system.as_deref().unwrap_or_default();
    if system.contains("Docker Desktop") {
        return Some(
            "this is Docker Desktop: its containers and bridges are inside of a virtual machine, where nftables of this \
             machine can't reach; use the Docker engine itself (apt-get install docker.io), or --lab netns"
                .into(),
        );
    }
    if info.os_type.as_deref().is_some_and(|os| os != "linux") {
        return Some(format!("the Docker engine runs {system} containers; the lab needs Linux ones"));
    }
    let options = info.security_options.iter().flatten();
    if options.clone().any(|option| option.contains("name=rootless")) {
        return Some(
            "this Docker engine is rootless: its bridges are in a network namespace of its own; use the system's engine \
             (DOCKER_HOST=unix:///var/run/docker.sock with sudo), or --lab netns"
                .into(),
        );
    }
    if options.clone().any(|option| option.contains("name=userns")) {
        return Some(
            "this Docker engine remaps users (userns-remap), and the brokers share a PID namespace with a container of the \
             harness; start the engine without it, or use --lab netns"
                .into(),
        );
    }
    None
}

/// Whether the kernel has nftables for bridges: makes a table of our own with a chain in it, and removes it.
fn bridge_tables() -> Result<(), LabError> {
    let no = |e: &dyn fmt::Display| {
        cannot(format!(
            "this kernel has no nftables for bridges ({e}); modprobe nf_tables_bridge, or use a kernel with \
             CONFIG_NF_TABLES_BRIDGE"
        ))
    };
    let here = NetNs::current("the machine").map_err(|e| no(&e))?;
    let family = Family::Bridge { to: None };
    let name = format!("halfopen-probe-{}", std::process::id());
    let mut client = NftClient::open(&here, family, &name).map_err(|e| no(&e))?;
    let ops = crate::lab::docker::PROBE_CHAINS.iter().map(Op::AddChain);
    let ops: Vec<Op> = std::iter::once(Op::AddTable).chain(ops).collect();
    client.commit(Clock::start(), &ops).map(drop).map_err(|e| no(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_elsewhere_is_refused_with_the_mend() {
        assert_eq!(socket_of(None, None).unwrap(), SOCKET);
        assert_eq!(socket_of(Some("unix:///run/x.sock"), Some("far")).unwrap(), "/run/x.sock");
        for host in ["tcp://10.0.0.1:2375", "ssh://user@host", "http://x"] {
            let text = socket_of(Some(host), None).unwrap_err().to_string();
            assert!(text.contains(host) && text.contains("unset DOCKER_HOST"), "{text}");
        }
        assert!(socket_of(None, Some("far")).unwrap_err().to_string().contains("DOCKER_CONTEXT is far"));
    }

    #[test]
    fn engines_that_hide_their_bridges_are_refused() {
        let info = |system: &str, options: &[&str]| SystemInfo {
            operating_system: Some(system.into()),
            os_type: Some("linux".into()),
            security_options: Some(options.iter().map(ToString::to_string).collect()),
            ..SystemInfo::default()
        };
        assert_eq!(unfit(&info("Debian GNU/Linux 12 (bookworm)", &["name=seccomp,profile=default"])), None);
        assert!(unfit(&info("Docker Desktop", &[])).unwrap().contains("virtual machine"));
        assert!(unfit(&info("Debian", &["name=rootless"])).unwrap().contains("rootless"));
        assert!(unfit(&info("Debian", &["name=userns"])).unwrap().contains("userns-remap"));
    }

    #[test]
    fn an_engine_that_is_not_there_has_its_mend() {
        let error = |kind| unreachable_engine("/run/x", &io::Error::from(kind));
        assert!(error(io::ErrorKind::NotFound).contains("apt-get install docker.io"));
        assert!(error(io::ErrorKind::PermissionDenied).contains("sudo"));
        assert!(error(io::ErrorKind::ConnectionRefused).contains("systemctl start docker"));
    }
}
