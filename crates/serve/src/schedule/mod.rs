//! The thread that owns the model.
//!
//! Each step feeds every running sequence at most [`CHUNK`] tokens: a part of its prompt, or the
//! token that was drawn last. So a long prompt delays the tokens of other sequences by one chunk at
//! most, and a client that leaves, a deadline or the end of the server is noticed after one step.
//!
//! A sequence whose client does not read leaves its slot as soon as its channel is full (it is
//! *parked*), and returns when there is room again; its tokens are then fed again, or are still in
//! the slot. After [`ServerOptions::stall_time`](crate::ServerOptions::stall_time) it is dropped.

mod job;
mod queue;
mod running;
mod text;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ferrane_llm::model::Model;
use ferrane_llm::sample::log_probs;

pub use job::{Event, FinishReason, Job, OutputKind, Plan, Scored, Usage};
pub use queue::{Client, Phase, Queue, QueueRefusal};
use running::{Progress, Running};

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::sequences::{Feed, Sequences, Wanted};

/// Largest number of tokens that a sequence is fed in one step.
const CHUNK: usize = 256;
/// Time between two looks at parked sequences while nothing else runs.
const LOOK: Duration = Duration::from_millis(10);

/// A slot of the model.
struct Slot<'a> {
    /// The tokens that the slot holds.
    held: Vec<u32>,
    running: Option<Running<'a>>,
    /// When the slot was last used; the one longest unused takes a prompt that begins like
    /// none.
    used: u64,
}

/// The state of the thread.
pub struct Scheduler<'a> {
    model: &'a Model,
    sequences: Box<dyn Sequences + 'a>,
    queue: &'a Queue,
    metrics: &'a Metrics,
    slots: Vec<Slot<'a>>,
    parked: Vec<Running<'a>>,
    /// Sequences that were parked and can continue.
    ready: VecDeque<Running<'a>>,
    stall: Duration,
    limit: Duration,
    clock: u64,
}

impl<'a> Scheduler<'a> {
    /// A scheduler without work. `stall` is the time that a parked sequence is kept, `limit` that
    /// of a request, which messages state.
    pub fn new(
        model: &'a Model,
        sequences: Box<dyn Sequences + 'a>,
        queue: &'a Queue,
        metrics: &'a Metrics,
        [stall, limit]: [Duration; 2],
    ) -> Scheduler<'a> {
        let slots = (0..sequences.slots().max(1)).map(|_| Slot { held: Vec::new(), running: None, used: 0 }).collect();
        let (parked, ready) = (Vec::new(), VecDeque::new());
        Scheduler { model, sequences, queue, metrics, slots, parked, ready, stall, limit, clock: 0 }
    }

    /// Works until the server ends.
    pub fn run(mut self) {
        loop {
            let phase = self.queue.phase();
            if phase == Phase::Stopped {
                return self.stop();
            }
            let now = Instant::now();
            for job in self.queue.sweep(now) {
                self.refuse(job);
            }
            self.look_at_parked(now);
            self.check_running(now);
            self.admit();
            self.metrics.waiting.set(self.queue.waiting() as i64);
            self.metrics.running.set(self.slots.iter().filter(|slot| slot.running.is_some()).count() as i64);
            if self.slots.iter().any(|slot| slot.running.is_some()) {
                self.step();
            } else if phase == Phase::Draining && self.parked.is_empty() && self.queue.waiting() == 0 {
                return;
            } else {
                self.queue.wait((!self.parked.is_empty()).then_some(LOOK));
            }
        }
    }

    /// Ends a job that was never begun.
    fn refuse(&self, job: Job) {
        if job.is_abandoned() {
            return self.metrics.ended("abandoned");
        }
        self.metrics.ended("timeout");
        // The channel may be full; the receiver then sees that its sender is gone.
        let _ = job.events.try_send(Event::Failed(ApiError::late(self.limit.as_secs())));
    }

    /// Ends everything: the clients are informed.
    fn stop(&mut self) {
        let running = self.slots.iter_mut().filter_map(|slot| slot.running.take());
        let all = running.chain(self.parked.drain(..)).chain(self.ready.drain(..)).map(|r| r.job);
        for job in all.chain(self.queue.drain()) {
            self.metrics.ended("shutdown");
            let _ = job.events.try_send(Event::Failed(ApiError::ending()));
        }
    }

    /// Drops parked sequences that are over, and moves those whose client reads again to `ready`.
    fn look_at_parked(&mut self, now: Instant) {
        for mut running in std::mem::take(&mut self.parked) {
            match running.flush(self.metrics) {
                Progress::Gone => self.metrics.ended("abandoned"),
                Progress::Done => {}
                Progress::More => self.ready.push_back(running),
                Progress::Blocked if running.job.deadline <= now => self.fail(running, "timeout"),
                Progress::Blocked if running.parked_for(now) >= self.stall => self.fail(running, "stalled"),
                Progress::Blocked => self.parked.push(running),
            }
        }
    }

    fn fail(&self, running: Running<'a>, end: &'static str) {
        self.metrics.ended(end);
        let error = match end {
            "timeout" => ApiError::late(self.limit.as_secs()),
            _ => ApiError::internal("the client did not read the stream").code("stalled"),
        };
        let _ = running.job.events.try_send(Event::Failed(error));
    }

    /// Frees the slots of sequences whose client has left or whose time is over.
    fn check_running(&mut self, now: Instant) {
        for slot in 0..self.slots.len() {
            let Some(running) = &self.slots[slot].running else { continue };
            let (gone, late) = (running.job.is_abandoned(), running.job.deadline <= now);
            let Some(running) = self.slots[slot].running.take_if(|_| gone || late) else { continue };
            match gone {
                true => self.metrics.ended("abandoned"),
                false => self.fail(running, "timeout"),
            }
        }
    }

    /// Gives free slots to the sequences whose turn it is.
    fn admit(&mut self) {
        while self.slots.iter().any(|slot| slot.running.is_none()) {
            let next = self.ready.pop_front();
            let next = next.or_else(|| {
                loop {
                    let job = self.queue.pop()?;
                    match job.is_abandoned() {
                        true => self.metrics.ended("abandoned"),
                        false => match Running::new(self.model, job) {
                            Some(running) => return Some(running),
                            None => self.metrics.ended("error"),
                        },
                    }
                }
            });
            let Some(running) = next else { return };
            self.place(running);
        }
    }

    /// Puts a sequence into the free slot that holds most of its beginning.
    fn place(&mut self, mut running: Running<'a>) {
        // At least the last token must be fed, for its logits; and every token whose own are
        // wanted.
        let most = if running.scores_prompt() { 0 } else { running.tokens.len() - 1 };
        let common = |slot: &Slot<'_>| {
            slot.held.iter().zip(&running.tokens[..most]).take_while(|(held, token)| held == token).count()
        };
        let free = (0..self.slots.len()).filter(|slot| self.slots[*slot].running.is_none());
        let key = |slot: &usize| (common(&self.slots[*slot]), std::cmp::Reverse(self.slots[*slot].used));
        let Some(index) = free.max_by_key(key) else { return self.ready.push_front(running) };
        let mut keep = common(&self.slots[index]);
        if keep < self.slots[index].held.len() && !(keep > 0 && self.sequences.rewind(index, keep)) {
            self.sequences.rewind(index, 0);
            keep = 0;
        }
        self.clock += 1;
        let slot = &mut self.slots[index];
        slot.held.truncate(keep);
        slot.used = self.clock;
        running.placed(keep);
        self.metrics.reused_tokens.inc_by(keep as u64);
        slot.running = Some(running);
    }

    /// Feeds every running sequence, and draws a token for those that have nothing more to feed.
    fn step(&mut self) {
        let Scheduler { sequences, slots, metrics, .. } = self;
        let mut feeds = Vec::new();
        for (slot, state) in slots.iter().enumerate() {
            let Some(running) = &state.running else { continue };
            let rest = &running.tokens[running.fed..];
            let wanted = if running.scores_prompt() { Wanted::Each } else { Wanted::Last };
            feeds.push(Feed { slot, tokens: &rest[..rest.len().min(CHUNK)], wanted });
        }
        let mut last: Vec<Vec<f32>> = vec![Vec::new(); feeds.len()];
        let mut scored: Vec<Vec<Scored>> = vec![Vec::new(); feeds.len()];
        let begun = Instant::now();
        let result = sequences.feed(&feeds, &mut |index, at, logits| {
            let feed = &feeds[index];
            if at + 1 == feed.tokens.len() {
                last[index] = logits.to_vec();
            }
            if let (Wanted::Each, Some(running)) = (feed.wanted, &slots[feed.slot].running)
                && let Some(&next) = running.tokens.get(running.fed + at + 1)
            {
                let probs = log_probs(logits, next, running.job.plan.logprobs.unwrap_or(0));
                let chars = running.prompt_chars(running.fed + at + 1);
                scored[index].push(Scored { id: next, chars, probs });
            }
        });
        metrics.computed(begun.elapsed());
        let fed: Vec<(usize, usize)> = feeds.iter().map(|feed| (feed.slot, feed.tokens.len())).collect();
        if let Err(error) = result {
            let message = format!("the model failed: {error}");
            tracing::error!(target: "ferrane::serve", "{message}");
            for (slot, _) in fed {
                self.abort(slot, &message);
            }
            return;
        }
        for (((slot, count), logits), scored) in fed.into_iter().zip(last).zip(scored) {
            self.advance(slot, count, &logits, scored);
        }
    }

    /// Ends the sequence of a slot after the device failed.
    fn abort(&mut self, slot: usize, message: &str) {
        self.sequences.rewind(slot, 0);
        self.slots[slot].held.clear();
        if let Some(running) = self.slots[slot].running.take() {
            self.metrics.ended("error");
            let _ = running.job.events.try_send(Event::Failed(ApiError::internal(message)));
        }
    }

    /// Takes the result of a step for one slot.
    fn advance(&mut self, index: usize, count: usize, logits: &[f32], scored: Vec<Scored>) {
        let hidden = self.sequences.hidden(index).map(<[f32]>::to_vec);
        let slot = &mut self.slots[index];
        let Some(mut running) = slot.running.take() else { return };
        slot.held.extend_from_slice(&running.tokens[running.fed..running.fed + count]);
        self.metrics.prompt_tokens.inc_by(running.fed_of_prompt(count) as u64);
        running.advance(count, logits, scored, hidden, self.metrics);
        match running.flush(self.metrics) {
            Progress::Gone => self.metrics.ended("abandoned"),
            Progress::Done => {}
            Progress::More => slot.running = Some(running),
            Progress::Blocked => {
                self.metrics.paused.inc();
                running.park();
                self.parked.push(running);
            }
        }
    }
}
