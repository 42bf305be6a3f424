//! A server's container once more: the old one is gone with its main process, another takes its name, its files and its network.

use super::api::Api;
use super::contained::{Contained, into_file};
use super::container::Made;
use crate::host::netns::NetNs;
use crate::lab::LabError;
use crate::lab::running::Running;
use std::fs;
use std::io;
use std::path::PathBuf;

/// What a server's container is made of, where its output goes and how many descriptors it has.
#[derive(Debug, Clone)]
pub struct Remade {
    pub(super) api: Api,
    pub(super) made: Made,
    pub(super) output: PathBuf,
    pub(super) nofile: u64,
    pub(in crate::lab) ns: NetNs,
}

impl Remade {
    /// Makes and starts it.
    ///
    /// # Errors
    /// What the engine refuses.
    pub(in crate::lab) fn start_again(&self) -> Result<Running, LabError> {
        let Self { api, made, output, nofile, .. } = self;
        let failed = |what: &str| {
            let what = format!("{what} of {}", made.role);
            move |source: io::Error| LabError::Docker { what, source }
        };
        let started = api.wait(async {
            made.wait_until_gone(api).await?;
            made.start(api).await
        })?;
        let kept = fs::OpenOptions::new().create(true).append(true).open(output).map_err(failed("keep the output"))?;
        into_file(api, started.output, kept);
        let process = Contained::main_process(api, started.pid).map_err(failed("watch the process"))?;
        process.raise_nofile(*nofile);
        Ok(Running::Contained(process))
    }
}
