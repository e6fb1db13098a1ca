//! The windows of an update: drawing them, their gradients, and their sum over all ranks.
//!
//! Every rank draws all windows, because the sampler is part of the state, and computes those of
//! its groups. Nothing else depends on the number of ranks: losses are summed in the order of
//! windows, and gradients group by group ([`crate::ranks`]).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Error, Event, Run};
use crate::data::{self, Sampler, SamplerState};
use crate::lora;
use crate::metrics::finite;
use crate::ranks::{RankError, group_of};
use crate::step;

/// Number of windows in a row without a target that counts, after which a run ends.
const DRAWS: usize = 10_000;

/// Totals over the windows of an update.
pub(super) struct Window {
    /// Sum of the finite losses, each times its share of counted targets.
    pub loss: f64,
    /// Sum of these shares, which are 1 for windows whose targets all count.
    pub accumulated: f64,
    pub tokens: u64,
    pub finite: bool,
    pub max_dy: f32,
}

/// What the other ranks need to know of a window.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct WindowResult {
    index: usize,
    /// Bits of the mean loss and of the largest gradient of the logits, which may be NaN.
    loss: u32,
    max_dy: u32,
    share: f64,
    finite: bool,
}

/// What a rank sends to the others after its windows.
#[derive(Serialize, Deserialize)]
struct RankResult {
    windows: Vec<WindowResult>,
    /// Time of these windows.
    seconds: f64,
    stop: bool,
}

impl Run {
    /// Checks that all ranks were started alike, and whether one is to stop.
    pub(super) fn agree(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        self.ranks.same("version", env!("CARGO_PKG_VERSION"))?;
        self.ranks.same("data", &self.state.data)?;
        self.ranks.same("checkpoint", &format!("update {}", self.state.step))?;
        let mut options = self.state.options.clone();
        if let Some(options) = options.as_object_mut() {
            // Where things lie, which may be another place on another computer.
            for name in ["out", "data", "data_cache", "tokenizer", "init", "chat_template", "device"] {
                options.shift_remove(name);
            }
        }
        self.ranks.same("options", &options.to_string())?;
        self.compare_weights()?;
        self.agreed_stop = self.ranks.exchange(stop.load(Ordering::Relaxed))?.contains(&true);
        Ok(())
    }

    /// Checks that all ranks have the same weights.
    pub(super) fn compare_weights(&mut self) -> Result<(), Error> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        let digests = self.ranks.exchange(lora::digest(&self.config, &self.weights))?;
        match digests.iter().position(|digest| *digest != digests[0]) {
            None => Ok(()),
            Some(rank) => Err(RankError::Drifted { rank, step: self.state.step }.into()),
        }
    }

    /// Whether the run is to stop: by this process, or by all ranks if there are others.
    pub(super) fn stopping(&self, stop: &AtomicBool) -> bool {
        if self.ranks.size() == 1 { stop.load(Ordering::Relaxed) } else { self.agreed_stop }
    }

    /// Runs the micro-steps of an update, up to the first that is not finite; `None` if stopped
    /// before the last. With other ranks it is never stopped.
    pub(super) fn windows(
        &mut self,
        scale: f32,
        events: &mut dyn FnMut(&Event),
        stop: &AtomicBool,
    ) -> Result<Option<Window>, Error> {
        let (of, groups, alone) = (self.options.windows(), self.options.groups, self.ranks.size() == 1);
        let own = self.ranks.groups(groups);
        let first = group_of(of, groups, own.start).start;
        let own_windows = group_of(of, groups, own.end - 1).end - first;
        let (mut results, mut draws, begun) = (Vec::with_capacity(own_windows), Vec::new(), Instant::now());
        for _ in 0..first {
            self.draw()?;
            draws.push(self.sampler.state());
        }
        'groups: for (place, group) in own.enumerate() {
            for index in group_of(of, groups, group) {
                self.attend(events, stop);
                let result = self.micro_step(index, place, scale, events)?;
                let done = index + 1 - first;
                events(&Event::Window { done, of: own_windows, loss: finite(f64::from(f32::from_bits(result.loss))) });
                results.push(result);
                draws.push(self.sampler.state());
                if !result.finite {
                    break 'groups;
                }
                if alone && index + 1 < of && stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
            }
            if place > 0 && self.ranks.is_first() {
                // The sum so far is a group's sum, or more: the next one can be added to it.
                self.gradients.join(&self.config, &mut self.partial[0]);
            }
        }
        if alone {
            return Ok(Some(self.total(&results)));
        }
        for _ in draws.len()..of {
            self.draw()?;
            draws.push(self.sampler.state());
        }
        let seconds = begun.elapsed().as_secs_f64();
        let own = RankResult { windows: results, seconds, stop: stop.load(Ordering::Relaxed) };
        let exchange = Instant::now();
        let window = self.combine(own, &draws)?;
        self.efficiency.exchange += exchange.elapsed().as_secs_f64();
        Ok(Some(window))
    }

    /// Computes the gradients of the next window, as a part of the sum of the group at `place`
    /// among those of this rank.
    fn micro_step(
        &mut self,
        index: usize,
        place: usize,
        scale: f32,
        events: &mut dyn FnMut(&Event),
    ) -> Result<WindowResult, Error> {
        let (begun, seq) = (Instant::now(), self.options.seq);
        let (inputs, targets) = self.draw()?;
        // The first rank adds each group to its sum as soon as it is complete, so that two suffice.
        let partial = if self.ranks.is_first() { place.min(1) } else { place };
        let (of, groups) = (self.options.windows(), self.options.groups);
        let begins = group_of(of, groups, self.ranks.groups(groups).start + place).start == index;
        let gradients = match partial.checked_sub(1) {
            None => &mut self.gradients,
            Some(at) => {
                if self.partial.len() <= at {
                    self.partial.push(self.gradients.another());
                }
                if begins {
                    self.partial[at].restart(&self.gradients);
                }
                &mut self.partial[at]
            }
        };
        let found = self.engine.micro_step(&self.weights, gradients, &inputs, &targets, scale)?;
        self.remark(events);
        self.efficiency.micro_step(&found.parts, begun.elapsed(), seq);
        Ok(WindowResult {
            index,
            loss: found.loss.to_bits(),
            max_dy: found.max_dy.to_bits(),
            share: step::counted(&targets) as f64 / seq as f64,
            finite: found.finite && found.loss.is_finite(),
        })
    }

    /// The totals over the windows, which end with the first that is not finite.
    fn total(&self, results: &[WindowResult]) -> Window {
        let mut window = Window { loss: 0.0, accumulated: 0.0, tokens: 0, finite: true, max_dy: 0.0 };
        for result in results {
            let (loss, max_dy) = (f32::from_bits(result.loss), f32::from_bits(result.max_dy));
            window.tokens += self.options.seq as u64;
            // Unlike `f32::max`, this propagates NaN.
            window.max_dy = if max_dy <= window.max_dy { window.max_dy } else { max_dy };
            if !result.finite {
                window.finite = false;
                break;
            }
            window.loss += result.share * f64::from(loss);
            window.accumulated += result.share;
        }
        window
    }

    /// Combines the windows of all ranks and sums their gradients. `draws` are the sampler's states
    /// after each window of the update.
    fn combine(&mut self, own: RankResult, draws: &[SamplerState]) -> Result<Window, Error> {
        let own_windows = own.windows.len();
        let all = self.ranks.exchange(own)?;
        self.agreed_stop |= all.iter().any(|rank| rank.stop);
        self.rank_seconds = all.iter().map(|rank| rank.seconds).collect();
        let others = all.iter().map(|rank| rank.windows.len()).sum::<usize>() - own_windows;
        self.efficiency.tokens += (others * self.options.seq) as u64;
        // Each rank's windows follow those of the rank before it, unless that one broke off.
        let mut results: Vec<WindowResult> = all.into_iter().flat_map(|rank| rank.windows).collect();
        if let Some(bad) = results.iter().position(|result| !result.finite) {
            results.truncate(bad + 1);
            if let Some(state) = draws.get(results[bad].index) {
                self.sampler = Sampler::from_state(state);
            }
            return Ok(self.total(&results));
        }
        let complete = results.iter().map(|result| result.index).eq(0..self.options.windows());
        if !complete {
            return Err(RankError::Message { rank: 0, reason: "windows of an update are missing".into() }.into());
        }
        self.sum_gradients()?;
        Ok(self.total(&results))
    }

    /// Replaces the gradients of this rank by the sum over all ranks.
    fn sum_gradients(&mut self) -> Result<(), Error> {
        let mut rows = self.gradients.rows();
        let count = if self.ranks.is_first() { 0 } else { self.ranks.groups(self.options.groups).len() - 1 };
        let partial = &mut self.partial[..count];
        partial.iter().for_each(|partial| rows.join(&partial.rows()));
        let own: Vec<Range<usize>> =
            rows.runs(0..self.config.vocab).filter(|(_, there)| *there).map(|(run, _)| run).collect();
        for run in self.ranks.exchange(own)?.into_iter().flatten() {
            rows.add_run(run);
        }
        self.gradients.settle(&self.config, &rows);
        partial.iter_mut().for_each(|partial| partial.settle(&self.config, &rows));
        let partial: Vec<Vec<&[f32]>> = partial
            .iter_mut()
            .map(|partial| partial.values_mut(&self.config, &rows).into_iter().map(|values| &*values).collect())
            .collect();
        Ok(self.ranks.sum(&mut self.gradients.values_mut(&self.config, &rows), &partial)?)
    }

    /// Draws windows until one has a target that counts; returns its inputs and targets.
    fn draw(&mut self) -> Result<(Vec<u32>, Vec<u32>), Error> {
        for _ in 0..DRAWS {
            let (inputs, targets) = self.corpus.sample(self.sampler.draw(&self.windows), self.options.seq)?;
            if step::counted(&targets) > 0 {
                return Ok((inputs, targets));
            }
        }
        Err(data::Error::NothingCounts { draws: DRAWS }.into())
    }
}
