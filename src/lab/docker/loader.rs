//! This program with its own C library, for containers of any image.
//!
//! A user's image may have another C library than this program was built against, or none. So the loader and the libraries
//! that this very process has are laid into the container in a directory of their own, and the program is started through
//! that loader. What it starts there finds the image's own libraries, as it would without us.

use super::api::cannot;
use crate::lab::LabError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where they are in the container.
const LIBRARIES: &str = "/usr/local/lib/halfopen";

/// The loader and the libraries, each under the name by which it is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loader {
    files: BTreeMap<String, PathBuf>,
}

impl Loader {
    /// Of what this process has loaded; nothing where it is linked statically.
    ///
    /// # Errors
    /// When that can't be read.
    pub fn of_this_program() -> Result<Self, LabError> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(|e| cannot(format!("/proc/self/maps: {e}")))?;
        let files = libraries(&maps).into_iter().map(|path| (name_of(&path), path)).collect();
        Ok(Self { files })
    }

    /// What goes before the program.
    pub fn argv(&self) -> Vec<String> {
        let loader = self.files.keys().find(|name| name.starts_with("ld-"));
        let started = |name: &String| vec![format!("{LIBRARIES}/{name}"), "--library-path".into(), LIBRARIES.into()];
        loader.map(started).unwrap_or_default()
    }

    /// What has to be there for it, `FROM:TO:ro`.
    pub fn binds(&self) -> Vec<String> {
        self.files.iter().map(|(name, path)| format!("{}:{LIBRARIES}/{name}:ro", path.display())).collect()
    }
}

/// The shared objects that a process has code of.
fn libraries(maps: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (rights, path) = (words.nth(1).unwrap_or_default(), words.nth(3).unwrap_or_default());
        let is_library = Path::new(path).file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
        if rights.contains('x') && is_library && !found.contains(&PathBuf::from(path)) {
            found.push(PathBuf::from(path));
        }
    }
    found
}

/// The name by which a library is asked for: its own, or that of a link beside it, as in `libc.so.6 -> libc-2.31.so`.
fn name_of(path: &Path) -> String {
    let own = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let versioned =
        |name: &str| name.rsplit_once(".so.").is_some_and(|(_, number)| number.chars().all(|c| c.is_ascii_digit()));
    if versioned(&own) {
        return own;
    }
    let beside = path.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    beside
        .filter(|entry| versioned(&entry.file_name().to_string_lossy()))
        .find(|entry| fs::canonicalize(entry.path()).is_ok_and(|real| real == path))
        .map_or(own, |entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_the_map_once_each() {
        let maps = "55d0-55d1 r-xp 00000000 fe:00 7 /usr/bin/halfopen\n\
                    7f00-7f01 r--p 00000000 fe:00 8 /usr/lib/x/libc.so.6\n7f01-7f02 r-xp 00026000 fe:00 8 /usr/lib/x/libc.so.6\n\
                    7f02-7f03 r-xp 00000000 fe:00 9 /usr/lib/x/ld-linux-x86-64.so.2\n7f04-7f05 r-xp 0 00:00 0 [vdso]\n";
        let found = libraries(maps);
        assert_eq!(found, [PathBuf::from("/usr/lib/x/libc.so.6"), "/usr/lib/x/ld-linux-x86-64.so.2".into()]);
    }

    #[test]
    fn this_program_starts_through_its_own_loader() {
        let loader = Loader::of_this_program().unwrap();
        if let [first, ..] = &loader.argv()[..] {
            assert!(first.starts_with("/usr/local/lib/halfopen/ld-"), "{first}");
            assert!(loader.binds().iter().any(|bind| bind.ends_with("/libc.so.6:ro")), "{loader:?}");
        }
    }

    #[test]
    fn a_library_is_called_by_the_link_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::write(dir.join("libx-2.31.so"), "").unwrap();
        std::os::unix::fs::symlink("libx-2.31.so", dir.join("libx.so.6")).unwrap();
        assert_eq!(name_of(&dir.join("libx-2.31.so")), "libx.so.6");
        assert_eq!(name_of(Path::new("/nowhere/libgcc_s.so.1")), "libgcc_s.so.1");
    }
}
