//! The virtual-time lab: user-mode Linux with time travel, a real kernel whose clock jumps to the next timer when
//! everything is idle. `docs/virtual-time.md` says how it works and when to trust it.
//!
//! The guest runs this very program, whose ordinary lab of network namespaces then runs inside. What is left out: that
//! lab, and anything that would be done differently in virtual time.

mod boot;
mod build;
mod cache;
mod command;
mod error;
mod features;
mod guest;
mod mconsole;
pub mod needs;
pub mod recipe;
mod tail;
mod watch;

pub use boot::{Boot, Booted};
pub use build::{BuildOptions, build};
pub use cache::{BootTest, Cache, Kept, Kernel, KernelInfo, size_of_tree};
pub use command::{GuestEnd, GuestSpec, Mode, START_UNIX_S, is_hidden};
pub use error::VmError;
pub use features::lacking;
pub use guest::{SUBCOMMAND, guest_main};
pub use watch::{Limits, Rule, Stall};

/// Boots a kernel and lets it sleep an hour: whether it works, and how fast. Recorded for a kernel of the cache.
///
/// # Errors
/// As [`Boot::run`].
pub fn boot_test(cache: &Cache, boot: &Boot) -> Result<BootTest, VmError> {
    let boot = Boot { argv: vec!["/bin/sleep".into(), "3600".into()], ..boot.clone() };
    let booted = boot.run(&mut std::io::sink(), &mut std::io::sink(), &mut |_| {})?;
    if booted.code != 0 || booted.virtual_s < 3600.0 {
        let why = format!("`sleep 3600` ended with {} after {} virtual s", booted.code, booted.virtual_s);
        return Err(VmError::Unfit(why));
    }
    let test = BootTest::now(booted.virtual_s, booted.wall_s, booted.lacks);
    if let Some(info) = &boot.kernel.info {
        cache.record_boot_test(&info.key, &test)?;
    }
    Ok(test)
}
