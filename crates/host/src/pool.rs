//! The thread pool: rayon's global pool, reached through a few calls that cut work by size alone.
//!
//! Invariant: the pieces a caller sees depend on the problem's size and on the piece size it names,
//! never on how many threads there are. A sum over pieces therefore has the same bits on every
//! machine.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::sync;

pub use rayon::Scope;

/// Number of threads of the pool.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Runs both, perhaps at the same time, and returns both results.
pub fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    rayon::join(a, b)
}

/// Calls `task` for `0..n` cut into ranges of `per_task` indices (the last may be shorter).
///
/// `per_task` 0 counts as 1. One range runs on the calling thread.
pub fn for_each_range(n: usize, per_task: usize, task: impl Fn(Range<usize>) + Sync) {
    let per_task = per_task.max(1);
    if n <= per_task {
        if n > 0 {
            task(0..n);
        }
        return;
    }
    let tasks = n.div_ceil(per_task);
    let (shares, team) = (Shares::of(tasks), Team::default());
    (0..threads().min(tasks)).into_par_iter().with_max_len(1).for_each(|worker| {
        team.work(|| {
            while let Some(i) = shares.next(worker % shares.count) {
                task(i * per_task..n.min((i + 1) * per_task));
            }
        });
    });
}

/// As [`for_each_range`], with tasks that may fail.
///
/// # Errors
/// An error of one of the tasks; the others run all the same.
pub fn try_for_each_range<E: Send>(
    n: usize,
    per_task: usize,
    task: impl Fn(Range<usize>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let failed = std::sync::Mutex::new(None);
    for_each_range(n, per_task, |range| {
        if let Err(error) = task(range) {
            *sync::lock(&failed) = Some(error);
        }
    });
    sync::into_inner(failed).map_or(Ok(()), Err)
}

/// The number of threads that work on one parallel loop at this time.
#[derive(Default)]
struct Team(AtomicUsize);

impl Team {
    /// Runs `work`, then spins until no thread of the team works or [`SPIN_LIMIT`] has passed: the
    /// others usually finish before this thread could park and be woken. A thread that has not
    /// begun finds no task left and is not waited for.
    fn work(&self, work: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::Relaxed);
        {
            let _leave = LeaveTeam(&self.0);
            work();
        }
        let mut since = None;
        while self.0.load(Ordering::Acquire) > 0 && since.get_or_insert_with(Instant::now).elapsed() < SPIN_LIMIT {
            if rayon::yield_now() != Some(rayon::Yield::Executed) {
                std::thread::yield_now();
            }
        }
    }
}

/// Counts the thread out on drop, after a panic too.
struct LeaveTeam<'a>(&'a AtomicUsize);

impl Drop for LeaveTeam<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Tasks in one share of neighboring indices for each thread. A thread takes the tasks of its own
/// share from the front, then steals from the back of the share with the most tasks left:
/// neighboring tasks stay on one thread, and at the end no thread waits for more than one task.
struct Shares {
    shares: [Share; SHARES],
    count: usize,
}

/// The most shares, which lie on the stack. If there are more threads, some threads have a share in
/// common.
const SHARES: usize = 64;

/// Neighboring tasks. Every claim counts in `claimed`, so that claims from the front and from the
/// back never overlap.
#[derive(Default)]
struct Share {
    begin: usize,
    end: usize,
    claimed: AtomicUsize,
    front: AtomicUsize,
    back: AtomicUsize,
}

impl Shares {
    fn of(tasks: usize) -> Self {
        let count = threads().min(SHARES).min(tasks);
        let shares = std::array::from_fn(|i| {
            let at = |i: usize| tasks / count * i + (tasks % count).min(i);
            if i < count { Share { begin: at(i), end: at(i + 1), ..Share::default() } } else { Share::default() }
        });
        Self { shares, count }
    }

    /// A task that no other thread gets, if possible the next one of share `own`; `None` when all
    /// are taken.
    fn next(&self, own: usize) -> Option<usize> {
        self.shares[own].first().or_else(|| {
            loop {
                let most = self.shares[..self.count].iter().max_by_key(|share| share.left())?;
                if most.left() == 0 {
                    return None;
                }
                if let Some(task) = most.last() {
                    return Some(task);
                }
            }
        })
    }
}

impl Share {
    fn left(&self) -> usize {
        (self.end - self.begin).saturating_sub(self.claimed.load(Ordering::Relaxed))
    }

    /// Whether a task is left; if so, the caller owns one.
    fn claim(&self) -> bool {
        self.left() > 0 && self.claimed.fetch_add(1, Ordering::Relaxed) < self.end - self.begin
    }

    fn first(&self) -> Option<usize> {
        self.claim().then(|| self.begin + self.front.fetch_add(1, Ordering::Relaxed))
    }

    fn last(&self) -> Option<usize> {
        self.claim().then(|| self.end - 1 - self.back.fetch_add(1, Ordering::Relaxed))
    }
}

/// Calls `task(i, chunk)` for the `i`-th chunk of `chunk` elements (the last may be shorter).
/// `chunk` 0 counts as 1.
pub fn for_each_chunk_mut<T: Send>(data: &mut [T], chunk: usize, task: impl Fn(usize, &mut [T]) + Sync) {
    let chunk = chunk.max(1);
    if data.len() <= chunk {
        if !data.is_empty() {
            task(0, data);
        }
        return;
    }
    data.par_chunks_mut(chunk).enumerate().for_each(|(i, piece)| task(i, piece));
}

/// As [`for_each_chunk_mut`], with tasks that may fail.
///
/// # Errors
/// An error of one of the tasks; the others run all the same.
pub fn try_for_each_chunk_mut<T: Send, E: Send>(
    data: &mut [T],
    chunk: usize,
    task: impl Fn(usize, &mut [T]) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let failed = std::sync::Mutex::new(None);
    for_each_chunk_mut(data, chunk, |i, piece| {
        if let Err(error) = task(i, piece) {
            *sync::lock(&failed) = Some(error);
        }
    });
    sync::into_inner(failed).map_or(Ok(()), Err)
}

/// [`for_each_chunk_mut`] over two slices of the same length, cut at the same places.
///
/// # Panics
/// If the lengths differ.
pub fn for_each_chunk_mut2<A: Send, B: Send>(
    a: &mut [A],
    b: &mut [B],
    chunk: usize,
    task: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    assert_eq!(a.len(), b.len(), "slices cut together have one length");
    for_each_chunk_pair_mut((a, chunk), (b, chunk), task);
}

/// [`for_each_chunk_mut`] over two slices that are cut into chunks of different sizes: chunk `i` of
/// one goes with chunk `i` of the other. Chunks without a counterpart are left alone. A size of 0
/// counts as 1.
pub fn for_each_chunk_pair_mut<A: Send, B: Send>(
    (a, a_chunk): (&mut [A], usize),
    (b, b_chunk): (&mut [B], usize),
    task: impl Fn(usize, &mut [A], &mut [B]) + Sync,
) {
    let (a_chunk, b_chunk) = (a_chunk.max(1), b_chunk.max(1));
    if a.len() <= a_chunk && b.len() <= b_chunk {
        if !a.is_empty() && !b.is_empty() {
            task(0, a, b);
        }
        return;
    }
    let pieces = a.par_chunks_mut(a_chunk).zip(b.par_chunks_mut(b_chunk)).enumerate();
    pieces.for_each(|(i, (a, b))| task(i, a, b));
}

/// [`for_each_chunk_mut`] over three slices of the same length, cut at the same places.
///
/// # Panics
/// If the lengths differ.
pub fn for_each_chunk_mut3<A: Send, B: Send, C: Send>(
    a: &mut [A],
    b: &mut [B],
    c: &mut [C],
    chunk: usize,
    task: impl Fn(usize, &mut [A], &mut [B], &mut [C]) + Sync,
) {
    assert!(a.len() == b.len() && b.len() == c.len(), "slices cut together have one length");
    let chunk = chunk.max(1);
    a.par_chunks_mut(chunk)
        .zip(b.par_chunks_mut(chunk))
        .zip(c.par_chunks_mut(chunk))
        .enumerate()
        .for_each(|(i, ((a, b), c))| task(i, a, b, c));
}

/// Calls `task` for each of `tasks`, which may differ much in size: each one can run on another
/// thread.
pub fn for_each_task<T: Send>(tasks: &mut [T], task: impl Fn(&mut T) + Sync) {
    tasks.par_iter_mut().with_max_len(1).for_each(&task);
}

/// Calls `work` on a thread of the pool, so that the thread that waits for its parallel parts also
/// works on them. Jobs that `work` spawns into the scope run alongside it on idle threads; the call
/// returns when they are done too.
///
/// Some threads spin instead of parking meanwhile, because a parallel part of `work` may be shorter
/// than the time it takes to wake a thread. Allocates nothing.
pub fn scope<'a, R: Send>(work: impl FnOnce(&rayon::Scope<'a>) -> R + Send) -> R {
    let spinners = Spinners { done: AtomicBool::new(false), first: AtomicUsize::new(usize::MAX) };
    rayon::scope(|scope| {
        spinners.first.store(thread_index().unwrap_or(usize::MAX), Ordering::Relaxed);
        let work = || {
            let _end = EndOfWork(&spinners.done);
            work(scope)
        };
        if threads() == 1 { work() } else { rayon::join(work, || spinners.spin_on(SPINNING.min(threads() - 1))).0 }
    })
}

/// The most threads that [`scope`] lets spin: more of them cost more than they save.
const SPINNING: usize = 7;

/// The longest that a thread spins without finding work. Its stack may lie on top of a job that
/// waits for another thread, so it must not wait for the end of the scope.
const SPIN_LIMIT: Duration = Duration::from_micros(200);

/// State of the threads that [`scope`] lets spin.
struct Spinners {
    done: AtomicBool,
    /// Index of the thread that runs the work.
    first: AtomicUsize,
}

impl Spinners {
    /// Lets this thread and `more - 1` others spin.
    fn spin_on(&self, more: usize) {
        if thread_index() == Some(self.first.load(Ordering::Relaxed)) {
            return;
        }
        if more > 1 {
            rayon::join(|| self.spin(), || self.spin_on(more - 1));
        } else {
            self.spin();
        }
    }

    fn spin(&self) {
        let mut since = Instant::now();
        while !self.done.load(Ordering::Acquire) && since.elapsed() < SPIN_LIMIT {
            if rayon::yield_now() == Some(rayon::Yield::Executed) {
                since = Instant::now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Marks the end of a scope's work on drop, after a panic too.
struct EndOfWork<'a>(&'a AtomicBool);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Index of this thread in the pool, `None` outside of it.
pub fn thread_index() -> Option<usize> {
    rayon::current_thread_index()
}

/// Maps ranges of at most `per_task` indices of `0..n` and combines the results in a tree whose
/// form depends on `n` and `per_task` alone: the bits do not depend on the thread count. `None` for
/// `n` = 0.
pub fn reduce<T: Send>(
    n: usize,
    per_task: usize,
    map: impl Fn(Range<usize>) -> T + Sync,
    combine: impl Fn(T, T) -> T + Sync,
) -> Option<T> {
    fn tree<T: Send>(
        tasks: Range<usize>,
        leaf: &(impl Fn(usize) -> T + Sync),
        combine: &(impl Fn(T, T) -> T + Sync),
    ) -> T {
        if tasks.len() <= 1 {
            return leaf(tasks.start);
        }
        let middle = tasks.start + tasks.len() / 2;
        let (a, b) =
            rayon::join(|| tree(tasks.start..middle, leaf, combine), || tree(middle..tasks.end, leaf, combine));
        combine(a, b)
    }
    let per_task = per_task.max(1);
    let leaf = |i: usize| map(i * per_task..n.min((i + 1) * per_task));
    (n > 0).then(|| tree(0..n.div_ceil(per_task), &leaf, &combine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn ranges_cover_once_and_ignore_threads() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let seen = Mutex::new(Vec::new());
            pool.install(|| for_each_range(1003, 100, |r| seen.lock().unwrap().push((r.start, r.end))));
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            let want: Vec<_> = (0..11).map(|i| (i * 100, 1003.min(i * 100 + 100))).collect();
            assert_eq!(seen, want);
        }
        for_each_range(0, 0, |_| unreachable!());
    }

    #[test]
    fn shares_are_emptied_from_both_ends_and_each_task_is_one_s() {
        // More threads than shares, too, and tasks of which a few take long.
        for threads in [1, 2, 3, SHARES + 6] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for n in [2, threads, 10 * threads + 3, 5000] {
                let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                pool.install(|| {
                    for_each_range(n, 1, |range| {
                        if range.start % 97 == 0 {
                            std::thread::sleep(Duration::from_micros(50));
                        }
                        assert_eq!(range.len(), 1);
                        seen[range.start].fetch_add(1, Ordering::Relaxed);
                    })
                });
                assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{n} tasks, {threads} threads");
            }
        }
        let share = Share { begin: 3, end: 6, ..Share::default() };
        assert_eq!(
            [share.first(), share.last(), share.first(), share.last(), share.first()],
            [Some(3), Some(5), Some(4), None, None]
        );
    }

    #[test]
    fn work_inside_work_ends_and_a_panic_reaches_the_caller() {
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let count = AtomicUsize::new(0);
            let inner = |n: usize| for_each_range(n, 1, |_| _ = count.fetch_add(1, Ordering::Relaxed));
            pool.install(|| for_each_range(40, 1, |range| inner(range.start)));
            assert_eq!(count.load(Ordering::Relaxed), (0..40).sum::<usize>());
            let fails = || for_each_range(40, 1, |range| assert_ne!(range.start, 17, "the seventeenth"));
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.install(fails)));
            assert!(caught.is_err());
            // A thread that left by a panic is not counted.
            let team = Team::default();
            let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| team.work(|| panic!("left"))));
            assert!(left.is_err() && team.0.load(Ordering::Relaxed) == 0);
        }
    }

    #[test]
    fn more_threads_than_shares_all_work() {
        let threads = SHARES + 6;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let begun = AtomicUsize::new(0);
        // No thread continues before all have begun, or long after.
        pool.install(|| {
            for_each_range(threads, 1, |_| {
                let since = Instant::now();
                begun.fetch_add(1, Ordering::Relaxed);
                while begun.load(Ordering::Relaxed) < threads {
                    assert!(since.elapsed() < Duration::from_secs(20), "only {begun:?} of {threads}");
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        });
    }

    #[test]
    fn chunks_know_their_index() {
        let mut data = vec![0usize; 25];
        for_each_chunk_mut(&mut data, 4, |i, c| c.fill(i));
        assert!(data.iter().enumerate().all(|(i, &v)| v == i / 4));
        let (mut a, mut b, mut c) = (vec![0; 9], vec![0; 9], vec![0; 9]);
        for_each_chunk_mut3(&mut a, &mut b, &mut c, 2, |i, a, b, c| {
            (a[0], b[0], c[0]) = (i, 2 * i, 3 * i);
        });
        assert_eq!((a[8], b[8], c[8]), (4, 8, 12));
        // Five chunks of `a`, four of `b`.
        let mut pair = vec![0; 9];
        for_each_chunk_pair_mut((&mut pair, 2), (&mut b[..7], 2), |i, a, b| (a[0], b[0]) = (10 + i, 20 + i));
        assert_eq!((pair, b[6]), (vec![10, 0, 11, 0, 12, 0, 13, 0, 0], 23));
        for_each_chunk_pair_mut((&mut b[..1], 2), (&mut c[..3], 3), |i, b, c| (b[0], c[2]) = (30 + i, 40));
        assert_eq!((b[0], c[2]), (30, 40));
        for_each_chunk_pair_mut((&mut b[..0], 2), (&mut c, 9), |_, _, _| unreachable!());
        for_each_task(&mut a, |a| *a += 1);
        assert_eq!((a[0], a[8]), (1, 5));
        let (inside, outside) = (scope(|_| thread_index()), thread_index());
        assert!(inside.is_some() && outside.is_none());
    }

    #[test]
    fn scopes_end_beside_and_inside_others() {
        let sum = || {
            scope(|s| {
                let inner = scope(|_| reduce(10_000, 10, |r| r.sum::<usize>(), |a, b| a + b));
                s.spawn(|_| for_each_range(100, 1, |_| ()));
                inner
            })
        };
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let all = |n: usize| (0..n).for_each(|_| assert_eq!(pool.install(sum), Some(10_000 * 9_999 / 2)));
            std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(|| all(50)))));
            let panics = pool.install(|| std::panic::catch_unwind(|| scope(|_| panic!("a panic of a scope's work"))));
            assert!(panics.is_err());
            all(5);
        }
    }

    #[test]
    fn reduction_has_one_order() {
        let values: Vec<f32> =
            (0..10_007).map(|i| ((i * 7919) % 1000) as f32 * 1.37e-3 + 1e4 / (i + 1) as f32).collect();
        let sum = || reduce(values.len(), 64, |r| values[r].iter().sum::<f32>(), |a, b| a + b).unwrap();
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(sum);
        let many = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap().install(sum);
        assert_eq!(one.to_bits(), many.to_bits());
        assert!(reduce(0, 1, |_| 0, |a, b| a + b).is_none());
    }
}
