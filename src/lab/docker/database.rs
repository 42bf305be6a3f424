//! The task store's PostgreSQL in a container beside the brokers: reached by its socket file, in a directory of the run's that
//! its processes on this machine and those in containers see at the same path; or at the trials' own addresses, which are those
//! of the brokers.

use super::DockerSpec;
use super::api::Api;
use super::brokers::open_dir;
use super::contained::{Contained, into_file};
use super::container::Made;
use super::remade::Remade;
use super::wire::Host;
use crate::lab::broker::Patience;
use crate::lab::postgres::{self, Postgres, USER};
use crate::lab::running::{Recipe, Running};
use crate::lab::{LabError, LabSpec};
use std::fs;
use std::io;

/// Its place in the journal, in names and in labels.
pub(super) const ROLE: &str = "postgres";

/// Where its files are: in the run's directory, which is in memory, so that one that is started again finds them.
const DATA: &str = "/var/lib/postgresql";

/// Starts it and waits until it lets its superuser in.
pub(super) fn start(
    api: &Api,
    spec: &LabSpec<'_>,
    docker: &DockerSpec,
    server: &Host,
    patience: &Patience,
) -> Result<Postgres, LabError> {
    let failed = |what: &'static str| move |source: io::Error| LabError::Database { what, why: source.to_string() };
    let (dir, image) = (spec.work_dir.join(ROLE), docker.database.clone().unwrap_or_default());
    open_dir(&dir).map_err(failed("make its folder"))?;
    let folder = dir.display().to_string();
    let data = dir.join("data");
    open_dir(&data).map_err(failed("make its folder"))?;
    let settings = postgres::settings(spec);
    let settings = settings.iter().flat_map(|setting| ["-c", setting]);
    let command = ["postgres"].into_iter().chain(settings).chain(["-k", &folder]).map(str::to_string);
    let made = Made {
        run_id: spec.run_id.clone(),
        role: ROLE.to_string(),
        image: image.clone(),
        command: Some(command.collect()),
        env: vec![
            "TZ=UTC".into(),
            "LC_ALL=C".into(),
            format!("POSTGRES_USER={USER}"),
            "POSTGRES_HOST_AUTH_METHOD=trust".into(),
            format!("POSTGRES_INITDB_ARGS={}", postgres::INITDB),
            format!("PGDATA={DATA}/data"),
        ],
        binds: vec![format!("{folder}:{folder}"), format!("{}:{DATA}", data.display())],
        network: format!("container:{}", server.container),
        pid_of: Some(server.container.clone()),
        ..Made::default()
    };
    let started = api.wait(made.start(api))?;
    let output = dir.join("output");
    into_file(api, started.output, fs::File::create(&output).map_err(failed("keep what it prints"))?);
    let process = Contained::main_process(api, started.pid).map(Running::Contained).map_err(failed("watch it"))?;
    let again = Remade { api: api.clone(), made, output: output.clone(), nofile: spec.nofile, ns: server.ns.clone() };
    let mut database = postgres::answering(process, Recipe::Contained(again), None, dir, &output, patience)?;
    let version = postgres::version(&database.sockets).unwrap_or_else(|| "unknown".into());
    database.version = Some(format!("{version} ({image})"));
    Ok(database)
}
