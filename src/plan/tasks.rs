//! Which of many tasks meet a half-open connection: drawn once, the same ones for every arm and fault.

use super::address::MAX_TRIALS;
use crate::scenario::Tasks;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// When each affected task is handed over, from the start of the run, in order. At most one more than a plan has room
/// for, so that too many are noticed without being made.
///
/// Each task is affected with the same probability p, independently: the gaps between affected ones are geometric,
/// ⌊ln U / ln(1 − p)⌋, which needs one draw an affected task instead of one a task.
#[must_use]
pub fn affected(seed: u64, tasks: &Tasks) -> Vec<Duration> {
    let mut hash = Sha256::new();
    hash.update(b"halfopen tasks 1\0");
    hash.update(seed.to_le_bytes());
    let mut generator = ChaCha12Rng::from_seed(hash.finalize().into());
    let mut times = Vec::new();
    let mut next = 0u64;
    let scale = (1.0 - tasks.half_open).ln();
    while times.len() <= MAX_TRIALS as usize {
        let uniform = ((generator.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        // p = 1 makes the scale minus infinity and every gap zero.
        let gap = (uniform.ln() / scale).floor();
        if gap >= (tasks.count - next) as f64 {
            break;
        }
        let task = next + gap as u64;
        times.push(tasks.over.mul_f64(task as f64 / tasks.count as f64));
        next = task + 1;
        if next >= tasks.count {
            break;
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(count: u64, half_open: f64) -> Tasks {
        Tasks { count, over: Duration::from_secs(1000), half_open }
    }

    #[test]
    fn as_many_as_expected_and_spread_over_the_time() {
        // 4,000 expected; 5 standard deviations are 300.
        let times = affected(3, &tasks(20_000, 0.2));
        assert!((3_700..=4_300).contains(&times.len()), "{}", times.len());
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]) && times[times.len() - 1] < Duration::from_secs(1000));
        let early = times.iter().filter(|t| t.as_secs() < 500).count();
        assert!((1_800..=2_200).contains(&early), "{early}");
    }

    #[test]
    fn all_of_them_few_of_them_and_too_many() {
        assert_eq!(affected(1, &tasks(5, 1.0)).len(), 5);
        assert_eq!(affected(1, &tasks(1_000_000_000, 1.0)).len(), MAX_TRIALS as usize + 1);
        let runs: usize = (0..200).map(|seed| affected(seed, &tasks(200_000, 0.000_015)).len()).sum();
        // 600 expected over 200 runs; 5 standard deviations are 122.
        assert!((478..=722).contains(&runs), "{runs}");
    }
}
