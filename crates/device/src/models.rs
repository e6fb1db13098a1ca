//! Loom models of the queue, of submissions and of a program's life. Loom runs them through every
//! order of their steps, and reports deadlocks and unsynchronized accesses (CONTRIBUTING.md).
//!
//! Locks, counters and threads are loom's here. The access state of surfaces is modeled in
//! `ferrane-host`, where it is defined.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::thread;

use crate::backend::{Accesses, Done, Prepared, Stats};
use crate::executable::Life;
use crate::queue::Queue;
use crate::submission::CompletionSlot;
use crate::{Bindings, Error, ErrorKind, Procedure, Request, Result, Submission};

/// A request that does nothing, on a queue.
struct Nothing(loom::sync::Arc<Queue>);

impl Prepared for Nothing {
    fn evaluate(&self, _: &mut Accesses) -> Result<Stats> {
        Ok(Stats::default())
    }

    fn submit(self: Arc<Self>, accesses: Accesses, done: Done) -> std::result::Result<(), (Error, Accesses)> {
        let queue = self.0.clone();
        queue.submit(self, accesses, done)
    }
}

/// A request without ports, of a program with this life.
fn request(depth: usize, life: &Arc<Life>) -> Request {
    let procedure = Procedure { name: "main".into(), id: 0, inputs: vec![], outputs: vec![], states: vec![] };
    let queue = loom::sync::Arc::new(Queue::new("model", depth));
    Request::single(Arc::new(Nothing(queue)), &procedure, &Bindings::new(), life.clone())
}

struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.notify();
    }
}

fn block_on(mut submission: Submission) -> Result<Stats> {
    let bell = Arc::new(Bell(Notify::new()));
    let waker = Waker::from(bell.clone());
    loop {
        match Pin::new(&mut submission).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => bell.0.wait(),
        }
    }
}

#[test]
fn a_place_is_free_and_the_program_at_rest_before_the_waiter_is_told() {
    loom::model(|| {
        let life = Arc::new(Life::default());
        let request = request(1, &life);
        for _ in 0..2 {
            request.submit().unwrap().wait().unwrap();
        }
        life.stop().unwrap();
        assert_eq!(request.submit().map(drop).unwrap_err().kind(), ErrorKind::Unloaded);
    });
}

#[test]
fn two_threads_that_submit_are_both_served_or_told_that_the_queue_is_full() {
    for depth in [1, 2] {
        // Three threads have too many orders to try all: only those with at most two preemptions
        // are tried.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            let life = Arc::new(Life::default());
            let request = request(depth, &life);
            let run = |request: Request| match request.submit() {
                Ok(submission) => submission.wait().map(|_| 1).unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::QueueFull);
                    0
                }
            };
            let other = request.clone();
            let other = thread::spawn(move || run(other));
            let served = run(request) + other.join().unwrap();
            assert!(served >= depth.min(2), "{served}");
            life.stop().unwrap();
        });
    }
}

#[test]
fn what_is_queued_runs_when_everybody_else_has_gone() {
    loom::model(|| {
        let submission = request(1, &Arc::default()).submit().unwrap();
        submission.wait().unwrap();
    });
}

#[test]
fn a_task_that_asks_is_woken() {
    loom::model(|| {
        block_on(request(1, &Arc::default()).submit().unwrap()).unwrap();
    });
}

#[test]
fn a_task_that_moved_is_woken_where_it_is() {
    loom::model(|| {
        let slot = CompletionSlot::new();
        let mut submission = Submission::new(slot.clone());
        let filler = thread::spawn(move || slot.fill(Ok(Stats::default())));
        let elsewhere = Waker::from(Arc::new(Bell(Notify::new())));
        if Pin::new(&mut submission).poll(&mut Context::from_waker(&elsewhere)).is_pending() {
            block_on(submission).unwrap();
        }
        filler.join().unwrap();
    });
}

#[test]
fn an_unload_is_alone_and_a_reload_is_seen() {
    loom::model(|| {
        let life = Arc::new(Life::default());
        // Represents the program on the machine.
        let program = Arc::new(UnsafeCell::new(0));
        let runs = || {
            let (life, program) = (life.clone(), program.clone());
            move || {
                if let Ok(running) = life.enter() {
                    program.with(|_| ());
                    drop(running);
                }
            }
        };
        let threads = [thread::spawn(runs()), thread::spawn(runs())];
        if life.stop().is_ok() {
            program.with_mut(|_| ());
            life.resume();
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        life.stop().unwrap();
        program.with_mut(|_| ());
    });
}
