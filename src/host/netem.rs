//! The kernel's network emulator as a queueing discipline: what it is told, byte for byte.
//!
//! Source: `struct tc_netem_qopt` and the `TCA_NETEM_*` attributes of `include/uapi/linux/pkt_sched.h`, read by
//! `netem_change` in `net/sched/sch_netem.c`. Left out: correlations, duplication, corruption, delay tables, slots.

use std::time::Duration;

/// What happens to each packet that leaves through a link.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Netem {
    /// How long it waits.
    pub delay: Duration,
    /// By how much that differs, uniformly, either way.
    pub jitter: Duration,
    /// The share that is dropped, 0 to 1.
    pub loss: f64,
    /// The share that does not wait, 0 to 1.
    pub reorder: f64,
    /// Bytes a second; none: no limit.
    pub rate_bytes: Option<u64>,
}

/// The discipline's name.
pub const KIND: &str = "netem";

/// Packets that it may hold: more than any lab has on its way, so that it drops none of its own accord.
const LIMIT: u32 = 1_000_000;

const REORDER: u16 = 3;
const RATE: u16 = 6;
const RATE64: u16 = 8;
const LATENCY64: u16 = 10;
const JITTER64: u16 = 11;

impl Netem {
    /// The value of `TCA_OPTIONS`.
    #[must_use]
    pub fn options(&self) -> Vec<u8> {
        // The kernel goes by the gap: every packet is a candidate for overtaking, with the probability below.
        let gap = u32::from(self.reorder > 0.0);
        // In the order of the struct: latency, limit, loss, gap, duplicate, jitter. Both times follow in nanoseconds.
        let mut bytes: Vec<u8> =
            [0, LIMIT, chance(self.loss), gap, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        attribute(&mut bytes, LATENCY64, &nanoseconds(self.delay).to_ne_bytes());
        attribute(&mut bytes, JITTER64, &nanoseconds(self.jitter).to_ne_bytes());
        if self.reorder > 0.0 {
            attribute(&mut bytes, REORDER, &pair(chance(self.reorder), 0));
        }
        if let Some(rate) = self.rate_bytes {
            // `struct tc_netem_rate`: bytes a second, packet overhead, cell size, cell overhead.
            let short = u32::try_from(rate).unwrap_or(u32::MAX);
            attribute(&mut bytes, RATE, &[pair(short, 0), pair(0, 0)].concat());
            if u64::from(short) < rate {
                attribute(&mut bytes, RATE64, &rate.to_ne_bytes());
            }
        }
        bytes
    }
}

/// A probability as the kernel compares it with 32 random bits.
fn chance(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(u32::MAX)).round() as u32
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn pair(a: u32, b: u32) -> Vec<u8> {
    [a.to_ne_bytes(), b.to_ne_bytes()].concat()
}

/// An attribute of netlink; all values here are multiples of four bytes.
fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // The longest value has 16 bytes.
    let length = 4 + value.len() as u16;
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::nlmsg;

    #[test]
    fn the_struct_comes_first_and_the_attributes_after() {
        let netem = Netem {
            delay: Duration::from_millis(50),
            jitter: Duration::from_micros(1500),
            loss: 0.3,
            reorder: 0.25,
            rate_bytes: Some(125_000),
        };
        let bytes = netem.options();
        let word = |at: usize| nlmsg::u32_ne(&bytes, 4 * at).unwrap();
        assert_eq!((word(0), word(1), word(3), word(4), word(5)), (0, LIMIT, 1, 0, 0));
        assert!((f64::from(word(2)) / 4_294_967_295.0 - 0.3).abs() < 1e-9);
        let found: Vec<(u16, Vec<u8>)> = nlmsg::attributes(&bytes[24..]).map(|(k, v)| (k, v.to_vec())).collect();
        let kinds: Vec<u16> = found.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [LATENCY64, JITTER64, REORDER, RATE]);
        assert_eq!(found[0].1, 50_000_000i64.to_ne_bytes());
        assert_eq!(found[3].1[..4], 125_000u32.to_ne_bytes());
        assert_eq!(found[3].1.len(), 16);
    }

    #[test]
    fn what_is_not_asked_for_is_not_there() {
        let bytes = Netem { delay: Duration::from_millis(1), ..Netem::default() }.options();
        assert_eq!(bytes.len(), 24 + 12 + 12);
        assert_eq!(nlmsg::u32_ne(&bytes, 12), Some(0));
        let fast = Netem { rate_bytes: Some(6_000_000_000), ..Netem::default() }.options();
        assert_eq!(nlmsg::attribute(&fast[24..], RATE64), Some(&6_000_000_000u64.to_ne_bytes()[..]));
    }

    #[test]
    fn certain_is_all_bits() {
        assert_eq!((chance(0.0), chance(1.0), chance(2.0)), (0, u32::MAX, u32::MAX));
    }
}
