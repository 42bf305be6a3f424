//! Whom a program runs as, by the words of its image and the lists of users and groups where it runs.

use std::fs;
use std::io;
use std::path::PathBuf;

/// A user with a group and a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// Its number.
    pub user: u32,
    /// Its group's number.
    pub group: u32,
    /// Its home, where the list has it.
    pub home: Option<PathBuf>,
}

/// The account that `USER[:GROUP]` means here; `None` for nobody in particular.
///
/// # Errors
/// When there is no such user or group.
pub(super) fn find(words: &str) -> io::Result<Option<Account>> {
    // An image need not have lists: then numbers are all that can be meant.
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    in_lists(words, &read("/etc/passwd"), &read("/etc/group"))
}

fn in_lists(words: &str, users: &str, groups: &str) -> io::Result<Option<Account>> {
    if words.is_empty() {
        return Ok(None);
    }
    let (user, group) = words.split_once(':').map_or((words, None), |(user, group)| (user, Some(group)));
    let none = |what: &str, name: &str| {
        io::Error::other(format!("its image runs as `{words}`, and there is no {what} `{name}`"))
    };
    let fields = |line: &str| line.split(':').map(str::to_string).collect::<Vec<_>>();
    let entry = users.lines().map(fields).find(|entry| {
        let is = |at: usize| entry.get(at).is_some_and(|field| field == user);
        is(0) || is(2)
    });
    let number = |at: usize| entry.as_ref().and_then(|entry| entry.get(at)?.parse::<u32>().ok());
    let id = number(2).or_else(|| user.parse().ok()).ok_or_else(|| none("user", user))?;
    let group = match group {
        None => number(3).unwrap_or(0),
        Some(name) => {
            let listed = groups.lines().map(fields).find(|entry| entry.first().is_some_and(|field| field == name));
            let listed = listed.and_then(|entry| entry.get(2)?.parse().ok());
            listed.or_else(|| name.parse().ok()).ok_or_else(|| none("group", name))?
        }
    };
    let home = entry.as_ref().and_then(|entry| entry.get(5)).filter(|home| !home.is_empty()).map(PathBuf::from);
    Ok(Some(Account { user: id, group, home }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\napp:x:1001:1002::/home/app:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nstaff:x:50:app\n";

    fn of(words: &str) -> Option<(u32, u32, Option<String>)> {
        let found = in_lists(words, USERS, GROUPS).unwrap()?;
        Some((found.user, found.group, found.home.map(|home| home.display().to_string())))
    }

    #[test]
    fn names_and_numbers_mean_what_docker_means_by_them() {
        let home = |path: &str| Some(path.to_string());
        assert_eq!(of(""), None);
        assert_eq!(of("app"), Some((1001, 1002, home("/home/app"))));
        assert_eq!(of("1001"), Some((1001, 1002, home("/home/app"))));
        assert_eq!(of("app:staff"), Some((1001, 50, home("/home/app"))));
        assert_eq!(of("4000:7"), Some((4000, 7, None)));
        assert_eq!(of("4000"), Some((4000, 0, None)));
        assert_eq!(of("root"), Some((0, 0, home("/root"))));
        assert!(in_lists("nobody-here", USERS, GROUPS).unwrap_err().to_string().contains("no user `nobody-here`"));
        assert!(in_lists("app:no", USERS, GROUPS).is_err());
    }
}
