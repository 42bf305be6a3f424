//! Builds the virtual-time kernel once: unpack, edit, configure, compile, publish. Resumable: a step that was completed
//! is marked by a file and not done again, and `make` itself goes on where it was killed.
//!
//! Nothing is downloaded. What is left out: installing what is missing (`needs` names the command).

use super::cache::{BINARY, Cache, Kernel, KernelInfo};
use super::error::{VmError, io_at};
use super::needs;
use super::recipe::{self, CONFIG, HZ, PATCH, Source};
use crate::host::clock::{Clock, unix_seconds};
use crate::host::process::{Launch, Stream};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to build and what to keep.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// The packed source; `None` takes the installed package's.
    pub source: Option<PathBuf>,
    /// Keep the tree (1.6 GB) after the kernel is finished.
    pub keep_tree: bool,
    /// Parallel jobs; `None` is one a processor.
    pub jobs: Option<usize>,
}

/// The steps, in order. Each leaves a file of its name in `stage/`.
const STEPS: [&str; 4] = ["unpacked", "edited", "configured", "compiled"];

/// The last step that was completed in a kernel's directory.
pub(super) fn stage_reached(dir: &Path) -> Option<String> {
    STEPS.iter().take_while(|s| dir.join("stage").join(s).exists()).last().map(|s| (*s).to_string())
}

/// Whether somebody is building there.
pub(super) fn is_building(dir: &Path) -> bool {
    File::open(dir.join("lock")).is_ok_and(|f| Flock::lock(f, FlockArg::LockExclusiveNonblock).is_err())
}

/// Builds the kernel, or returns the one that is there already. `progress` gets one line a step and one every ten
/// seconds of compiling.
///
/// # Errors
/// What is missing, with the command that mends it; the step that failed, with its log.
pub fn build(cache: &Cache, options: &BuildOptions, progress: &mut dyn FnMut(&str)) -> Result<Kernel, VmError> {
    fs::create_dir_all(cache.root()).map_err(io_at(format!("create {}", cache.root().display())))?;
    if options.source.is_none()
        && let Ok(kernel) = cache.kernel(None)
    {
        progress(&format!("there already: {}", kernel.path.display()));
        return Ok(kernel);
    }
    let source = needs::check_build(options.source.as_deref(), cache.root())?;
    let key = recipe::key(&source.version);
    let dir = cache.dir(&key);
    fs::create_dir_all(dir.join("stage")).map_err(io_at(format!("create {}", dir.display())))?;
    let lock = File::create(dir.join("lock")).map_err(io_at("create the build's lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|_| VmError::Busy(dir.join("lock")))?;
    if let Ok(kernel) = cache.kernel(Some(&dir.join(BINARY)))
        && let Some(kept) = cache.list().into_iter().find(|k| k.dir == dir && k.current)
    {
        progress(&format!("there already: {}", kernel.path.display()));
        return Ok(Kernel { info: kept.kernel, ..kernel });
    }
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
    let build = Build { log: dir.join("build.log"), tree: dir.join("tree"), dir, clock: Clock::start(), jobs };
    progress(&format!("key {key}; log {}", build.log.display()));
    build.unpack(&source, progress)?;
    build.step("edited", progress, |b| {
        fs::write(b.dir.join("patch.sh"), PATCH).map_err(io_at("write patch.sh"))?;
        b.run("edited", "/bin/sh", &["../patch.sh"], &mut |_| {})
    })?;
    build.step("configured", progress, Build::configure)?;
    let jobs = format!("-j{}", build.jobs);
    if !build.done("compiled") {
        progress(&format!("compiling ({jobs}); 7–9 minutes on 2 cores"));
        build.run("compiled", "/usr/bin/make", &["ARCH=um", &jobs, "linux"], progress)?;
        build.mark("compiled")?;
    }
    let info = build.publish(cache, &source, &key)?;
    if !options.keep_tree {
        progress("removing the source tree");
        fs::remove_dir_all(&build.tree).map_err(io_at("remove the source tree"))?;
        fs::remove_dir_all(build.dir.join("stage")).map_err(io_at("remove the marks of the steps"))?;
    }
    Ok(Kernel { path: build.dir.join(BINARY), info: Some(info) })
}

struct Build {
    dir: PathBuf,
    tree: PathBuf,
    log: PathBuf,
    clock: Clock,
    jobs: usize,
}

impl Build {
    fn done(&self, step: &str) -> bool {
        self.dir.join("stage").join(step).exists()
    }

    fn mark(&self, step: &str) -> Result<(), VmError> {
        fs::write(self.dir.join("stage").join(step), "").map_err(io_at("mark a step"))
    }

    fn step(
        &self,
        step: &'static str,
        progress: &mut dyn FnMut(&str),
        work: impl FnOnce(&Self) -> Result<(), VmError>,
    ) -> Result<(), VmError> {
        if !self.done(step) {
            work(self)?;
            self.mark(step)?;
            progress(step);
        }
        Ok(())
    }

    fn unpack(&self, source: &Source, progress: &mut dyn FnMut(&str)) -> Result<(), VmError> {
        self.step("unpacked", progress, |b| {
            // Half a tree looks like a whole one: it gets its name when it is complete.
            let partial = b.dir.join("tree.partial");
            for old in [&partial, &b.tree] {
                if old.exists() {
                    fs::remove_dir_all(old).map_err(io_at("remove half a tree"))?;
                }
            }
            fs::create_dir_all(&partial).map_err(io_at("create the tree"))?;
            let archive = source.archive.to_str().ok_or_else(|| VmError::Path(source.archive.clone()))?;
            b.run_in(&partial, "unpacked", "/bin/tar", &["-x", "--strip-components=1", "-f", archive], &mut |_| {})?;
            fs::rename(&partial, &b.tree).map_err(io_at("name the tree"))
        })
    }

    fn configure(&self) -> Result<(), VmError> {
        fs::write(self.dir.join("kernel.config"), CONFIG).map_err(io_at("write kernel.config"))?;
        let make = |target: &str| self.run("configured", "/usr/bin/make", &["ARCH=um", target], &mut |_| {});
        make("x86_64_defconfig")?;
        let merge = ["scripts/kconfig/merge_config.sh", "-m", ".config", "../kernel.config"];
        self.run("configured", "/bin/sh", &merge, &mut |_| {})?;
        make("olddefconfig")?;
        let config = fs::read_to_string(self.tree.join(".config")).map_err(io_at("read the configuration"))?;
        let lacking = recipe::missing_options(&config);
        if lacking.is_empty() {
            return Ok(());
        }
        let why = format!("this source does not know CONFIG_{}", lacking.join(", CONFIG_"));
        Err(VmError::Step { step: "configured", why, log: self.log.clone() })
    }

    fn run(
        &self,
        step: &'static str,
        program: &str,
        args: &[&str],
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), VmError> {
        self.run_in(&self.tree, step, program, args, progress)
    }

    fn run_in(
        &self,
        cwd: &Path,
        step: &'static str,
        program: &str,
        args: &[&str],
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), VmError> {
        let fail = |why: String| VmError::Step { step, why, log: self.log.clone() };
        let mut launch = Launch::new(program).args(args.iter().copied());
        // Whatever the caller's CFLAGS, ARCH or locale are, the kernel is the same; nor does it carry his name.
        launch.only_env = true;
        launch.env = [
            ("PATH", needs::PATH),
            ("LC_ALL", "C"),
            ("HOME", "/"),
            ("KBUILD_BUILD_TIMESTAMP", "2025-01-01"),
            ("KBUILD_BUILD_USER", "halfopen"),
            ("KBUILD_BUILD_HOST", "halfopen"),
            ("KBUILD_BUILD_VERSION", "1"),
        ]
        .map(|(k, v)| (k.to_string(), v.into()))
        .into();
        launch.cwd = Some(cwd.to_path_buf());
        (launch.stdout, launch.stderr) = (Stream::File(self.log.clone()), Stream::File(self.log.clone()));
        let before = compiled_files(&self.log);
        let mut process = launch.spawn().map_err(|e| fail(e.to_string()))?;
        loop {
            match process.wait_at_most(Duration::from_secs(10)).map_err(io_at("wait for the build"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(fail(format!("{program} ended with {status}"))),
                None => progress(&format!(
                    "{} files compiled, {:.0} s",
                    compiled_files(&self.log) - before,
                    self.clock.now().0 as f64 / 1e9
                )),
            }
        }
    }

    fn publish(&self, cache: &Cache, source: &Source, key: &str) -> Result<KernelInfo, VmError> {
        let partial = self.dir.join("linux.partial");
        let target = partial.to_str().ok_or_else(|| VmError::Path(partial.clone()))?;
        self.run("compiled", "/usr/bin/strip", &["-o", target, "linux"], &mut |_| {})?;
        let release = fs::read_to_string(self.tree.join("include/config/kernel.release")).unwrap_or_default();
        let bytes = partial.metadata().map_err(io_at("read the kernel's size"))?.len();
        fs::rename(&partial, self.dir.join(BINARY)).map_err(io_at("name the kernel"))?;
        let info = KernelInfo {
            key: key.to_string(),
            source: source.version.clone(),
            recipe: recipe::recipe_hash(),
            release: release.trim().to_string(),
            hz: HZ,
            bytes,
            built_unix_s: unix_seconds(),
            build_wall_s: self.clock.now().0 as f64 / 1e9,
        };
        cache.publish(&info)?;
        Ok(info)
    }
}

fn compiled_files(log: &Path) -> usize {
    let text = fs::read(log).unwrap_or_default();
    text.split(|b| *b == b'\n').filter(|l| l.starts_with(b"  CC") || l.starts_with(b"  AS")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_in(dir: &Path) -> Build {
        fs::create_dir_all(dir.join("stage")).unwrap();
        fs::create_dir_all(dir.join("tree")).unwrap();
        Build { dir: dir.into(), tree: dir.join("tree"), log: dir.join("build.log"), clock: Clock::start(), jobs: 1 }
    }

    #[test]
    fn a_step_is_done_once_and_not_marked_when_it_failed() {
        let dir = tempfile::tempdir().unwrap();
        let build = build_in(dir.path());
        let mut lines = Vec::new();
        let failed = build.step("unpacked", &mut |l| lines.push(l.to_string()), |b| {
            b.run("unpacked", "/bin/false", &[], &mut |_| {})
        });
        assert!(matches!(failed, Err(VmError::Step { step: "unpacked", .. })));
        assert_eq!(stage_reached(dir.path()), None);
        let mut times = 0;
        for _ in 0..2 {
            build
                .step("unpacked", &mut |l| lines.push(l.to_string()), |_| {
                    times += 1;
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!((times, lines), (1, vec!["unpacked".to_string()]));
        assert_eq!(stage_reached(dir.path()).as_deref(), Some("unpacked"));
    }

    #[test]
    fn a_later_mark_does_not_hide_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let build = build_in(dir.path());
        build.mark("unpacked").unwrap();
        build.mark("configured").unwrap();
        assert_eq!(stage_reached(dir.path()).as_deref(), Some("unpacked"));
    }

    #[test]
    fn half_a_tree_is_thrown_away_and_a_broken_archive_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let build = build_in(dir.path());
        fs::create_dir_all(dir.path().join("tree.partial/half")).unwrap();
        fs::write(dir.path().join("broken.tar.xz"), "not an archive").unwrap();
        let source = Source { archive: dir.path().join("broken.tar.xz"), version: "x".into() };
        assert!(build.unpack(&source, &mut |_| {}).is_err());
        assert!(!dir.path().join("tree.partial/half").exists() && !build.tree.exists());
    }

    #[test]
    fn a_running_build_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_building(dir.path()));
        let lock = Flock::lock(File::create(dir.path().join("lock")).unwrap(), FlockArg::LockExclusive).unwrap();
        assert!(is_building(dir.path()));
        drop(lock);
        assert!(!is_building(dir.path()));
    }
}
