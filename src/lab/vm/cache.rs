//! Where kernels are kept: `$XDG_CACHE_HOME` (or `~/.cache`) `/halfopen/vm/<key>/`.
//!
//! A kernel is there when its `kernel.json` is: that file is written last, by a rename. What is left out: making one.

use super::error::{VmError, io_at};
use super::recipe::recipe_hash;
use crate::host::clock::unix_seconds;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What is known of a finished kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelInfo {
    /// Source and recipe.
    pub key: String,
    /// Package and version of the source.
    pub source: String,
    /// Hash of configuration and edits.
    pub recipe: String,
    /// The kernel's release as `uname -r` prints it in the guest.
    pub release: String,
    /// Its tick in Hz.
    pub hz: u32,
    /// Size of the stripped binary in bytes.
    pub bytes: u64,
    /// When it was built, seconds since 1970.
    pub built_unix_s: i64,
    /// How long the building took, in seconds of this machine, interruptions left out.
    pub build_wall_s: f64,
}

/// The last test of a kernel: `sleep 3600` in a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BootTest {
    /// When, seconds since 1970.
    pub unix_s: i64,
    /// Virtual seconds that passed in the guest.
    pub virtual_s: f64,
    /// Seconds that passed here, boot included.
    pub wall_s: f64,
    /// Features of the guest's kernel that the faults need and that it lacks.
    pub lacks: Vec<String>,
}

/// The cache of one user.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// One kernel of the cache, finished or not.
#[derive(Debug, Clone, Serialize)]
pub struct Kept {
    /// Its directory.
    pub dir: PathBuf,
    /// What is known of it; `None` while it is not finished.
    pub kernel: Option<KernelInfo>,
    /// The last step that was completed, while it is not finished.
    pub stage: Option<String>,
    /// Size of the source tree in bytes; 0 when it was removed.
    pub tree_bytes: u64,
    /// The last boot test.
    pub boot_test: Option<BootTest>,
    /// Whether this version of `halfopen` would use it.
    pub current: bool,
}

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// The binary.
    pub path: PathBuf,
    /// What is known of it; `None` for one given by path.
    pub info: Option<KernelInfo>,
}

/// The environment variable that names a kernel of one's own.
const KERNEL_VARIABLE: &str = "HALFOPEN_VM_KERNEL";
/// The binary's name in a kernel's directory.
pub(super) const BINARY: &str = "linux";
const INFO: &str = "kernel.json";
const BOOT_TEST: &str = "boot-test.json";

impl Cache {
    /// The cache of the calling user, from the environment.
    ///
    /// # Errors
    /// When the environment names neither a cache nor a home directory.
    pub fn of_user() -> Result<Self, VmError> {
        let var = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        Self::below(var("XDG_CACHE_HOME"), var("HOME"))
    }

    fn below(xdg: Option<PathBuf>, home: Option<PathBuf>) -> Result<Self, VmError> {
        let base = xdg.or_else(|| home.map(|h| h.join(".cache"))).ok_or(VmError::NoCacheDir)?;
        Ok(Self { root: base.join("halfopen/vm") })
    }

    /// A cache in a directory.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of one kernel.
    #[must_use]
    pub fn dir(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// The kernel to boot: `given`, or the one that `HALFOPEN_VM_KERNEL` names, or the newest finished one whose configuration and edits are this version's.
    ///
    /// # Errors
    /// [`VmError::NoKernel`] with the command that builds one.
    pub fn kernel(&self, given: Option<&Path>) -> Result<Kernel, VmError> {
        let named = std::env::var_os(KERNEL_VARIABLE).filter(|n| !n.is_empty()).map(PathBuf::from);
        if let Some(path) = given.or(named.as_deref()) {
            let path = path.canonicalize().map_err(io_at(format!("use the kernel {}", path.display())))?;
            return Ok(Kernel { path, info: None });
        }
        let current = self
            .list()
            .into_iter()
            .filter(|k| k.current)
            .max_by_key(|k| k.kernel.as_ref().map_or(0, |i| i.built_unix_s));
        let kept = current.ok_or_else(|| VmError::NoKernel(self.root.clone()))?;
        Ok(Kernel { path: kept.dir.join(BINARY), info: kept.kernel })
    }

    /// All kernels, finished or not, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Kept> {
        let Ok(entries) = fs::read_dir(&self.root) else { return Vec::new() };
        let mut kept: Vec<Kept> = entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).map(look_at).collect();
        kept.sort_by(|a, b| a.dir.cmp(&b.dir));
        kept
    }

    /// Makes a finished kernel visible; the binary is in place already.
    pub(super) fn publish(&self, info: &KernelInfo) -> Result<(), VmError> {
        write_json(&self.dir(&info.key), INFO, info)
    }

    /// Records a boot test beside the kernel it was made with.
    pub(super) fn record_boot_test(&self, key: &str, test: &BootTest) -> Result<(), VmError> {
        write_json(&self.dir(key), BOOT_TEST, test)
    }

    /// Removes every kernel and tree, or with `old_only` those that this version would not use. Returns what was
    /// removed, with its size in bytes. One that is being built is left alone.
    ///
    /// # Errors
    /// The first removal that failed.
    pub fn clean(&self, old_only: bool) -> Result<Vec<(PathBuf, u64)>, VmError> {
        let mut removed = Vec::new();
        for kept in self.list().into_iter().filter(|k| !(old_only && k.current)) {
            if super::build::is_building(&kept.dir) {
                continue;
            }
            let bytes = size_of_tree(&kept.dir);
            fs::remove_dir_all(&kept.dir).map_err(io_at(format!("remove {}", kept.dir.display())))?;
            removed.push((kept.dir, bytes));
        }
        Ok(removed)
    }
}

fn look_at(dir: PathBuf) -> Kept {
    let kernel: Option<KernelInfo> = read_json(&dir.join(INFO)).filter(|_| dir.join(BINARY).is_file());
    Kept {
        stage: if kernel.is_some() { None } else { super::build::stage_reached(&dir) },
        tree_bytes: size_of_tree(&dir.join("tree")),
        boot_test: read_json(&dir.join(BOOT_TEST)),
        current: kernel.as_ref().is_some_and(|k| k.recipe == recipe_hash()),
        kernel,
        dir,
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> Result<(), VmError> {
    let write = || {
        let partial = dir.join(format!("{name}.partial"));
        fs::write(&partial, serde_json::to_vec_pretty(value)?)?;
        fs::rename(&partial, dir.join(name))
    };
    write().map_err(io_at(format!("write {name} in {}", dir.display())))
}

/// Bytes of all files below `path`, links not followed; 0 when it is not there.
#[must_use]
pub fn size_of_tree(path: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    fs::read_dir(path).map_or(0, |d| d.flatten().map(|e| size_of_tree(&e.path())).sum())
}

impl BootTest {
    /// A test that was made now.
    #[must_use]
    pub fn now(virtual_s: f64, wall_s: f64, lacks: Vec<String>) -> Self {
        Self { unix_s: unix_seconds(), virtual_s, wall_s, lacks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(key: &str, recipe: &str, built: i64) -> KernelInfo {
        KernelInfo {
            key: key.into(),
            source: "linux-source-6.1_1".into(),
            recipe: recipe.into(),
            release: "6.1.192-vt".into(),
            hz: 250,
            bytes: 1,
            built_unix_s: built,
            build_wall_s: 1.0,
        }
    }

    #[test]
    fn the_cache_directory_wins_over_the_home() {
        let path = |p: &str| Some(PathBuf::from(p));
        assert_eq!(Cache::below(path("/c"), path("/h")).unwrap().root(), Path::new("/c/halfopen/vm"));
        assert_eq!(Cache::below(None, path("/h")).unwrap().root(), Path::new("/h/.cache/halfopen/vm"));
        assert!(matches!(Cache::below(None, None), Err(VmError::NoCacheDir)));
    }

    #[test]
    fn only_a_published_kernel_of_this_recipe_is_taken_and_the_newest_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_path_buf());
        assert!(matches!(cache.kernel(None), Err(VmError::NoKernel(_))));
        for (key, recipe, built) in [("a", recipe_hash(), 5), ("b", recipe_hash(), 9), ("c", "old".into(), 99)] {
            fs::create_dir_all(cache.dir(key)).unwrap();
            fs::write(cache.dir(key).join(BINARY), "x").unwrap();
            assert!(cache.list().iter().all(|k| k.dir != cache.dir(key) || k.kernel.is_none()));
            cache.publish(&info(key, &recipe, built)).unwrap();
        }
        assert_eq!(cache.kernel(None).unwrap().info.unwrap().key, "b");
        let old: Vec<PathBuf> = cache.clean(true).unwrap().into_iter().map(|(p, _)| p).collect();
        assert_eq!(old, [cache.dir("c")]);
        assert_eq!(cache.clean(false).unwrap().len(), 2);
        assert!(cache.list().is_empty());
    }

    #[test]
    fn a_given_kernel_must_exist() {
        let cache = Cache::at(PathBuf::from("/nonexistent"));
        assert!(
            cache.kernel(Some(Path::new("/nonexistent/linux"))).unwrap_err().to_string().contains("/nonexistent/linux")
        );
        assert_eq!(cache.kernel(Some(Path::new("/bin/sh"))).unwrap().info, None);
    }
}
