//! A conversation with a model, turn by turn.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ferrane_device::Device;
use serde_json::{Map, Value as Json};

use super::{Message, Template};
use crate::decode;
use crate::generate::{self, NextLogits};
use crate::grammar::Constraint;
use crate::model::Model;
use crate::sample::{Sampler, Sampling};
use crate::speculate::Draft;
use crate::stop::StopText;
use crate::tokenizer::Tokenizer;

/// Why a turn failed. The conversation is then as before the turn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The template cannot be read, or refuses the conversation.
    #[error(transparent)]
    Template(#[from] super::Error),
    /// The model has no chat template.
    #[error("the model has no chat template; give one with `template`")]
    NoTemplate,
    /// The model cannot be run, or drew no token.
    #[error(transparent)]
    Generate(#[from] generate::Error),
    /// The conversation does not fit the model.
    #[error("the conversation has {tokens} tokens, and the model's context is {context}; remove turns or begin again")]
    TooLong {
        /// Tokens of the conversation, with the beginning of the answer.
        tokens: usize,
        /// Tokens that the model can take, answer included.
        context: usize,
    },
    /// There is no turn to take back.
    #[error("there is no turn to take back")]
    NothingToUndo,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended it, or a stop string.
    Stop,
    /// It reached the largest number of tokens, or the end of the context.
    Length,
    /// The caller ended it.
    Cancelled,
}

/// An answer with what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatAnswer {
    /// The text, as it entered the conversation.
    pub text: String,
    /// The reason why there is no more text.
    pub finish: Finish,
    /// Tokens of the conversation in front of the answer.
    pub prompt_tokens: usize,
    /// Of these, the ones that were not computed again.
    pub reused_tokens: usize,
    /// Tokens of the answer; the one that ends it is not counted.
    pub tokens: usize,
    /// Time until the first token.
    pub first: Duration,
    /// Time of the whole answer.
    pub whole: Duration,
}

/// Options of a [`Chat`].
#[derive(Debug, Clone, Default)]
pub struct ChatOptions {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Largest number of tokens of an answer; `None`: up to the end of the context.
    pub max_tokens: Option<usize>,
    /// Strings that end an answer.
    pub stop: Vec<String>,
    /// The template; `None`: the model's own.
    pub template: Option<Template>,
    /// Variables for the template, such as `enable_thinking`.
    pub variables: Map<String, Json>,
    /// The grammar of each answer, as the state of a text that has not begun.
    pub constraint: Option<Constraint>,
}

/// A conversation with a model.
///
/// Each turn renders the whole conversation by the template; what it has in common with the turn
/// before is not computed again. What looks like a control token in a message stays text
/// ([`Tokenizer::defuse`]).
pub struct Chat<'a> {
    tokenizer: &'a Tokenizer,
    logits: Box<dyn NextLogits + 'a>,
    template: Template,
    sampler: Sampler,
    only: Option<Vec<u32>>,
    end: Vec<u32>,
    context: usize,
    options: ChatOptions,
    messages: Vec<Message>,
    draft: Option<Draft<'a>>,
}

impl<'a> Chat<'a> {
    /// A conversation without messages, on `device` or in the fp32 reference.
    ///
    /// # Errors
    /// [`Error::NoTemplate`], [`Error::Template`]; [`Error::Generate`] without a tokenizer, for
    /// invalid options of sampling, or if the device refuses the model.
    pub fn new(
        model: &'a Model,
        device: Option<&Device>,
        decode: decode::Options,
        options: ChatOptions,
    ) -> Result<Chat<'a>, Error> {
        let tokenizer = model.tokenizer().map_err(generate::Error::from)?;
        let template = match &options.template {
            Some(template) => template.clone(),
            None => Template::find(&model.path)?.ok_or(Error::NoTemplate)?,
        };
        let only = model.vocabulary.as_ref().map(|ids| ids.compact_to_full().to_vec());
        let mut end = tokenizer.stop_ids();
        end.extend_from_slice(&model.generation.stop);
        Ok(Chat {
            sampler: sampler(&options.sampling, only.as_deref())?,
            tokenizer,
            logits: model.next_logits(device, decode)?,
            template,
            only,
            end,
            context: decode.context.unwrap_or(model.config.max_seq).min(model.config.max_seq),
            options,
            messages: Vec::new(),
            draft: None,
        })
    }

    /// Has a draft propose tokens, or none. The distribution of the answers stays the same.
    pub fn set_draft(&mut self, draft: Option<Draft<'a>>) {
        self.draft = draft;
    }

    /// The draft, if there is one.
    pub fn draft(&self) -> Option<&Draft<'a>> {
        self.draft.as_ref()
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces the whole conversation.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// The options as they are now, with all changes.
    pub fn options(&self) -> &ChatOptions {
        &self.options
    }

    /// Changes how tokens are chosen.
    ///
    /// # Errors
    /// [`Error::Generate`] for invalid options; the old ones stay.
    pub fn set_sampling(&mut self, sampling: Sampling) -> Result<(), Error> {
        self.sampler = sampler(&sampling, self.only.as_deref())?;
        self.options.sampling = sampling;
        Ok(())
    }

    /// Changes the largest number of tokens of an answer.
    pub fn set_max_tokens(&mut self, count: Option<usize>) {
        self.options.max_tokens = count;
    }

    /// Sets the system message, which stands before all others; an empty text removes it.
    pub fn set_system(&mut self, text: &str) {
        if self.messages.first().is_some_and(|message| message.role == "system") {
            self.messages.remove(0);
        }
        if !text.is_empty() {
            self.messages.insert(0, Message::new("system", text));
        }
    }

    /// Forgets all messages except for the system message.
    pub fn reset(&mut self) {
        self.messages.retain(|message| message.role == "system");
    }

    /// Takes back the last message of the user and all after it.
    ///
    /// # Errors
    /// [`Error::NothingToUndo`].
    pub fn undo(&mut self) -> Result<(), Error> {
        let last = self.messages.iter().rposition(|message| message.role == "user");
        self.messages.truncate(last.ok_or(Error::NothingToUndo)?);
        Ok(())
    }

    /// Adds a message of the user and the model's answer. `show` gets the answer piece by piece and
    /// may end it.
    ///
    /// # Errors
    /// [`Error::Template`] if the template refuses the conversation, [`Error::TooLong`],
    /// [`Error::Generate`].
    pub fn say(&mut self, text: &str, show: impl FnMut(&str) -> ControlFlow<()>) -> Result<ChatAnswer, Error> {
        self.messages.push(Message::new("user", text));
        let answer = self.answer(show);
        match &answer {
            Ok(answer) => self.messages.push(Message::new("assistant", answer.text.clone())),
            Err(_) => {
                self.messages.pop();
            }
        }
        answer
    }

    fn answer(&mut self, mut show: impl FnMut(&str) -> ControlFlow<()>) -> Result<ChatAnswer, Error> {
        let Chat { tokenizer, template, options, .. } = self;
        let prompt = template.encode(tokenizer, &self.messages, &[], true, &options.variables)?;
        let left = self.context.saturating_sub(prompt.len());
        if left == 0 {
            return Err(Error::TooLong { tokens: prompt.len(), context: self.context });
        }
        let most = options.max_tokens.unwrap_or(left).min(left);
        let mut answer = ChatAnswer {
            text: String::new(),
            finish: Finish::Length,
            prompt_tokens: prompt.len(),
            reused_tokens: self.logits.reused(&prompt),
            tokens: 0,
            first: Duration::ZERO,
            whole: Duration::ZERO,
        };
        let begun = Instant::now();
        let mut stream = tokenizer.stream();
        // Under a grammar the answer is exactly the bytes of its tokens.
        if options.constraint.is_some() {
            stream = stream.continuing();
        }
        let mut stop = StopText::new(&options.stop);
        let mut put = |piece: String, text: &mut String| {
            text.push_str(&piece);
            if piece.is_empty() { ControlFlow::Continue(()) } else { show(&piece) }
        };
        let tokens = generate::Tokens::new(&mut *self.logits, &prompt, most, &mut self.sampler, &[]);
        let mut tokens = tokens.constrained(options.constraint.clone(), &self.end).with_draft(self.draft.as_mut());
        for id in &mut tokens {
            let id = id?;
            if answer.first.is_zero() {
                answer.first = begun.elapsed();
            }
            if self.end.contains(&id) {
                answer.finish = Finish::Stop;
                break;
            }
            answer.tokens += 1;
            let shown = put(stop.push(&stream.push(id)), &mut answer.text);
            if stop.stopped().is_some() {
                answer.finish = Finish::Stop;
                break;
            }
            if shown.is_break() {
                answer.finish = Finish::Cancelled;
                break;
            }
        }
        if answer.finish == Finish::Length && tokens.is_complete() {
            answer.finish = Finish::Stop;
        }
        if stop.stopped().is_none() && answer.finish != Finish::Cancelled {
            let rest = stop.push(&stream.finish()) + &stop.finish();
            // The answer is complete, whatever the caller says now.
            let _ = put(rest, &mut answer.text);
        }
        answer.whole = begun.elapsed();
        Ok(answer)
    }
}

fn sampler(sampling: &Sampling, only: Option<&[u32]>) -> Result<Sampler, Error> {
    let sampler = Sampler::new(sampling).map_err(generate::Error::from)?;
    Ok(match only {
        Some(ids) => sampler.only(ids),
        None => sampler,
    })
}
