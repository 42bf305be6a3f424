//! Work done by several threads at once, with the results in the order of the work.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does the work with so many threads; begins nothing more once `last` says so of a result. With one job everything
/// happens on the calling thread.
pub fn side_by_side<T: Sync, R: Send + Sync>(
    all: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
    last: impl Fn(&R) -> bool + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<OnceLock<R>> = all.iter().map(|_| OnceLock::new()).collect();
    let serve = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(one), Some(place)) = (all.get(at), results.get(at)) else { return };
            let result = work(one);
            if last(&result) {
                next.store(all.len(), Ordering::Relaxed);
            }
            let _ = place.set(result);
        }
    };
    if jobs <= 1 {
        serve();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..jobs.min(all.len()) {
                scope.spawn(serve);
            }
        });
    }
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_the_last_one_ends_it() {
        let all: Vec<u32> = (0..50).collect();
        assert_eq!(side_by_side(&all, 4, |n| n * 2, |_| false), (0..50).map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(side_by_side(&all, 1, |n| *n, |n| *n == 3), [0, 1, 2, 3]);
        assert!(side_by_side(&all, 3, |n| *n, |n| *n == 3).len() < 50);
    }
}
