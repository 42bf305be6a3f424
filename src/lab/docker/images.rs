//! The images of a run: there, or pulled, or refused with the command that makes them.

use super::DockerSpec;
use super::api::{Api, cannot, failed};
use crate::lab::LabError;
use crate::scenario::{Arm, BrokerKind, Scenario};
use bollard::errors::Error;
use bollard::models::ImageInspect;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the subjects run in, unless `HALFOPEN_SUBJECT_IMAGE` names another.
const SUBJECT_IMAGE: &str = "halfopen/subject:bookworm";
const SUBJECT_VARIABLE: &str = "HALFOPEN_SUBJECT_IMAGE";
/// Images of this name are the project's own, and no registry has them.
const OWN: &str = "halfopen/";

/// The image of the task store's database.
const DATABASE_IMAGE: &str = "halfopen/postgres:bookworm";

/// The image of a broker where the scenario names none.
fn default_image(kind: BrokerKind) -> String {
    format!("{OWN}{}:bookworm", kind.name())
}

/// An image of the user's own in which the subjects of an arm run, with its own settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmImage {
    /// Its name.
    pub name: String,
    /// What goes before the command.
    pub entrypoint: Vec<String>,
    /// Its environment, `NAME=value`.
    pub env: Vec<String>,
    /// Where its programs start.
    pub working_dir: PathBuf,
    /// Whom they run as: `USER[:GROUP]`, or nothing for root.
    pub user: String,
}

/// Finds the image of each arm that has one of its own.
///
/// # Errors
/// As [`ensure_images`].
pub fn arm_images(scenario: &Scenario, say: &mut dyn FnMut(&str)) -> Result<Vec<Option<ArmImage>>, LabError> {
    let api = Api::usable()?;
    let one = |arm: &Arm, say: &mut dyn FnMut(&str)| {
        let Some(name) = arm.settings.command.as_ref().and_then(|line| line.image.clone()) else { return Ok(None) };
        let found = ensure(&api, &name, say)?.config.unwrap_or_default();
        let working_dir = found.working_dir.filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/".to_string());
        Ok(Some(ArmImage {
            name,
            entrypoint: found.entrypoint.unwrap_or_default(),
            env: found.env.unwrap_or_default(),
            working_dir: working_dir.into(),
            user: found.user.unwrap_or_default(),
        }))
    };
    scenario.arms.iter().map(|arm| one(arm, say)).collect()
}

/// The images of a run's brokers, by name; `named` and `stored` as in [`ensure_images`].
#[must_use]
pub fn names_of_images(kinds: &[BrokerKind], named: Option<&str>, stored: bool) -> Vec<String> {
    let brokers = kinds.iter().filter(|kind| **kind != BrokerKind::None);
    let of = |kind: &BrokerKind| named.map_or_else(|| default_image(*kind), str::to_string);
    brokers.map(of).chain(stored.then(|| DATABASE_IMAGE.to_string())).collect()
}

/// Finds the images of a run, pulling what is not there; `say` is told what takes time.
/// `named` is the scenario's image of its one broker; `stored` asks for the task store's database.
///
/// # Errors
/// [`LabError::Cannot`] with the mend: no usable engine, an image that is neither there nor to be had.
pub fn ensure_images(
    kinds: &[BrokerKind],
    named: Option<&str>,
    others: bool,
    stored: bool,
    say: &mut dyn FnMut(&str),
) -> Result<DockerSpec, LabError> {
    let api = Api::usable()?;
    let subject_image = std::env::var(SUBJECT_VARIABLE).ok().filter(|name| !name.is_empty());
    let subject_image = subject_image.unwrap_or_else(|| SUBJECT_IMAGE.to_string());
    ensure(&api, &subject_image, say)?;
    let mut images = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| **kind != BrokerKind::None) {
        let image = named.map_or_else(|| default_image(*kind), str::to_string);
        ensure(&api, &image, say)?;
        images.insert(*kind, image);
    }
    let database = stored.then(|| DATABASE_IMAGE.to_string());
    database.iter().try_for_each(|image| ensure(&api, image, say).map(drop))?;
    Ok(DockerSpec { images, database, subject_image, others, ..DockerSpec::default() })
}

/// The engine in words, where it and all images of the project's own are there.
///
/// # Errors
/// [`LabError::Cannot`] with the mend.
pub fn look() -> Result<String, LabError> {
    let api = Api::usable()?;
    let version = api.wait(api.docker().version()).map_err(failed("ask for its version"))?.version;
    let brokers = [BrokerKind::Rabbitmq, BrokerKind::Redis].map(default_image);
    let own = [SUBJECT_IMAGE, DATABASE_IMAGE].map(str::to_string).into_iter().chain(brokers);
    let missing: Vec<String> = own.filter(|name| api.wait(api.docker().inspect_image(name)).is_err()).collect();
    if !missing.is_empty() {
        return Err(cannot(format!("there are no images {}; scripts/docker-images", missing.join(", "))));
    }
    Ok(format!("Docker {}, and the images of scripts/docker-images", version.unwrap_or_else(|| "unknown".into())))
}

fn ensure(api: &Api, image: &str, say: &mut dyn FnMut(&str)) -> Result<ImageInspect, LabError> {
    let look = || api.wait(api.docker().inspect_image(image));
    match look() {
        Ok(found) => return Ok(found),
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => {}
        Err(other) => return Err(failed(format!("look for the image {image}"))(other)),
    }
    if image.starts_with(OWN) {
        return Err(cannot(format!("the image {image} is not there; scripts/docker-images builds it")));
    }
    say(&format!("pulling {image} (once)"));
    let (name, tag) = match image.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    };
    let options = CreateImageOptionsBuilder::default().from_image(name).tag(tag).build();
    let pulled = api.wait(async {
        let mut news = Box::pin(api.docker().create_image(Some(options), None, None));
        while let Some(news) = news.next().await {
            let news = news.map_err(|e| e.to_string())?;
            if let Some(detail) = news.error_detail {
                return Err(detail.message.unwrap_or_else(|| "no word why".into()));
            }
        }
        Ok(())
    });
    pulled.map_err(|why: String| {
        cannot(format!(
            "the image {image} is not there and can't be pulled ({}); name one that is there (`docker images`), or leave `image` \
             out for the one of scripts/docker-images",
            why.lines().next().unwrap_or("no word why")
        ))
    })?;
    look().map_err(failed(format!("look at the image {image}")))
}
