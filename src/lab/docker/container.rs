//! Containers of a run: what each is made of, and its start.

use super::api::{Api, cannot, failed};
use super::contained::{Input, Output};
use crate::lab::LabError;
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, InspectContainerOptions,
    RemoveContainerOptionsBuilder, StartContainerOptions,
};
use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// The label that names the run which a container or a network belongs to.
pub(super) const RUN_LABEL: &str = "io.halfopen.run";
/// The label that says what it is to the run.
const ROLE_LABEL: &str = "io.halfopen.role";

/// How often the name of a container that has ended is looked for, until the engine has removed it.
const LOOKS: u32 = 500;
const BETWEEN: Duration = Duration::from_millis(20);

/// What a container is made of.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    pub run_id: String,
    pub role: String,
    pub image: String,
    pub entrypoint: Option<Vec<String>>,
    pub command: Option<Vec<String>>,
    pub env: Vec<String>,
    /// `FROM:TO[:ro]`.
    pub binds: Vec<String>,
    pub tmpfs: Vec<String>,
    /// Name of a network, or `container:NAME`.
    pub network: String,
    /// The container whose PID namespace it shares: killed with it by the kernel.
    pub pid_of: Option<String>,
    pub capabilities: Vec<String>,
    /// `USER[:GROUP]`, where it is not the image's own.
    pub user: Option<String>,
}

/// A container that runs.
pub(super) struct Started {
    pub name: String,
    pub pid: u32,
    /// Its address in the run's network; `None` where it shares another container's.
    pub address: Option<Ipv4Addr>,
    pub input: Input,
    pub output: Output,
}

/// The name of a run's container.
pub(super) fn name_of(run_id: &str, role: &str) -> String {
    format!("halfopen-{run_id}-{role}")
}

/// The labels of everything that a run makes.
pub(super) fn labels(run_id: &str, role: &str) -> HashMap<String, String> {
    [(RUN_LABEL, run_id), (ROLE_LABEL, role)].map(|(name, value)| (name.to_string(), value.to_string())).into()
}

impl Made {
    fn body(&self) -> ContainerCreateBody {
        let host = HostConfig {
            network_mode: Some(self.network.clone()),
            pid_mode: self.pid_of.as_ref().map(|name| format!("container:{name}")),
            binds: Some(self.binds.clone()),
            tmpfs: Some(self.tmpfs.iter().map(|path| (path.clone(), "mode=1777,exec".to_string())).collect()),
            cap_add: Some(self.capabilities.clone()),
            // Ended by whatever hand, it is gone.
            auto_remove: Some(true),
            ..HostConfig::default()
        };
        ContainerCreateBody {
            image: Some(self.image.clone()),
            user: self.user.clone(),
            entrypoint: self.entrypoint.clone(),
            cmd: self.command.clone(),
            env: Some(self.env.clone()),
            labels: Some(labels(&self.run_id, &self.role)),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            open_stdin: Some(true),
            // Its input ends with the harness, which is how it learns of that.
            stdin_once: Some(true),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }

    /// Waits until the one that had its name and has ended is gone; it is removed by force where the engine does not do so itself.
    pub async fn wait_until_gone(&self, api: &Api) -> Result<(), LabError> {
        let (docker, name) = (api.docker(), name_of(&self.run_id, &self.role));
        for _ in 0..LOOKS {
            let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            match docker.remove_container(&name, Some(options)).await {
                Err(Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(()),
                // Gone by the next look, or being removed by the engine itself.
                Ok(()) | Err(Error::DockerResponseServerError { status_code: 409, .. }) => {}
                Err(other) => return Err(failed(format!("remove {name}"))(other)),
            }
            tokio::time::sleep(BETWEEN).await;
        }
        let source = io::Error::new(io::ErrorKind::TimedOut, "it is still there after 10 s");
        Err(LabError::Docker { what: format!("remove {name}"), source })
    }

    /// Creates it, attaches to it, starts it.
    pub async fn start(&self, api: &Api) -> Result<Started, LabError> {
        let (docker, name) = (api.docker(), name_of(&self.run_id, &self.role));
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        docker.create_container(Some(options), self.body()).await.map_err(failed(format!("create {name}")))?;
        let options =
            AttachContainerOptionsBuilder::default().stdin(true).stdout(true).stderr(true).stream(true).build();
        let attached =
            docker.attach_container(&name, Some(options)).await.map_err(failed(format!("attach to {name}")))?;
        docker
            .start_container(&name, None::<StartContainerOptions>)
            .await
            .map_err(failed(format!("start {name} ({})", self.image)))?;
        let seen = docker
            .inspect_container(&name, None::<InspectContainerOptions>)
            .await
            .map_err(failed(format!("look at {name}")))?;
        let pid = seen.state.and_then(|state| state.pid).and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        if pid == 0 {
            let source = io::Error::other("it ended at once; see what its image wants");
            return Err(LabError::Docker { what: format!("start {name} ({})", self.image), source });
        }
        let networks = seen.network_settings.and_then(|settings| settings.networks).unwrap_or_default();
        let address =
            networks.get(&self.network).and_then(|end| end.ip_address.as_ref()).and_then(|text| text.parse().ok());
        Ok(Started { name, pid, address, input: Input::new(api, attached.input), output: attached.output })
    }
}

/// The file of this very program, which is laid into the containers of subjects: both ends are then of one version.
pub(super) fn own_program() -> Result<PathBuf, LabError> {
    let path = std::fs::read_link("/proc/self/exe").map_err(|e| cannot(format!("/proc/self/exe: {e}")))?;
    if path.is_file() {
        return Ok(path);
    }
    Err(cannot(format!("{} was replaced while it runs; start it again", path.display())))
}
