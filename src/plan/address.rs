//! The addresses of a run, all inside its own network namespaces.
//!
//! Every trial has an address pair of its own, so that a fault can mean one connection or one client host, and so that
//! a client that can't bind still gets its own source address from the route to *its* broker address.

use std::net::Ipv4Addr;

/// The most arms, 64: second octets 64 to 127 (clients) and 128 to 191 (servers).
pub use crate::scenario::MAX_ARMS;

/// The most trials of an arm, 30,000: third octets 128 to 247, 250 hosts each.
pub use crate::scenario::MAX_TRIALS;

fn pair(base: u8, arm: usize, index: u32) -> Option<Ipv4Addr> {
    if arm >= MAX_ARMS || index >= MAX_TRIALS {
        return None;
    }
    // In range by the check above: 64 arms, 120 blocks of 250 hosts.
    let second = base + u8::try_from(arm).ok()?;
    let third = 128 + u8::try_from(index / 250).ok()?;
    let fourth = 1 + u8::try_from(index % 250).ok()?;
    Some(Ipv4Addr::new(10, second, third, fourth))
}

/// The client's address of the trial `index` (over all faults) of an arm; `None` beyond the plan's room.
#[must_use]
pub fn client(arm: usize, index: u32) -> Option<Ipv4Addr> {
    pair(64, arm, index)
}

/// The address at which that client finds its broker; `None` beyond the plan's room.
#[must_use]
pub fn server(arm: usize, index: u32) -> Option<Ipv4Addr> {
    pair(128, arm, index)
}

/// The network that is local to an arm's client namespace, as address and prefix length.
#[must_use]
pub fn client_network(arm: usize) -> Option<(Ipv4Addr, u8)> {
    let second = 64 + u8::try_from(arm).ok().filter(|_| arm < MAX_ARMS)?;
    Some((Ipv4Addr::new(10, second, 0, 0), 16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn corners_of_the_address_plan() {
        assert_eq!(client(0, 0), Some(Ipv4Addr::new(10, 64, 128, 1)));
        assert_eq!(server(0, 0), Some(Ipv4Addr::new(10, 128, 128, 1)));
        assert_eq!(client(63, MAX_TRIALS - 1), Some(Ipv4Addr::new(10, 127, 247, 250)));
        assert_eq!(server(63, MAX_TRIALS - 1), Some(Ipv4Addr::new(10, 191, 247, 250)));
        assert_eq!(client(64, 0), None);
        assert_eq!(server(0, MAX_TRIALS), None);
        assert_eq!(client_network(63), Some((Ipv4Addr::new(10, 127, 0, 0), 16)));
        assert_eq!(client_network(64), None);
    }

    #[test]
    fn no_two_trials_share_an_address() {
        let all: HashSet<_> = (0..MAX_TRIALS).flat_map(|j| [client(7, j), server(7, j)]).collect();
        assert_eq!(all.len(), 2 * MAX_TRIALS as usize);
    }
}
