//! In which order Erlang looks for RabbitMQ's modules: those directories first in which they are.
//!
//! RabbitMQ comes with seventy plugins, and Erlang asks each of their directories for each of 800 modules before it comes
//! to its own: 40,000 files that are not there, each by way of another thread. The dependencies of the application
//! `rabbit` are put in front instead, and its directory of plugins has that application alone. The files that are loaded
//! are the same. What is left out: enabling plugins.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The application that everything starts from.
const ROOT: &str = "rabbit";
/// Started by it without being named among its dependencies.
const STARTED_BY_IT: &str = "mnesia";

/// Where the modules are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CodePath {
    /// The directory of the application `rabbit`.
    root: PathBuf,
    /// Directories of modules, the most wanted first.
    dirs: Vec<PathBuf>,
}

impl CodePath {
    /// Of the RabbitMQ with this start script and the Erlang on this `PATH`; `None` where either is laid out in another
    /// way than the packages do, or has a space in its path: then Erlang looks everywhere.
    pub fn find(script: &Path, path: &str) -> Option<Self> {
        let real = fs::canonicalize(script).ok()?;
        let erl = path.split(':').map(|dir| Path::new(dir).join("erl")).find(|erl| erl.is_file())?;
        let erl = fs::canonicalize(erl).ok()?;
        Self::of(&[real.parent()?.parent()?.join("plugins"), erl.parent()?.parent()?.join("lib")])
    }

    fn of(libraries: &[PathBuf]) -> Option<Self> {
        let known: Vec<(String, PathBuf)> = libraries.iter().flat_map(|dir| applications_below(dir)).collect();
        let dir_of = |name: &str| known.iter().find(|(app, _)| app == name).map(|(_, dir)| dir.clone());
        let root = dir_of(ROOT)?;
        let mut names = vec![ROOT.to_string(), STARTED_BY_IT.to_string()];
        let mut waiting: VecDeque<String> = names.iter().cloned().collect();
        let mut dirs = Vec::new();
        while let Some(name) = waiting.pop_front() {
            let Some(dir) = dir_of(&name) else { continue };
            let ebin = dir.join("ebin");
            let text = fs::read_to_string(ebin.join(format!("{name}.app"))).unwrap_or_default();
            for needed in dependencies(&text) {
                if !names.contains(&needed) {
                    names.push(needed.clone());
                    waiting.push_back(needed);
                }
            }
            dirs.push(ebin);
        }
        let plain = |dir: &PathBuf| dir.to_str().is_some_and(|text| !text.contains(char::is_whitespace));
        dirs.iter().all(plain).then_some(Self { root, dirs })
    }

    /// Makes a directory of plugins that has `rabbit` alone.
    pub fn link_plugins(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let name = self.root.file_name().ok_or_else(|| io::Error::other("an application without a name"))?;
        std::os::unix::fs::symlink(&self.root, dir.join(name))
    }

    /// Erlang's arguments: it puts each directory in front of the others, so the most wanted comes last.
    pub fn arguments(&self) -> String {
        let dirs: Vec<String> = self.dirs.iter().rev().map(|dir| dir.display().to_string()).collect();
        format!("-pa {}", dirs.join(" "))
    }
}

/// Names and directories: `rabbit` is in `rabbit-3.10.8`. Of two versions the later name counts.
fn applications_below(dir: &Path) -> Vec<(String, PathBuf)> {
    let mut dirs: Vec<PathBuf> = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    dirs.retain(|dir| dir.join("ebin").is_dir());
    dirs.sort();
    dirs.reverse();
    let name = |dir: &PathBuf| dir.file_name()?.to_str()?.split('-').next().map(str::to_string);
    dirs.into_iter().filter_map(|dir| Some((name(&dir)?, dir))).collect()
}

/// `{applications, [kernel, stdlib, …]}` of an application's resource file.
fn dependencies(text: &str) -> Vec<String> {
    let list = text.split_once("{applications").and_then(|(_, rest)| rest.split_once('[')).map(|(_, rest)| rest);
    let list = list.and_then(|rest| rest.split_once(']')).map_or("", |(list, _)| list);
    let name = |name: &str| name.trim().trim_matches('\'').to_string();
    list.split(',').map(name).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(library: &Path, dir: &str, needs: &str) {
        let name = dir.split('-').next().unwrap();
        fs::create_dir_all(library.join(dir).join("ebin")).unwrap();
        let text = format!("{{application, {name}, [\n  {{vsn, \"1\"}},\n  {{applications,\n   [{needs}]}}]}}.");
        fs::write(library.join(dir).join("ebin").join(format!("{name}.app")), text).unwrap();
    }

    #[test]
    fn dependencies_come_in_front_of_all_others_and_rabbit_first() {
        let dir = tempfile::tempdir().unwrap();
        let (plugins, lib) = (dir.path().join("plugins"), dir.path().join("lib"));
        application(&plugins, "rabbit-3.10.8", "kernel,stdlib,\n 'ra',not_there");
        application(&plugins, "ra-2.2.0", "kernel,aten");
        application(&plugins, "aten-0.5.8", "");
        application(&plugins, "rabbitmq_web_stomp-3.10.8", "rabbit");
        application(&lib, "kernel-8.5", "");
        application(&lib, "stdlib-4.2", "kernel");
        application(&lib, "mnesia-4.21", "kernel,stdlib");
        let path = CodePath::of(&[plugins.clone(), lib]).unwrap();
        let names: Vec<String> =
            path.dirs.iter().map(|d| d.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["rabbit-3.10.8", "mnesia-4.21", "kernel-8.5", "stdlib-4.2", "ra-2.2.0", "aten-0.5.8"]);
        assert!(path.arguments().starts_with("-pa ") && path.arguments().ends_with("rabbit-3.10.8/ebin"));
        path.link_plugins(&dir.path().join("own")).unwrap();
        assert!(dir.path().join("own/rabbit-3.10.8/ebin/rabbit.app").is_file());
    }

    #[test]
    fn what_is_laid_out_otherwise_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(CodePath::of(&[dir.path().join("plugins"), dir.path().join("lib")]), None);
        let spaced = dir.path().join("a b");
        application(&spaced, "rabbit-1", "");
        assert_eq!(CodePath::of(&[spaced]), None);
        assert_eq!(dependencies("{application, x, []}."), Vec::<String>::new());
    }
}
