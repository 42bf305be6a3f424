//! The kernel's token bucket as a queueing discipline: a rate, byte for byte.
//!
//! Source: `struct tc_tbf_qopt` and the `TCA_TBF_*` attributes of `include/uapi/linux/pkt_sched.h`, read by `tbf_change`
//! in `net/sched/sch_tbf.c`. Left out: a peak rate.

/// The discipline's name.
pub const KIND: &str = "tbf";

const PARAMETERS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: the kernel computes with the rate itself and needs no table.
const ETHERNET: u8 = 1;
/// Bytes that may wait: more than a lab's connections have on their way, so that it drops none of its own accord.
const LIMIT: u32 = 64 << 20;
/// The least bucket: two full segments, or nothing would ever fit.
const LEAST_BURST: u64 = 3_200;

/// The value of `TCA_OPTIONS` for so many bytes a second. The bucket holds 10 ms of them.
#[must_use]
pub fn options(rate_bytes: u64) -> Vec<u8> {
    let short = u32::try_from(rate_bytes).unwrap_or(u32::MAX);
    let burst = u32::try_from((rate_bytes / 100).max(LEAST_BURST)).unwrap_or(u32::MAX);
    // `struct tc_ratespec`: cell_log, linklayer, overhead, cell_align, mpu, rate.
    let mut parameters = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    parameters.extend(short.to_ne_bytes());
    // No peak rate; then limit, buffer (which the burst below stands for) and mtu.
    parameters.extend([0; 12]);
    for word in [LIMIT, 0, 0] {
        parameters.extend(word.to_ne_bytes());
    }
    let mut bytes = Vec::new();
    attribute(&mut bytes, PARAMETERS, &parameters);
    attribute(&mut bytes, BURST, &burst.to_ne_bytes());
    if u64::from(short) < rate_bytes {
        attribute(&mut bytes, RATE64, &rate_bytes.to_ne_bytes());
    }
    bytes
}

/// An attribute of netlink; all values here are multiples of four bytes.
fn attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // The longest value has 36 bytes.
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::nlmsg::{attribute, u32_ne};

    #[test]
    fn the_parameters_are_a_struct_of_36_bytes() {
        let bytes = options(125_000);
        let parameters = attribute(&bytes, PARAMETERS).unwrap();
        assert_eq!((parameters.len(), u32_ne(parameters, 8), u32_ne(parameters, 24)), (36, Some(125_000), Some(LIMIT)));
        assert_eq!(attribute(&bytes, BURST).map(<[u8]>::to_vec), Some(3_200u32.to_ne_bytes().to_vec()));
        let fast = options(6_000_000_000);
        assert_eq!(attribute(&fast, RATE64).map(<[u8]>::to_vec), Some(6_000_000_000u64.to_ne_bytes().to_vec()));
    }
}
