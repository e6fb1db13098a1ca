//! A queue of evaluations: the standard path's call is synchronous, so one thread makes it for submitted requests, in order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ferrane_device::{Error, ErrorKind, Result};

type Job = Box<dyn FnOnce() + Send>;

/// The queue. Its thread starts with the first job and ends with the queue, after the jobs in it.
pub(crate) struct Queue {
    depth: usize,
    pending: Arc<AtomicUsize>,
    jobs: Mutex<Option<Sender<Job>>>,
}

impl Queue {
    /// A queue of at most `depth` jobs.
    pub(crate) fn new(depth: usize) -> Queue {
        Queue { depth, pending: Arc::default(), jobs: Mutex::new(None) }
    }

    /// Takes a place, and starts the thread that will serve it.
    ///
    /// # Errors
    /// [`ErrorKind::QueueFull`], or [`ErrorKind::System`] if there is no thread to be had.
    pub(crate) fn reserve(&self) -> Result<Place> {
        let more = |n: usize| (n < self.depth).then_some(n + 1);
        match self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => {
                let place = Place(self.pending.clone());
                self.start()?;
                Ok(place)
            }
            Err(_) => Err(Error::new(ErrorKind::QueueFull, format!("the queue holds {} requests", self.depth))),
        }
    }

    fn start(&self) -> Result<()> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.is_none() {
            let (sender, receiver) = channel::<Job>();
            // A job that panics is a bug of ours; the jobs behind it are served all the same.
            let serve = move || {
                receiver.into_iter().for_each(|job| drop(catch_unwind(AssertUnwindSafe(job))));
            };
            thread::Builder::new()
                .name("ferrane-ane".into())
                .spawn(serve)
                .map_err(|e| Error::new(ErrorKind::System, "no thread for the engine's queue").with_source(e))?;
            *jobs = Some(sender);
        }
        Ok(())
    }

    /// Queues a job, for which there must be a place. A job that the thread can no longer take is dropped, which its submission
    /// sees.
    pub(crate) fn push(&self, job: Job) {
        if let Some(sender) = &*self.jobs.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = sender.send(job);
        }
    }
}

/// A place in the queue, given back when dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_ends_nothing_but_itself() {
        let queue = Queue::new(2);
        let (done, told) = channel();
        let places = [queue.reserve().unwrap(), queue.reserve().unwrap()];
        assert_eq!(queue.reserve().map(|_| ()).unwrap_err().kind(), ErrorKind::QueueFull);
        let [first, second] = places;
        queue.push(Box::new(move || {
            let _place = first;
            panic!("on purpose");
        }));
        queue.push(Box::new(move || {
            drop(second);
            let _ = done.send(());
        }));
        assert!(told.recv_timeout(std::time::Duration::from_secs(10)).is_ok());
        assert!(queue.reserve().is_ok());
    }
}
