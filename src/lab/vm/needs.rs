//! What this machine lacks to build a virtual-time kernel or to run a guest, and the command that mends it.
//!
//! Used by `doctor`, by `vm build` before it begins, and before each boot. What is left out: installing anything.

use super::error::{VmError, io_at};
use super::recipe::{Source, find_source};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Room that a build needs, in MiB: 1.6 GB of tree and what it is unpacked from.
pub const ROOM_MIB: u64 = 2048;

const TOOLS: &[(&str, &str)] = &[
    ("gcc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("strip", "binutils"),
    ("xz", "xz-utils"),
];

/// Where the system's programs are, whatever the caller's `PATH` says.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Debian and Ubuntu packages that a build needs and that are not here.
#[must_use]
pub fn missing_packages() -> Vec<String> {
    let mut missing: Vec<String> =
        TOOLS.iter().filter(|(program, _)| find_program(program).is_none()).map(|(_, p)| (*p).to_string()).collect();
    if !Path::new("/usr/include/libelf.h").exists() {
        missing.push("libelf-dev".into());
    }
    missing
}

/// The command that installs packages.
#[must_use]
pub fn apt_command(packages: &[String]) -> String {
    format!("sudo apt-get install --no-install-recommends {}", packages.join(" "))
}

/// A program's file on the system's path.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let executable = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    PATH.split(':').map(|dir| Path::new(dir).join(name)).find(executable)
}

/// The source, when all that a build needs is here and there is room in `cache` (a directory that exists).
///
/// # Errors
/// The first lack, with the command that mends all lacks of that kind.
pub fn check_build(given: Option<&Path>, cache: &Path) -> Result<Source, VmError> {
    let mut missing = missing_packages();
    let source = find_source(given);
    if source.is_none() {
        missing.insert(0, "linux-source-6.1".into());
        let mend = match given {
            Some(path) => format!("there is no file {}", path.display()),
            None => format!("{} (on Ubuntu: linux-source)", apt_command(&missing)),
        };
        return Err(VmError::NoSource { mend });
    }
    if !missing.is_empty() {
        let mend = apt_command(&missing);
        return Err(VmError::NoTools { missing, mend });
    }
    let free_mib = free_mib(cache)?;
    if free_mib < ROOM_MIB {
        return Err(VmError::NoRoom { dir: cache.to_path_buf(), need_mib: ROOM_MIB, free_mib });
    }
    source.ok_or(VmError::NoSource { mend: String::new() })
}

/// Free space for this user, in MiB.
pub(super) fn free_mib(dir: &Path) -> Result<u64, VmError> {
    let fs = statvfs(dir).map_err(io_at(format!("read the free space of {}", dir.display())))?;
    Ok(fs.blocks_available() * fs.fragment_size() / (1 << 20))
}

/// Whether a process may trace its own child; a guest can't run without.
///
/// # Errors
/// What stands against it, and what mends it.
pub fn check_ptrace() -> Result<(), VmError> {
    // The kernel's own switch; a container's seccomp filter shows itself only in the attempt.
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() == "3" {
        return Err(VmError::Unfit(
            "ptrace is switched off until the next boot (kernel.yama.ptrace_scope = 3); set it to 1 and boot".into(),
        ));
    }
    // SAFETY: the child makes two system calls and exits.
    let refused = unsafe {
        match libc::fork() {
            0 => {
                let answer = libc::ptrace(libc::PTRACE_TRACEME, 0, std::ptr::null_mut::<libc::c_void>(), 0);
                libc::_exit(i32::from(answer != 0));
            }
            -1 => return Err(io_at("fork")(std::io::Error::last_os_error())),
            pid => {
                let mut status = 0;
                libc::waitpid(pid, &raw mut status, 0);
                !(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
            }
        }
    };
    if refused {
        return Err(VmError::Unfit(
            "ptrace is refused; in a container, start it with `--cap-add SYS_PTRACE --security-opt seccomp=unconfined`"
                .into(),
        ));
    }
    Ok(())
}

/// A directory for the guest's memory file: writable, executable mappings allowed, room enough. A tmpfs comes first,
/// since the kernel would write a file on disk back all the time.
///
/// # Errors
/// When no candidate will do; the message lists them.
pub fn memory_dir(memory_mib: u32) -> Result<PathBuf, VmError> {
    let from_env = std::env::var_os("TMPDIR").map(PathBuf::from);
    let candidates: Vec<PathBuf> = ["/dev/shm", "/tmp", "/var/tmp"]
        .iter()
        .map(PathBuf::from)
        .chain(from_env)
        .filter(|p| p.is_absolute())
        .collect();
    let mut reasons = Vec::new();
    for dir in candidates {
        match why_not_for_memory(&dir, memory_mib) {
            None => return Ok(dir),
            Some(why) => reasons.push(format!("{}: {why}", dir.display())),
        }
    }
    Err(VmError::Unfit(format!("no directory for the guest's memory ({}); set TMPDIR", reasons.join("; "))))
}

fn why_not_for_memory(dir: &Path, memory_mib: u32) -> Option<String> {
    let Ok(fs) = statvfs(dir) else { return Some("is not there".into()) };
    if fs.flags().contains(FsFlags::ST_NOEXEC) {
        return Some("is mounted noexec".into());
    }
    let free = fs.blocks_available() * fs.fragment_size() / (1 << 20);
    if free < u64::from(memory_mib) {
        return Some(format!("{free} MiB free, {memory_mib} needed"));
    }
    nix::unistd::access(dir, nix::unistd::AccessFlags::W_OK).is_err().then(|| "is not writable".into())
}

/// Where a guest's own small files go: `TMPDIR` or `/tmp`. A short path without spaces: it becomes part of a socket's
/// address and of the kernel's command line.
pub(super) fn temporary_dir() -> PathBuf {
    let short =
        |p: &PathBuf| p.is_absolute() && p.as_os_str().len() < 60 && !p.to_string_lossy().contains(char::is_whitespace);
    std::env::var_os("TMPDIR").map(PathBuf::from).filter(short).unwrap_or_else(|| "/tmp".into())
}

fn check_temporary_dir() -> Result<(), VmError> {
    let dir = temporary_dir();
    nix::unistd::access(&dir, nix::unistd::AccessFlags::W_OK)
        .map_err(|e| VmError::Unfit(format!("{} can't be written ({e}); set TMPDIR to a short path", dir.display())))
}

/// All that a guest needs from this machine, for `doctor`.
///
/// # Errors
/// The first lack, with what mends it.
pub fn check_run(memory_mib: u32) -> Result<(), VmError> {
    if !cfg!(target_arch = "x86_64") {
        return Err(VmError::Unfit("user-mode Linux exists for x86_64 only".into()));
    }
    check_ptrace()?;
    check_temporary_dir()?;
    memory_dir(memory_mib).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_every_package() {
        assert_eq!(
            apt_command(&["flex".into(), "bison".into()]),
            "sudo apt-get install --no-install-recommends flex bison"
        );
    }

    #[test]
    fn a_source_that_is_not_there_is_named() {
        let error = check_build(Some(Path::new("/nonexistent.tar.xz")), Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent.tar.xz"), "{error}");
    }

    #[test]
    fn a_directory_without_room_or_without_a_place_says_so() {
        assert!(why_not_for_memory(Path::new("/nonexistent"), 1).unwrap().contains("not there"));
        assert!(why_not_for_memory(Path::new("/proc"), 1).is_some());
        let dir = tempfile::tempdir().unwrap();
        assert!(why_not_for_memory(dir.path(), u32::MAX).unwrap().contains("needed"));
    }
}
