//! A sequence that has begun.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ferrane_llm::grammar::{self, Constraint};
use ferrane_llm::model::Model;
use ferrane_llm::sample::{Sampler, Sampling, log_probs};
use tokio::sync::mpsc::error::TrySendError;

use super::job::{Event, FinishReason, Job, OutputKind, Scored, Usage};
use super::text::OutputText;
use crate::error::ApiError;
use crate::metrics::Metrics;

/// A sequence with all that it needs to continue in any slot.
pub struct Running<'a> {
    /// What the client wants.
    pub job: Job,
    /// The prompt, and the tokens that were drawn.
    pub tokens: Vec<u32>,
    /// Number of leading tokens that the slot holds.
    pub fed: usize,
    sampler: Sampler,
    constraint: Option<Constraint>,
    text: OutputText<'a>,
    generated: usize,
    reused: Option<usize>,
    /// Number of characters of each token of the prompt, if the text continues it.
    chars: Vec<usize>,
    /// Tokens whose text is held back.
    scored: Vec<Scored>,
    /// The tokens of the prompt with their log-probabilities, while they are computed.
    prompt: Vec<Scored>,
    /// What the client has not received yet.
    outbox: VecDeque<Event>,
    finish: Option<FinishReason>,
    failed: bool,
    last: Instant,
    parked: Option<Instant>,
}

/// Whether a sequence can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More is to be computed.
    More,
    /// The client has everything, and the end is counted.
    Done,
    /// The client does not read.
    Blocked,
    /// The client has left.
    Gone,
}

impl<'a> Running<'a> {
    /// Begins a job. `None` if that fails, of which the client has been informed.
    pub fn new(model: &'a Model, job: Job) -> Option<Running<'a>> {
        let failed = |error: ApiError| {
            let _ = job.events.try_send(Event::Failed(error));
            None
        };
        let tokenizer = match model.tokenizer() {
            Ok(tokenizer) => tokenizer,
            Err(error) => return failed(ApiError::internal(error.to_string())),
        };
        let mut stream = tokenizer.stream();
        let continues = job.plan.output == OutputKind::Continuation;
        let prompt = job.prompt.iter().filter(|_| continues);
        let chars: Vec<usize> = prompt.map(|&id| stream.push(id).chars().count()).collect();
        // Under a grammar the output is exactly the bytes of its tokens.
        if job.plan.constraint.is_some() {
            stream = stream.continuing();
        }
        let seed = job.plan.sampling.seed.map(|seed| seed.wrapping_add(job.choice as u64));
        let mut sampler = match Sampler::new(&Sampling { seed, ..job.plan.sampling.clone() }) {
            Ok(sampler) => sampler,
            Err(error) => return failed(ApiError::malformed(error.to_string())),
        };
        if let Some(vocabulary) = &model.vocabulary {
            sampler = sampler.only(vocabulary.compact_to_full());
        }
        sampler.begin(&job.prompt);
        // The first token follows nothing, so it has no probability.
        let prompt =
            job.prompt.first().map(|&id| Scored { id, chars: chars.first().copied().unwrap_or(0), probs: None });
        Some(Running {
            tokens: job.prompt.clone(),
            fed: 0,
            sampler,
            constraint: job.plan.constraint.clone(),
            text: OutputText::new(stream, &job.plan.stop),
            generated: 0,
            reused: None,
            chars,
            scored: Vec::new(),
            prompt: prompt.into_iter().filter(|_| job.plan.echo && job.plan.logprobs.is_some()).collect(),
            outbox: VecDeque::new(),
            finish: None,
            failed: false,
            last: job.accepted,
            parked: None,
            job,
        })
    }

    /// Whether the prompt's log-probabilities are still to be computed.
    pub fn scores_prompt(&self) -> bool {
        !self.prompt.is_empty()
    }

    /// Number of characters of a token of the prompt.
    pub fn prompt_chars(&self, at: usize) -> usize {
        self.chars.get(at).copied().unwrap_or(0)
    }

    /// The sequence is in a slot that holds its first `held` tokens.
    pub fn placed(&mut self, held: usize) {
        self.fed = held;
        self.reused.get_or_insert(held);
        self.parked = None;
    }

    /// The sequence has left its slot.
    pub fn park(&mut self) {
        self.parked = Some(Instant::now());
    }

    /// Time since the sequence left its slot.
    pub fn parked_for(&self, now: Instant) -> Duration {
        self.parked.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// How many of the next `count` tokens belong to the prompt and are fed for the first time.
    pub fn fed_of_prompt(&self, count: usize) -> usize {
        if self.generated > 0 { 0 } else { count }
    }

    /// How the sequence ended, for metrics.
    pub fn end(&self) -> &'static str {
        match self.finish {
            _ if self.failed => "error",
            Some(finish) => finish.name(),
            None => "stop",
        }
    }

    /// Takes the result of a step that fed `count` tokens: the logits after the last one, and the
    /// tokens of the prompt that it scored. Draws the next token if nothing is left to feed.
    pub fn advance(
        &mut self,
        count: usize,
        logits: &[f32],
        scored: Vec<Scored>,
        hidden: Option<Vec<f32>>,
        metrics: &Metrics,
    ) {
        self.fed += count;
        if self.scores_prompt() {
            self.prompt.extend(scored);
        }
        if self.fed < self.tokens.len() {
            return;
        }
        let choice = self.job.choice;
        if self.scores_prompt() {
            let tokens = std::mem::take(&mut self.prompt);
            self.outbox.push_back(Event::Prompt { choice, tokens });
        }
        if self.job.plan.output == OutputKind::Hidden {
            self.outbox.push_back(Event::Hidden { choice, state: hidden });
            return self.ends(FinishReason::Stop);
        }
        if self.job.plan.max_tokens == 0 {
            return self.ends(FinishReason::Length);
        }
        if let Err(error) = self.draw(logits).and_then(|id| self.take(id, logits, metrics)) {
            self.failed = true;
            self.outbox.push_back(Event::Failed(error));
        }
    }

    fn draw(&mut self, logits: &[f32]) -> Result<u32, ApiError> {
        let mask = match &mut self.constraint {
            Some(constraint) => Some(constraint.mask(&self.job.plan.stop_ids).map_err(refused)?),
            None => None,
        };
        self.sampler.sample_masked(logits, mask).map_err(|e| ApiError::internal(e.to_string()))
    }

    /// Takes a token that was drawn.
    fn take(&mut self, id: u32, logits: &[f32], metrics: &Metrics) -> Result<(), ApiError> {
        let now = Instant::now();
        let time = if self.generated == 0 { &metrics.first_token } else { &metrics.next_token };
        time.observe(now.saturating_duration_since(self.last).as_secs_f64());
        self.last = now;
        self.generated += 1;
        metrics.generated_tokens.inc();
        let plan = &self.job.plan;
        if plan.stop_ids.contains(&id) {
            // A completion lists the token that ends it, so that log-probabilities of an echoed
            // prompt are always followed by that of one more token.
            let listed = plan.logprobs.filter(|_| plan.output == OutputKind::Continuation);
            self.scored.extend(listed.map(|top| Scored { id, chars: 0, probs: log_probs(logits, id, top) }));
            let text = self.text.finish();
            self.emit_all(text);
            self.ends(FinishReason::Stop);
            return Ok(());
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id).map_err(refused)?;
        }
        self.sampler.accept(id);
        self.tokens.push(id);
        let (mut text, stopped, chars) = self.text.push(id);
        if let Some(top) = plan.logprobs {
            self.scored.push(Scored { id, chars, probs: log_probs(logits, id, top) });
        }
        let complete = self.constraint.as_ref().is_some_and(Constraint::is_complete);
        let finish = match self.generated >= plan.max_tokens {
            _ if stopped || complete => Some(FinishReason::Stop),
            true => Some(FinishReason::Length),
            false => None,
        };
        if finish.is_some() && !stopped {
            text += &self.text.finish();
            self.emit_all(text);
        } else {
            self.emit(text);
        }
        finish.into_iter().for_each(|finish| self.ends(finish));
        Ok(())
    }

    /// Outputs a text with the tokens that were held back until it was certain.
    fn emit(&mut self, text: String) {
        if !text.is_empty() {
            self.emit_all(text);
        }
    }

    /// As [`Running::emit`], also the tokens that have no text, such as control tokens.
    fn emit_all(&mut self, text: String) {
        let tokens = std::mem::take(&mut self.scored);
        if !(text.is_empty() && tokens.is_empty()) {
            self.outbox.push_back(Event::Piece { choice: self.job.choice, text, tokens });
        }
    }

    fn ends(&mut self, finish: FinishReason) {
        let choice = self.job.choice;
        if self.finish.replace(finish).is_none() {
            let (prompt, generated) = (self.job.prompt.len(), self.generated);
            let usage = Usage { prompt, generated, reused: self.reused.unwrap_or(0) };
            self.outbox.push_back(Event::End { choice, finish, usage });
        }
    }

    /// Sends what the client has not received yet. The end is counted before the client hears of
    /// it, so that metrics asked for after a reply contain it.
    pub fn flush(&mut self, metrics: &Metrics) -> Progress {
        let over = self.failed || self.finish.is_some();
        while !self.outbox.is_empty() {
            let permit = match self.job.events.try_reserve() {
                Ok(permit) => permit,
                Err(TrySendError::Full(())) => return Progress::Blocked,
                Err(TrySendError::Closed(())) => return Progress::Gone,
            };
            let Some(event) = self.outbox.pop_front() else { break };
            if over && self.outbox.is_empty() {
                metrics.ended(self.end());
            }
            permit.send(event);
        }
        match (self.finish, self.failed) {
            (None, false) if self.job.is_abandoned() => Progress::Gone,
            (None, false) => Progress::More,
            _ => Progress::Done,
        }
    }
}

/// The error of a text that cannot follow its grammar.
fn refused(error: grammar::Error) -> ApiError {
    ApiError::malformed(error.to_string()).code("grammar")
}
