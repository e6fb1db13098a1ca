//! A queue of evaluations: the standard path's call is synchronous, so one thread makes it for submitted requests, in order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

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

    /// Takes a place.
    ///
    /// # Errors
    /// [`ErrorKind::QueueFull`].
    pub(crate) fn reserve(&self) -> Result<Place> {
        let more = |n: usize| (n < self.depth).then_some(n + 1);
        match self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Place(self.pending.clone())),
            Err(_) => Err(Error::new(ErrorKind::QueueFull, format!("the queue holds {} requests", self.depth))),
        }
    }

    /// Queues a job. A job that the thread can no longer take is dropped, which its submission sees.
    pub(crate) fn push(&self, job: Job) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = jobs.get_or_insert_with(|| {
            let (sender, receiver) = channel::<Job>();
            std::thread::spawn(move || receiver.into_iter().for_each(|job| job()));
            sender
        });
        let _ = sender.send(job);
    }
}

/// A place in the queue, given back when dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
