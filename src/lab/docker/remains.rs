//! What is left of a run on the Docker engine, found by the run's label and removed; nothing else is looked at.

use super::api::{Api, failed};
use super::container::RUN_LABEL;
use super::work_dir;
use crate::host::journal::{Entry, Outside};
use crate::lab::LabError;
use bollard::errors::Error;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, RemoveContainerOptionsBuilder,
};
use futures::future::join_all;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often containers are looked for again that are being removed by other hands.
const LOOKS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(100);

/// Removes what a run named outside of its processes; with `dry_run` it only says what is there.
///
/// # Errors
/// All that went wrong, in one message.
pub fn remove_outside(entry: &Entry, dry_run: bool) -> io::Result<Vec<String>> {
    let directory = entry.outside.iter().find_map(|thing| match thing {
        // No other directory is ever named there.
        Outside::Directory(path) if *path == work_dir(&entry.run_id) => Some(path.as_path()),
        _ => None,
    });
    let words =
        |errors: Vec<LabError>| io::Error::other(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    let api = Api::connect().map_err(|e| io::Error::other(e.to_string()))?;
    match remove(&api, &entry.run_id, directory, dry_run) {
        (removed, errors) if errors.is_empty() => Ok(removed),
        (_, errors) => Err(words(errors)),
    }
}

fn of_run(run_id: &str) -> HashMap<String, Vec<String>> {
    HashMap::from([("label".to_string(), vec![format!("{RUN_LABEL}={run_id}")])])
}

/// The run's containers, then its networks, then its directory. Goes on past errors.
pub(super) fn remove(api: &Api, run_id: &str, directory: Option<&Path>, dry_run: bool) -> (Vec<String>, Vec<LabError>) {
    let (mut removed, mut errors) = (Vec::new(), Vec::new());
    match api.wait(containers(api, run_id, dry_run)) {
        Ok(names) => removed.extend(names.into_iter().map(|name| format!("container {name}"))),
        Err(error) => errors.push(error),
    }
    match api.wait(networks(api, run_id, dry_run)) {
        Ok(names) => removed.extend(names.into_iter().map(|name| format!("network {name}"))),
        Err(error) => errors.push(error),
    }
    if let Some(directory) = directory.filter(|dir| dir.exists()) {
        removed.push(format!("directory {}", directory.display()));
        let gone = if dry_run { Ok(()) } else { std::fs::remove_dir_all(directory) };
        if let Err(source) = gone {
            errors.push(LabError::Docker { what: format!("remove {}", directory.display()), source });
        }
    }
    (removed, errors)
}

/// Removes the run's containers and waits until the engine knows none of them any more. Returns their names.
async fn containers(api: &Api, run_id: &str, dry_run: bool) -> Result<Vec<String>, LabError> {
    let docker = api.docker();
    let mut all: Vec<String> = Vec::new();
    for _ in 0..LOOKS {
        let options = ListContainersOptionsBuilder::default().all(true).filters(&of_run(run_id)).build();
        let found = docker.list_containers(Some(options)).await.map_err(failed("list containers"))?;
        let ids: Vec<String> = found.iter().filter_map(|one| one.id.clone()).collect();
        let names =
            found.iter().filter_map(|one| Some(one.names.as_ref()?.first()?.trim_start_matches('/').to_string()));
        for name in names {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        if ids.is_empty() || dry_run {
            break;
        }
        let remove = |id: String| async move {
            let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            match docker.remove_container(&id, Some(options)).await {
                // Gone, or being removed by the engine itself: the next look tells.
                Ok(()) | Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
                Err(other) => Err(other),
            }
        };
        for done in join_all(ids.into_iter().map(remove)).await {
            done.map_err(failed("remove a container"))?;
        }
        tokio::time::sleep(BETWEEN).await;
    }
    all.sort();
    Ok(all)
}

async fn networks(api: &Api, run_id: &str, dry_run: bool) -> Result<Vec<String>, LabError> {
    let docker = api.docker();
    let options = ListNetworksOptionsBuilder::default().filters(&of_run(run_id)).build();
    let found = docker.list_networks(Some(options)).await.map_err(failed("list networks"))?;
    let mut names = Vec::new();
    for network in found {
        let (Some(id), Some(name)) = (network.id, network.name) else { continue };
        if !dry_run {
            match docker.remove_network(&id).await {
                Ok(()) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => {}
                Err(other) => return Err(failed(format!("remove the network {name}"))(other)),
            }
        }
        names.push(name);
    }
    Ok(names)
}
