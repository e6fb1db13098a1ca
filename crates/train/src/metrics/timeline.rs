//! A timeline of single steps, thread by thread, for `chrome://tracing` and Perfetto.
//!
//! A [`Timeline`] records spans: requests by kernel and layer, products for weight gradients,
//! staging, classifier, update, each with its thread. A span ends on the thread on which it began,
//! so the spans of a thread nest. Recording a span reads the clock twice and takes a lock that is
//! rarely contended; without a timeline it does neither. Memory is bounded: a timeline records only
//! the first micro-steps ([`Timeline::new`]) and at most [`MOST`] spans.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferrane_host::pool;
use ferrane_host::sync::lock;
use serde_json::json;

/// Largest number of spans, 48 bytes each. Later ones are only counted.
pub const MOST: usize = 1 << 20;

/// The category of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// A micro-step or one of its passes.
    Step,
    /// A layer in one of the passes.
    Layer,
    /// A request to the device, named by its kernel.
    Device,
    /// Copies between activations and surfaces.
    Staging,
    /// Norms, residuals, rotary and SiLU gradients.
    Elementwise,
    /// Embedding, classifier and cross-entropy.
    Classifier,
    /// A product for the gradient of a matrix, named by the matrix.
    WeightGradient,
    /// The norm of the gradients, AdamW and staging of new weights.
    Update,
}

impl SpanKind {
    fn name(self) -> &'static str {
        match self {
            SpanKind::Step => "step",
            SpanKind::Layer => "layer",
            SpanKind::Device => "device",
            SpanKind::Staging => "staging",
            SpanKind::Elementwise => "element-wise",
            SpanKind::Classifier => "classifier",
            SpanKind::WeightGradient => "weight gradient",
            SpanKind::Update => "update",
        }
    }
}

/// A completed span; times in nanoseconds since the timeline's start.
#[derive(Debug, Clone, Copy)]
struct Ended {
    kind: SpanKind,
    name: &'static str,
    layer: Option<u32>,
    /// 0 outside of the pool, otherwise 1 plus the thread's index in the pool.
    thread: u32,
    begin: u64,
    end: u64,
}

/// Spans of the first micro-steps. Clones share one timeline.
#[derive(Debug, Clone)]
pub struct Timeline(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    spans: Mutex<Vec<Ended>>,
    /// Number of micro-steps that remain to be recorded.
    steps: AtomicU64,
    wanted: u64,
    /// Whether the update after the last of them was recorded.
    closed: AtomicBool,
    lost: AtomicU64,
}

impl Timeline {
    /// A timeline of the first `steps` micro-steps and of the updates between them.
    pub fn new(steps: u64) -> Timeline {
        Timeline(Arc::new(Inner {
            start: Instant::now(),
            spans: Mutex::default(),
            steps: AtomicU64::new(steps),
            wanted: steps,
            closed: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }))
    }

    /// The tracer of the next micro-step, which counts as recorded. It records nothing once enough
    /// micro-steps were recorded.
    pub(crate) fn step(&self) -> Tracer<'_> {
        let less = |n: u64| n.checked_sub(1);
        let left = self.0.steps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        Tracer(left.is_ok().then_some(self))
    }

    /// The tracer of an update. It records the updates between micro-steps, and the one after the
    /// last.
    pub fn update(&self) -> Tracer<'_> {
        let wanted = !self.is_full() || !self.0.closed.swap(true, Ordering::Relaxed);
        Tracer(wanted.then_some(self))
    }

    /// Number of micro-steps recorded so far.
    pub fn steps(&self) -> u64 {
        self.0.wanted - self.0.steps.load(Ordering::Relaxed)
    }

    /// Whether all requested micro-steps are recorded.
    pub fn is_full(&self) -> bool {
        self.0.steps.load(Ordering::Relaxed) == 0
    }

    fn now(&self) -> u64 {
        self.0.start.elapsed().as_nanos() as u64
    }

    fn push(&self, span: Ended) {
        let mut spans = lock(&self.0.spans);
        if spans.len() < MOST {
            spans.push(span);
        } else {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the spans as a JSON object in Chrome's trace format: complete events (`"ph": "X"`)
    /// with times in microseconds, one process, with a thread for the caller and one for each
    /// thread of the pool.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        let mut spans = lock(&self.0.spans).clone();
        // Viewers expect outer spans first.
        spans.sort_by_key(|s| (s.thread, s.begin, std::cmp::Reverse(s.end)));
        let named = |name: &str, tid: u32, value: &str| json!({"ph": "M", "pid": 1, "tid": tid, "name": name, "args": {"name": value}});
        let mut threads: Vec<u32> = spans.iter().map(|s| s.thread).collect();
        threads.dedup();
        write!(out, "{{\"traceEvents\":[\n{}", named("process_name", 0, "ferrane"))?;
        for thread in threads {
            let name = if thread == 0 { "caller".to_string() } else { format!("pool {}", thread - 1) };
            write!(out, ",\n{}", named("thread_name", thread, &name))?;
        }
        for span in &spans {
            let (begin, time) = (span.begin as f64 / 1e3, (span.end - span.begin) as f64 / 1e3);
            let mut event = json!({
                "ph": "X", "pid": 1, "tid": span.thread, "name": span.name, "cat": span.kind.name(), "ts": begin, "dur": time,
            });
            if let (Some(layer), Some(event)) = (span.layer, event.as_object_mut()) {
                event.insert("args".into(), json!({"layer": layer}));
            }
            write!(out, ",\n{event}")?;
        }
        let rest = json!({"micro_steps": self.steps(), "lost_spans": self.0.lost.load(Ordering::Relaxed)});
        writeln!(out, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{rest}}}")?;
        out.flush()
    }
}

/// Records spans, or nothing without a timeline.
#[derive(Debug, Clone, Copy)]
pub struct Tracer<'a>(Option<&'a Timeline>);

impl<'a> Tracer<'a> {
    /// A tracer that records nothing.
    pub fn off() -> Tracer<'a> {
        Tracer(None)
    }

    /// Begins a span, which ends when it is dropped.
    #[inline]
    pub fn span(&self, kind: SpanKind, name: &'static str, layer: Option<usize>) -> Span<'a> {
        Span(self.0.map(|timeline| Open { timeline, kind, name, layer, begin: timeline.now() }))
    }
}

struct Open<'a> {
    timeline: &'a Timeline,
    kind: SpanKind,
    name: &'static str,
    layer: Option<usize>,
    begin: u64,
}

/// An open span; it is recorded when it is dropped.
#[must_use = "a span ends when it is dropped"]
pub struct Span<'a>(Option<Open<'a>>);

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some(Open { timeline, kind, name, layer, begin }) = self.0.take() {
            let thread = pool::thread_index().map_or(0, |i| i as u32 + 1);
            let layer = layer.map(|l| l as u32);
            timeline.push(Ended { kind, name, layer, thread, begin, end: timeline.now() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_and_the_json_is_whole() {
        let timeline = Timeline::new(2);
        for round in 0..4 {
            let tracer = timeline.step();
            let outer = tracer.span(SpanKind::Step, "micro-step", None);
            drop(tracer.span(SpanKind::Device, "woFwd", Some(3)));
            drop(outer);
            assert_eq!((timeline.steps(), timeline.is_full()), ((round + 1).min(2), round >= 1));
        }
        let mut text = Vec::new();
        timeline.write(&mut text).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let names: Vec<_> = events.iter().map(|e| e["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["process_name", "thread_name", "micro-step", "woFwd", "micro-step", "woFwd"]);
        assert_eq!((&events[3]["args"]["layer"], &events[3]["cat"]), (&3.into(), &"device".into()));
        assert_eq!(json["otherData"], json!({"micro_steps": 2, "lost_spans": 0}));
        drop(Tracer::off().span(SpanKind::Step, "nothing", None));
    }
}
