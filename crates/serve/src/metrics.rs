//! What `GET /metrics` reports, in the text format of OpenMetrics, which Prometheus reads.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// A request by where it went and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// The path, or `other`.
    pub endpoint: &'static str,
    /// The status of the reply.
    pub status: u16,
}

/// A sequence by how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SequenceLabels {
    /// `stop`, `length`, `abandoned`, `stalled`, `timeout`, `error`, `shutdown`.
    pub end: &'static str,
}

/// The metrics of a server.
pub struct Metrics {
    registry: Registry,
    pub requests: Family<RequestLabels, Counter>,
    pub sequences: Family<SequenceLabels, Counter>,
    /// Tokens of prompts that were computed.
    pub prompt_tokens: Counter,
    /// Tokens of prompts that a slot held already.
    pub reused_tokens: Counter,
    /// Tokens that were generated.
    pub generated_tokens: Counter,
    /// Times that a sequence left its slot because its client did not read.
    pub paused: Counter,
    /// Sequences that wait for a slot.
    pub waiting: Gauge,
    /// Sequences in a slot.
    pub running: Gauge,
    /// Time from a request's arrival to the first token of a sequence.
    pub first_token: Histogram,
    /// Time between two tokens of a sequence.
    pub next_token: Histogram,
    /// Time that the model spent in computing.
    pub computing: Counter<f64, AtomicU64>,
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Metrics {
        let wide = || Histogram::new(exponential_buckets(0.001, 2.0, 18));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("ferrane"),
            requests: Family::default(),
            sequences: Family::default(),
            prompt_tokens: Counter::default(),
            reused_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            paused: Counter::default(),
            waiting: Gauge::default(),
            running: Gauge::default(),
            first_token: wide(),
            next_token: wide(),
            computing: Counter::default(),
        };
        let r = &mut metrics.registry;
        r.register("requests", "Replies by endpoint and status", metrics.requests.clone());
        r.register("sequences", "Sequences by how they ended", metrics.sequences.clone());
        r.register("prompt_tokens", "Tokens of prompts that were computed", metrics.prompt_tokens.clone());
        let text = "Tokens of prompts that were in a slot already";
        r.register("reused_prompt_tokens", text, metrics.reused_tokens.clone());
        r.register("generated_tokens", "Tokens that were generated", metrics.generated_tokens.clone());
        let text = "Times that a sequence left its slot because its client did not read";
        r.register("paused_sequences", text, metrics.paused.clone());
        r.register("waiting_sequences", "Sequences that wait for a slot", metrics.waiting.clone());
        r.register("running_sequences", "Sequences in a slot", metrics.running.clone());
        let text = "Time from arrival of a request to the first token of a sequence";
        r.register("first_token_seconds", text, metrics.first_token.clone());
        r.register("next_token_seconds", "Time between two tokens of a sequence", metrics.next_token.clone());
        r.register("computing_seconds", "Time that the model computed", metrics.computing.clone());
        metrics
    }

    /// Counts the end of a sequence.
    pub fn ended(&self, end: &'static str) {
        self.sequences.get_or_create(&SequenceLabels { end }).inc();
    }

    pub fn replied(&self, endpoint: &'static str, status: u16) {
        self.requests.get_or_create(&RequestLabels { endpoint, status }).inc();
    }

    /// Adds time in which the model computed.
    pub fn computed(&self, time: Duration) {
        self.computing.inc_by(time.as_secs_f64());
    }

    /// The text that Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
