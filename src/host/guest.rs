//! Whether this process runs inside the virtual-time guest.

/// The root of a guest is the host's tree, by a file system that only user-mode Linux has.
#[must_use]
pub fn in_user_mode_linux() -> bool {
    const HOSTFS_SUPER_MAGIC: i64 = 0x00c0_ffee;
    nix::sys::statfs::statfs("/").is_ok_and(|fs| fs.filesystem_type().0 == HOSTFS_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_is_none() {
        assert!(!super::in_user_mode_linux());
    }
}
