//! The sequences that wait for a slot, shared by the threads that accept requests and the one that
//! owns the model.
//!
//! Clients take turns: each client has a queue of its own, and the next sequence is the first of
//! the client that has waited longest for its turn. A client that sends many requests so delays its
//! own, and those of others by at most one each.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::job::Job;

/// Who sent a request: clients take turns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Client {
    /// By the index of its API key.
    Key(usize),
    Address(std::net::IpAddr),
    /// By nothing: the request came through the router of a caller.
    Unknown,
}

/// How far the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Open,
    /// No request is accepted; those accepted finish.
    Draining,
    Stopped,
}

/// Why jobs were not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueRefusal {
    /// As many sequences as allowed wait already.
    Full(usize),
    /// The server is ending.
    Ending,
}

pub struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    limit: usize,
}

struct QueueState {
    phase: Phase,
    /// The clients that have jobs, the one whose turn is next first.
    clients: VecDeque<(Client, VecDeque<Job>)>,
    waiting: usize,
}

impl Queue {
    /// An empty queue of at most `limit` sequences.
    pub fn new(limit: usize) -> Queue {
        let state = QueueState { phase: Phase::Open, clients: VecDeque::new(), waiting: 0 };
        Queue { state: Mutex::new(state), changed: Condvar::new(), limit }
    }

    /// A thread that panics holds no half-changed state: every change below is complete before
    /// anything can panic.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends all jobs of a request, or none.
    pub fn push(&self, client: &Client, jobs: Vec<Job>) -> Result<(), QueueRefusal> {
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(QueueRefusal::Ending);
        }
        if state.waiting + jobs.len() > self.limit {
            // Clients that have left make room first.
            state.retain(|job| !job.is_abandoned());
        }
        if state.waiting + jobs.len() > self.limit {
            return Err(QueueRefusal::Full(state.waiting));
        }
        state.waiting += jobs.len();
        match state.clients.iter_mut().find(|(name, _)| name == client) {
            Some((_, queue)) => queue.extend(jobs),
            None => state.clients.push_back((client.clone(), jobs.into())),
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes the next job.
    pub fn pop(&self) -> Option<Job> {
        let mut state = self.lock();
        let (client, mut queue) = state.clients.pop_front()?;
        let job = queue.pop_front();
        if !queue.is_empty() {
            state.clients.push_back((client, queue));
        }
        state.waiting -= usize::from(job.is_some());
        job
    }

    /// Takes out the jobs that need not be computed any more.
    pub fn sweep(&self, now: Instant) -> Vec<Job> {
        let mut out = Vec::new();
        let mut state = self.lock();
        if state.waiting > 0 {
            state.take_if(|job| job.is_abandoned() || job.deadline <= now, &mut out);
        }
        out
    }

    /// Waits until there may be a job or the phase changes, at most for `time`.
    pub fn wait(&self, time: Option<Duration>) {
        let state = self.lock();
        if state.waiting > 0 || (state.phase != Phase::Open && time.is_none()) {
            return;
        }
        match time {
            // Spurious wakeups are harmless: the caller looks again.
            None => drop(self.changed.wait(state)),
            Some(time) => drop(self.changed.wait_timeout(state, time)),
        }
    }

    /// Number of sequences that wait.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// How far the server is.
    pub fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Ends the server by one more step; a phase never goes back.
    pub fn advance(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = state.phase.max(phase);
        drop(state);
        self.changed.notify_all();
    }

    pub fn drain(&self) -> Vec<Job> {
        let mut state = self.lock();
        state.waiting = 0;
        std::mem::take(&mut state.clients).into_iter().flat_map(|(_, queue)| queue).collect()
    }
}

impl QueueState {
    fn retain(&mut self, keep: impl Fn(&Job) -> bool) {
        self.take_if(|job| !keep(job), &mut Vec::new());
    }

    fn take_if(&mut self, taken: impl Fn(&Job) -> bool, out: &mut Vec<Job>) {
        for (_, queue) in &mut self.clients {
            if queue.iter().any(&taken) {
                let (gone, stay): (Vec<Job>, Vec<Job>) = std::mem::take(queue).into_iter().partition(|job| taken(job));
                self.waiting -= gone.len();
                out.extend(gone);
                *queue = stay.into();
            }
        }
        self.clients.retain(|(_, queue)| !queue.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(choice: usize) -> (Job, tokio::sync::mpsc::Receiver<super::super::job::Event>) {
        Job::for_tests(choice)
    }

    #[test]
    fn clients_take_turns() {
        let queue = Queue::new(10);
        let (a, b) = (Client::Key(0), Client::Key(1));
        let (jobs, _receivers): (Vec<_>, Vec<_>) = (0..6).map(job).unzip();
        let mut jobs = jobs.into_iter();
        queue.push(&a, jobs.by_ref().take(4).collect()).unwrap();
        queue.push(&b, jobs.collect()).unwrap();
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|job| job.choice).collect();
        assert_eq!(order, [0, 4, 1, 5, 2, 3]);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_full_queue_refuses_all_jobs_of_a_request() {
        let queue = Queue::new(2);
        let (first, mut receiver) = job(0);
        queue.push(&Client::Unknown, vec![first]).unwrap();
        let ((second, _r2), (third, _r3)) = (job(1), job(2));
        assert_eq!(queue.push(&Client::Unknown, vec![second, third]), Err(QueueRefusal::Full(1)));
        // The first client leaves, which makes room.
        receiver.close();
        let ((second, _r2), (third, _r3)) = (job(1), job(2));
        assert_eq!(queue.push(&Client::Unknown, vec![second, third]), Ok(()));
        assert_eq!(queue.waiting(), 2);
        assert_eq!(queue.sweep(Instant::now()).len(), 0);
        assert_eq!(queue.sweep(Instant::now() + Duration::from_secs(3600)).len(), 2);
        queue.advance(Phase::Stopped);
        queue.advance(Phase::Draining);
        assert_eq!(queue.phase(), Phase::Stopped);
        assert_eq!(queue.push(&Client::Unknown, vec![job(3).0]), Err(QueueRefusal::Ending));
    }
}
