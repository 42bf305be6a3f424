//! By whom names are looked up: by one server, for all processes of a run's own mounts.

use nix::mount::{MsFlags, mount};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Makes this name server the only one of every program that is started from now on in the mounts of this process, which have
/// to be private: `/etc/resolv.conf` is covered by a file in `dir`, and `/etc/nsswitch.conf`, where there is one, by one that
/// asks files and then it. The resolver's own times stay as they are (glibc: two tries of 5 s).
///
/// # Errors
/// When a file can't be written or covered.
pub fn look_up_by(server: Ipv4Addr, dir: &Path) -> io::Result<()> {
    for (file, place) in files(server, dir)? {
        if place.file_name().is_some_and(|name| name == "nsswitch.conf") && !place.exists() {
            continue;
        }
        let none = None::<&str>;
        mount(Some(&file), &place, none, MsFlags::MS_BIND, none)
            .map_err(|errno| io::Error::other(format!("{} can't be covered: {errno}", place.display())))?;
    }
    Ok(())
}

/// Writes those files into `dir`: each with the place that it is to cover.
///
/// # Errors
/// When one can't be written.
pub fn files(server: Ipv4Addr, dir: &Path) -> io::Result<[(PathBuf, PathBuf); 2]> {
    let texts =
        [("resolv.conf", format!("nameserver {server}\n")), ("nsswitch.conf", "hosts: files dns\n".to_string())];
    for (name, text) in &texts {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(texts.map(|(name, _)| (dir.join(name), Path::new("/etc").join(name))))
}
