//! What the handlers of requests share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ferrane_llm::chat::{Message, Template};
use ferrane_llm::grammar::{Constraint, Grammar, GrammarTokens};
use ferrane_llm::model::Model;
use ferrane_llm::sample::Sampling;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, channel};

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::reply::{Head, is_call};
use crate::request::{Chat, Common, Prompt};
use crate::schedule::{Client, Event, Job, OutputKind, Plan, Queue, QueueRefusal};

/// Events of one choice that may wait for a client that reads slowly.
const BUFFER: usize = 256;

/// The state of a server.
pub struct App {
    /// The model, which the scheduler's thread computes.
    pub model: Arc<Model>,
    /// The id of the model in the API.
    pub name: String,
    /// Limits, keys and origins.
    pub options: ServerOptions,
    /// Largest number of positions in a sequence.
    pub context: usize,
    /// Sampling where a request says nothing.
    pub defaults: Sampling,
    /// Writes chats, if the model can chat.
    pub template: Option<Template>,
    /// Tokens that end an output.
    pub stop_ids: Vec<u32>,
    /// The tokens of the model as grammars see them, once a request has needed them.
    pub grammar_tokens: OnceLock<Result<GrammarTokens, ApiError>>,
    /// Sequences that wait for the model.
    pub queue: Arc<Queue>,
    pub metrics: Arc<Metrics>,
    /// When the server began, in seconds since 1970.
    pub created: u64,
    /// Differs between servers, so that ids of replies do, too.
    pub nonce: u64,
    /// Number of replies so far.
    pub replies: AtomicU64,
}

/// Seconds since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl App {
    /// The head of the next reply, whose id begins with `prefix`.
    pub fn head(&self, prefix: &str) -> Head {
        let number = self.replies.fetch_add(1, Ordering::Relaxed);
        Head { id: format!("{prefix}-{:016x}{number:08x}", self.nonce), created: seconds(), model: self.name.clone() }
    }

    /// The tokens of a prompt. `param` is the field that an error names.
    ///
    /// # Errors
    /// If there are none, or one is outside of the vocabulary.
    pub fn prompt_ids(&self, param: &str, prompt: &Prompt) -> Result<Vec<u32>, ApiError> {
        let ids = match prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => {
                let tokenizer = self.model.tokenizer().map_err(|e| ApiError::internal(e.to_string()))?;
                tokenizer.begin().iter().copied().chain(tokenizer.encode(text)).collect()
            }
        };
        let vocab = self.model.config.vocab;
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            return Err(ApiError::invalid(param, format!("there is no token {id}; the model has {vocab}")));
        }
        if ids.is_empty() {
            let message = format!("`{param}` has no tokens, and the model has none that begins a text");
            return Err(ApiError::invalid(param, message));
        }
        Ok(ids)
    }

    /// The tokens of a chat, up to where the answer begins.
    ///
    /// # Errors
    /// If the model has no template, or it refuses the messages.
    pub fn chat_ids(&self, chat: &Chat) -> Result<Vec<u32>, ApiError> {
        let Some(template) = &self.template else {
            let message = "the model has no chat template; use /v1/completions, or start the server with a template";
            return Err(ApiError::unsupported("messages", message));
        };
        let tokenizer = self.model.tokenizer().map_err(|e| ApiError::internal(e.to_string()))?;
        let messages: Result<Vec<Message>, _> = chat.messages.iter().cloned().map(serde_json::from_value).collect();
        let messages = messages.map_err(|e| ApiError::invalid("messages", format!("`messages`: {e}")))?;
        let ids = template
            .encode(tokenizer, &messages, &chat.tools, true, &chat.variables)
            .map_err(|e| ApiError::invalid("messages", format!("the chat template refuses the messages: {e}")))?;
        self.prompt_ids("messages", &Prompt::Ids(ids))
    }

    /// The grammar of an answer: the format that the client asks for, or the call that it forces.
    ///
    /// # Errors
    /// If the schema cannot be used, or the template has no form for calls.
    pub fn chat_constraint(&self, chat: &Chat) -> Result<Option<Constraint>, ApiError> {
        let Some(template) = self.template.as_ref().filter(|_| !chat.forced.is_empty()) else {
            return self.constraint("response_format", chat.common.format.as_ref());
        };
        let tokenizer = self.model.tokenizer().map_err(|e| ApiError::internal(e.to_string()))?;
        let form = template.call_form(tokenizer, &chat.tools, &chat.variables);
        let form = form.map_err(|e| ApiError::unsupported("tool_choice", e.to_string()))?;
        let functions = chat.tools.iter().filter_map(|tool| tool.get("function"));
        let functions: Vec<(&str, Option<&Value>)> = functions
            .filter_map(|function| Some((function.get("name")?.as_str()?, function.get("parameters"))))
            .filter(|(name, _)| chat.forced.iter().any(|forced| forced == name))
            .collect();
        // Calls are found in the text of the answer, which must be of a form that is known.
        let names = chat.tool_names();
        if !functions.iter().all(|(name, _)| is_call(&names, &form.text(tokenizer, name, "{}"), name)) {
            let message = "the chat template writes calls of tools in a form that this server does not read";
            return Err(ApiError::unsupported("tool_choice", message));
        }
        self.constraint("tools", Some(&form.grammar(tokenizer, &functions)))
    }

    /// The state of a text that must follow a grammar. `param` is the field that an error names.
    ///
    /// # Errors
    /// If the grammar cannot be used.
    pub fn constraint(&self, param: &str, grammar: Option<&Grammar>) -> Result<Option<Constraint>, ApiError> {
        let Some(grammar) = grammar else { return Ok(None) };
        let tokens = self
            .grammar_tokens
            .get_or_init(|| self.model.grammar_tokens().map_err(|e| ApiError::internal(e.to_string())));
        let constraint = tokens.as_ref().map_err(ApiError::clone)?.compile(grammar);
        let invalid =
            |e: ferrane_llm::grammar::Error| ApiError::invalid(param, e.to_string()).code("invalid_json_schema");
        constraint.map(Some).map_err(invalid)
    }

    /// The largest number of tokens that may follow a prompt, `wanted` if that fits.
    ///
    /// # Errors
    /// If prompt and output do not fit into the context.
    pub fn room(&self, param: &str, prompt: usize, wanted: Option<usize>) -> Result<usize, ApiError> {
        let context = self.context;
        let left = context.checked_sub(prompt).filter(|left| *left > 0 || wanted == Some(0));
        let error = |message: String| Err(ApiError::invalid(param, message).code("context_length_exceeded"));
        match (left, wanted) {
            (None, _) => error(format!("the context of this model is {context} tokens; the prompt has {prompt}")),
            (Some(left), Some(wanted)) if wanted > left => error(format!(
                "the context of this model is {context} tokens; the prompt has {prompt} and the output may have {wanted}"
            )),
            (Some(left), wanted) => Ok(wanted.unwrap_or(left)),
        }
    }

    /// What is to be computed for a request that generates text.
    pub fn plan(&self, common: &Common, max_tokens: usize, logprobs: Option<usize>, output: OutputKind) -> Plan {
        Plan {
            sampling: common.sampling.clone(),
            stop: common.stop.clone(),
            stop_ids: if common.ignore_eos { Vec::new() } else { self.stop_ids.clone() },
            max_tokens,
            logprobs,
            echo: false,
            output,
            constraint: None,
        }
    }

    /// Queues a sequence for each prompt and each of its `n` choices. Choice `i` of prompt `p` has
    /// the index `p · n + i`.
    ///
    /// # Errors
    /// If the queue is full, or the server is ending.
    pub fn submit(
        &self,
        client: &Client,
        prompts: Vec<Vec<u32>>,
        plan: Plan,
        n: usize,
    ) -> Result<Receiver<Event>, ApiError> {
        let choices = prompts.len() * n;
        let (events, receiver) = channel(BUFFER * choices.max(1));
        let accepted = Instant::now();
        // A time that no clock can represent is no limit; a century is one that it can.
        let century = std::time::Duration::from_secs(100 * 365 * 24 * 3600);
        let deadline = accepted + self.options.request_time.min(century);
        let plan = Arc::new(plan);
        let jobs = prompts.into_iter().flat_map(|prompt| std::iter::repeat_n(prompt, n)).enumerate();
        let jobs = jobs.map(|(choice, prompt)| Job {
            choice,
            prompt,
            plan: plan.clone(),
            accepted,
            deadline,
            events: events.clone(),
        });
        match self.queue.push(client, jobs.collect()) {
            Ok(()) => Ok(receiver),
            Err(QueueRefusal::Ending) => Err(ApiError::ending()),
            Err(QueueRefusal::Full(waiting)) => {
                Err(ApiError::busy(format!("{waiting} sequences wait already; try again later")))
            }
        }
    }
}
