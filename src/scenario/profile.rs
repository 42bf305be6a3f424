//! Impairment profiles: data in `netem/`, embedded in the binary.
//!
//! Pure. What is left out: how a profile becomes rules, which is `fault::render`'s. A profile says what the path does
//! to packets, never which connection or when.

use super::middlebox::{self, Middlebox};
use super::{Act, Directions};
use std::collections::BTreeMap;
use thiserror::Error;
use toml_edit::{DocumentMut, Item, TableLike};

/// An impairment profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name, as scenario files write it.
    pub name: String,
    /// What it does, in one sentence.
    pub what: String,
    /// Which packets it drops.
    pub drop: Directions,
    /// What it does beside dropping.
    pub act: Option<Act>,
    /// The middlebox that it is about; with the act `forget_entry` and no other.
    pub middlebox: Option<Middlebox>,
    /// What the client's kernel sees.
    pub client_sees: String,
    /// What the broker's kernel sees.
    pub broker_sees: String,
}

/// Why a text is not a profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// Not TOML.
    #[error("the profile is not TOML: {0}")]
    Toml(String),
    /// A key that must be there is not, or has another type.
    #[error("the profile needs `{key}`, {expected}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What is expected under it.
        expected: &'static str,
    },
    /// A key that no profile has.
    #[error("a profile has no key `{0}`; keys are name, what, drop, act, middlebox, sees.client, sees.broker")]
    UnknownKey(String),
    /// A direction that does not exist.
    #[error("`{0}` is not a direction; write `to_broker` or `to_client`")]
    UnknownDirection(String),
    /// An act that does not exist.
    #[error("`{name}` is not an act; acts are {}", Act::ALL.map(Act::name).join(", "))]
    UnknownAct {
        /// As written.
        name: String,
    },
    /// A middlebox without the act that is done to it, or the other way round.
    #[error("`act = \"forget_entry\"` and the table `[middlebox]` need each other")]
    LoneMiddlebox,
}

/// The built-in profiles in the order of the documentation: name and text.
const BUILTIN: [(&str, &str); 27] = [
    ("blackhole", include_str!("../../netem/blackhole.toml")),
    ("to-broker", include_str!("../../netem/to-broker.toml")),
    ("to-client", include_str!("../../netem/to-client.toml")),
    ("frozen-broker", include_str!("../../netem/frozen-broker.toml")),
    ("frozen-proxy", include_str!("../../netem/frozen-proxy.toml")),
    ("swallowing-proxy", include_str!("../../netem/swallowing-proxy.toml")),
    ("withheld-reply", include_str!("../../netem/withheld-reply.toml")),
    ("silent-tls", include_str!("../../netem/silent-tls.toml")),
    ("dns-late", include_str!("../../netem/dns-late.toml")),
    ("broker-alarm", include_str!("../../netem/broker-alarm.toml")),
    ("disk-alarm", include_str!("../../netem/disk-alarm.toml")),
    ("killed-broker", include_str!("../../netem/killed-broker.toml")),
    ("restarted-broker", include_str!("../../netem/restarted-broker.toml")),
    ("rebooted-host", include_str!("../../netem/rebooted-host.toml")),
    ("reset-thrice", include_str!("../../netem/reset-thrice.toml")),
    ("vanished-host", include_str!("../../netem/vanished-host.toml")),
    ("failover", include_str!("../../netem/failover.toml")),
    ("failover-silent", include_str!("../../netem/failover-silent.toml")),
    ("nat-expired", include_str!("../../netem/nat-expired.toml")),
    ("nat-reset", include_str!("../../netem/nat-reset.toml")),
    ("nat-loose", include_str!("../../netem/nat-loose.toml")),
    ("firewall-forgets", include_str!("../../netem/firewall-forgets.toml")),
    ("killed-worker", include_str!("../../netem/killed-worker.toml")),
    ("paused-worker", include_str!("../../netem/paused-worker.toml")),
    ("killed-reaper", include_str!("../../netem/killed-reaper.toml")),
    ("killed-store", include_str!("../../netem/killed-store.toml")),
    ("none", include_str!("../../netem/none.toml")),
];

/// The built-in profile of this name.
#[must_use]
pub fn builtin(name: &str) -> Option<Profile> {
    let (_, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
    // A test reads every embedded text, so the error of a broken one never gets past it.
    parse(text).ok()
}

/// The names of the built-in profiles, in the order of the documentation.
#[must_use]
pub fn names() -> Vec<&'static str> {
    BUILTIN.iter().map(|(name, _)| *name).collect()
}

/// Reads a profile.
///
/// # Errors
/// [`ProfileError`] names the key or the direction that is wrong.
pub fn parse(text: &str) -> Result<Profile, ProfileError> {
    let document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| ProfileError::Toml(e.to_string()))?;
    let root = document.as_table();
    only_known(root, "", &["name", "what", "drop", "act", "middlebox", "sees"])?;
    let sees = root
        .get("sees")
        .and_then(Item::as_table_like)
        .ok_or(ProfileError::Missing { key: "sees", expected: "a table with `client` and `broker`" })?;
    only_known(sees, "sees.", &["client", "broker"])?;
    let (act, middlebox) = (act(root.get("act"))?, middlebox::parse(root.get("middlebox"))?);
    if middlebox.is_some() != (act == Some(Act::ForgetEntry)) {
        return Err(ProfileError::LoneMiddlebox);
    }
    Ok(Profile {
        name: sentence(root, "name", "name")?,
        what: sentence(root, "what", "what")?,
        drop: directions(root.get("drop"))?,
        act,
        middlebox,
        client_sees: sentence(sees, "client", "sees.client")?,
        broker_sees: sentence(sees, "broker", "sees.broker")?,
    })
}

pub(super) fn only_known(table: &dyn TableLike, prefix: &str, known: &[&str]) -> Result<(), ProfileError> {
    match table.iter().find(|(key, _)| !known.contains(key)) {
        Some((key, _)) => Err(ProfileError::UnknownKey(format!("{prefix}{key}"))),
        None => Ok(()),
    }
}

pub(super) fn sentence(table: &dyn TableLike, key: &str, shown: &'static str) -> Result<String, ProfileError> {
    table
        .get(key)
        .and_then(Item::as_str)
        .map(str::to_string)
        .ok_or(ProfileError::Missing { key: shown, expected: "a text" })
}

fn act(item: Option<&Item>) -> Result<Option<Act>, ProfileError> {
    let Some(item) = item else { return Ok(None) };
    let name = item.as_str().ok_or(ProfileError::Missing { key: "act", expected: "a text" })?;
    let known = Act::ALL.into_iter().find(|act| act.name() == name);
    known.map(Some).ok_or_else(|| ProfileError::UnknownAct { name: name.to_string() })
}

fn directions(item: Option<&Item>) -> Result<Directions, ProfileError> {
    let missing = ProfileError::Missing { key: "drop", expected: "a list of `to_broker` and `to_client`" };
    let list = item.and_then(Item::as_array).ok_or_else(|| missing.clone())?;
    // Collected through a map, so that a direction written twice is still one.
    let mut named = BTreeMap::from([("to_broker", false), ("to_client", false)]);
    for value in list {
        let name = value.as_str().ok_or_else(|| missing.clone())?;
        match named.get_mut(name) {
            Some(dropped) => *dropped = true,
            None => return Err(ProfileError::UnknownDirection(name.to_string())),
        }
    }
    Ok(Directions { to_broker: named["to_broker"], to_client: named["to_client"] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_is_named_as_its_file() {
        for (name, text) in BUILTIN {
            let profile = parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(profile.name, name);
            assert_eq!(builtin(name), Some(profile));
        }
        assert_eq!(names().first(), Some(&"blackhole"));
        assert_eq!(names().last(), Some(&"none"));
        assert_eq!(builtin("blackhol"), None);
    }

    #[test]
    fn directions_are_as_their_names_say() {
        let drop = |name: &str| builtin(name).map(|p| (p.drop.to_broker, p.drop.to_client));
        assert_eq!(drop("blackhole"), Some((true, true)));
        assert_eq!(drop("to-broker"), Some((true, false)));
        assert_eq!(drop("to-client"), Some((false, true)));
        assert_eq!(drop("none"), Some((false, false)));
    }

    #[test]
    fn errors_name_the_key() {
        let good = include_str!("../../netem/blackhole.toml");
        let error = |text: &str| parse(text).expect_err("is wrong").to_string();
        assert_eq!(
            error(&good.replace("what =", "wat =")),
            "a profile has no key `wat`; keys are name, what, drop, act, middlebox, sees.client, sees.broker"
        );
        assert_eq!(
            error(&good.replace("\"to_client\"", "\"to_clients\"")),
            "`to_clients` is not a direction; write `to_broker` or `to_client`"
        );
        assert_eq!(
            error(&good.replace("drop =", "act = \"freeze\"\ndrop =")),
            "`freeze` is not an act; acts are freeze_broker, kill_broker, reboot_host, freeze_proxy, swallow_proxy, \
             withhold_reply, vanish_host, fail_over, restart_broker, alarm_broker, alarm_disk, forget_entry, kill_worker, \
             pause_worker, kill_reaper, kill_store, stay_silent, withhold_answer, reset_thrice"
        );
        assert_eq!(error(&good.replace("client = ", "# ")), "the profile needs `sees.client`, a text");
        assert!(error("name =").starts_with("the profile is not TOML"));
    }
}
