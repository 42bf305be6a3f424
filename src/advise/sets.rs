//! `--set key=value`: which key, which value, and the combinations of several values.

use super::arm::Arm;
use super::keys::{KEYS, Key};
use super::request::{AdviceError, MAX_ARMS};
use crate::config::{Origin, Place};
use crate::timers::{BrokerKind, Subject};

/// What a combination says about the stack, and its arm's name.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) subject: Option<Subject>,
    pub(super) broker: Option<BrokerKind>,
    /// The values that tell this combination from the others; empty where there is only one.
    pub(super) name: String,
}

/// One combination: each key with one value.
pub(super) type Combination = Vec<(String, String)>;

/// The key of this name, with or without `net.ipv4.` and in any of its names.
fn find(name: &str) -> Option<&'static Key> {
    let bare = name.trim().replace("sysctl.net.ipv4.", "sysctl.");
    KEYS.iter().find(|k| k.name == bare || k.aliases.contains(&bare.as_str()))
}

/// Whether a key says who talks to what.
pub(super) fn is_stack(name: &str) -> bool {
    find(name).is_some_and(|k| matches!(k.name, "subject" | "broker"))
}

fn shown(set: &(String, String)) -> String {
    format!("{}={}", set.0, set.1)
}

fn unknown(set: &(String, String)) -> AdviceError {
    let name = set.0.trim();
    let names = KEYS.iter().flat_map(|k| k.aliases.iter().copied().chain([k.name]));
    let near = names
        .map(|n| (strsim::jaro_winkler(name, n).max(strsim::normalized_damerau_levenshtein(name, n)), n))
        .filter(|(likeness, _)| *likeness >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, n)| n);
    let mend = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`halfopen predict --keys` lists them".to_string(),
    };
    AdviceError::UnknownKey { set: shown(set), key: name.to_string(), mend }
}

/// All combinations of the values. A key that is given twice takes its last value.
///
/// # Errors
/// A key that does not exist, or more combinations than [`MAX_ARMS`].
pub(super) fn combinations(sets: &[(String, String)]) -> Result<Vec<Combination>, AdviceError> {
    let mut lists: Vec<(&(String, String), Vec<&str>)> = Vec::new();
    for set in sets {
        let key = find(&set.0).ok_or_else(|| unknown(set))?;
        let values: Vec<&str> = set.1.split(',').map(str::trim).collect();
        if values.iter().any(|v| v.is_empty()) {
            let why = format!("no value; write for example `{}={}`", key.name, key.example);
            return Err(AdviceError::Value { set: shown(set), why });
        }
        lists.retain(|(other, _)| find(&other.0).is_none_or(|k| k.name != key.name));
        lists.push((set, values));
    }
    let count = lists.iter().try_fold(1usize, |n, (_, values)| n.checked_mul(values.len())).unwrap_or(usize::MAX);
    if count > MAX_ARMS {
        return Err(AdviceError::TooMany(count));
    }
    let mut all: Vec<Combination> = vec![Vec::new()];
    for (set, values) in &lists {
        all = all
            .into_iter()
            .flat_map(|front| {
                values.iter().map(move |value| {
                    let mut combination = front.clone();
                    combination.push((set.0.trim().to_string(), (*value).to_string()));
                    combination
                })
            })
            .collect();
    }
    let several: Vec<bool> = lists.iter().map(|(_, values)| values.len() > 1).collect();
    if several.iter().any(|s| *s) {
        // The name of an arm is carried as a key that no user can write.
        for combination in &mut all {
            let parts: Vec<String> =
                combination.iter().zip(&several).filter(|(_, s)| **s).map(|(set, _)| shown(set)).collect();
            combination.push((NAME.to_string(), parts.join(" ")));
        }
    }
    Ok(all)
}

const NAME: &str = "=name";

/// What a combination says about the stack.
///
/// # Errors
/// A subject or broker that does not exist.
pub(super) fn choose(combination: &Combination) -> Result<Chosen, AdviceError> {
    let mut chosen = Chosen::default();
    for set in combination {
        let wrong = |why: String| AdviceError::Value { set: shown(set), why };
        match find(&set.0).map(|k| k.name) {
            _ if set.0 == NAME => chosen.name.clone_from(&set.1),
            Some("subject") => chosen.subject = Some(set.1.parse().map_err(wrong)?),
            Some("broker") => chosen.broker = Some(set.1.parse().map_err(wrong)?),
            _ => {}
        }
    }
    Ok(chosen)
}

/// Lays a combination over an arm.
///
/// # Errors
/// A value that is none, by the key that it was given for.
pub(super) fn apply(arm: &mut Arm, combination: &Combination) -> Result<(), AdviceError> {
    for set in combination.iter().filter(|(key, _)| key != NAME) {
        let key = find(&set.0).ok_or_else(|| unknown(set))?;
        (key.apply)(arm, &set.1).map_err(|why| AdviceError::Value { set: shown(set), why })?;
        let option = if key.option.is_empty() { key.name } else { key.option };
        let place = Place { label: "--set".to_string(), line: None, key: key.name.to_string() };
        arm.places.insert(option.to_string(), (Origin::Written, place));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect()
    }

    #[test]
    fn several_values_become_arms_that_are_named_by_what_differs() {
        let all = combinations(&sets(&[("subject", "celery"), ("heartbeat", "10s,60s"), ("read_timeout", "none,60s")]));
        let names: Vec<String> = all.unwrap().iter().map(|c| choose(c).unwrap().name).collect();
        assert_eq!(
            names,
            [
                "heartbeat=10s read_timeout=none",
                "heartbeat=10s read_timeout=60s",
                "heartbeat=60s read_timeout=none",
                "heartbeat=60s read_timeout=60s"
            ]
        );
    }

    #[test]
    fn the_last_of_equal_keys_counts_and_aliases_are_the_same_key() {
        let all = combinations(&sets(&[("call", "true"), ("synchronous_call", "false")])).unwrap();
        assert_eq!(all, [sets(&[("synchronous_call", "false")])]);
    }

    #[test]
    fn slips_name_the_nearest_key() {
        let error = |key: &str| combinations(&sets(&[(key, "1s")])).unwrap_err().to_string();
        assert_eq!(error("hartbeat"), "--set hartbeat=1s: unknown key `hartbeat`; did you mean `heartbeat`?");
        assert!(error("keepalive.idel").ends_with("did you mean `keepalive.idle`?"));
        assert!(error("sysctl.tcp_retires2").ends_with("did you mean `sysctl.tcp_retries2`?"));
        assert!(error("zzz").ends_with("`halfopen predict --keys` lists them"));
        assert!(combinations(&sets(&[("sysctl.net.ipv4.tcp_retries2", "5")])).is_ok());
    }

    #[test]
    fn too_many_and_empty_values_are_refused() {
        let many = (0..101).map(|n| format!("{n}s")).collect::<Vec<_>>().join(",");
        let error = combinations(&sets(&[("rtt", &many), ("heartbeat", &many)])).unwrap_err().to_string();
        assert_eq!(error, "10201 combinations of the values in --set are too many; the most is 10000");
        let error = combinations(&sets(&[("heartbeat", "")])).unwrap_err().to_string();
        assert_eq!(error, "--set heartbeat=: no value; write for example `heartbeat=10s`");
    }
}
