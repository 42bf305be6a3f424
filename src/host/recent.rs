//! Lists of the kernel's match `recent`: addresses with the time at which each was entered, which rules of iptables go by.
//!
//! A rule with `--rcheck --seconds N` matches for N seconds after an address was entered, by the kernel's own clock, whatever
//! becomes of who entered it. A list exists as long as a rule names it. What is left out: the rules.

use crate::host::netns::NetNs;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;

/// How many addresses a list remembers, where its module was not told otherwise (`ip_list_tot`); the oldest then makes room.
pub const USUAL_LENGTH: usize = 100;

/// A list in a network namespace.
#[derive(Debug, Clone)]
pub struct RecentList {
    namespace: NetNs,
    file: String,
}

impl RecentList {
    /// The list of this name.
    #[must_use]
    pub fn new(namespace: &NetNs, name: &str) -> Self {
        Self { namespace: namespace.clone(), file: format!("/proc/thread-self/net/xt_recent/{name}") }
    }

    /// Enters an address now.
    ///
    /// # Errors
    /// Where no rule names the list, and without the right to write it: it is the machine's root's, in a user namespace too.
    pub fn enter(&self, address: Ipv4Addr) -> io::Result<()> {
        self.write(&format!("+{address}\n"))
    }

    /// Strikes an address.
    ///
    /// # Errors
    /// As [`Self::enter`].
    pub fn strike(&self, address: Ipv4Addr) -> io::Result<()> {
        self.write(&format!("-{address}\n"))
    }

    /// Whether an address is on it, however old.
    ///
    /// # Errors
    /// Where no rule names the list.
    pub fn has(&self, address: Ipv4Addr) -> io::Result<bool> {
        let text = self.namespace.run(|| fs::read_to_string(&self.file))?;
        Ok(has(&text, address))
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let failed = |error: io::Error| {
            let mend = match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "; a cut that ends by itself needs the machine's own root here, or nftables"
                }
                _ => "",
            };
            io::Error::new(error.kind(), format!("{}: {error}{mend}", self.file))
        };
        self.namespace
            .run(|| OpenOptions::new().write(true).open(&self.file)?.write_all(line.as_bytes()))
            .map_err(failed)
    }
}

fn has(text: &str, address: Ipv4Addr) -> bool {
    let shown = format!("src={address}");
    text.lines().any(|line| line.split(' ').next() == Some(shown.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_the_kernel_prints_it() {
        let text = "src=10.64.128.1 ttl: 0 last_seen: 4295720547 oldest_pkt: 1 4295720547\n";
        assert!(has(text, Ipv4Addr::new(10, 64, 128, 1)));
        assert!(!has(text, Ipv4Addr::new(10, 64, 128, 10)) && !has("", Ipv4Addr::LOCALHOST));
    }
}
