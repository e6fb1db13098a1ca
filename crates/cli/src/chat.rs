//! `ferrane chat`: a conversation with a model, in a terminal or through pipes.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ferrane::llm::chat::{self, ChatAnswer, ChatOptions, Message, Template};
use ferrane::llm::decode;
use ferrane::llm::sample::Sampling;
use rustyline::error::ReadlineError;
use serde_json::{Value, json};

use crate::args::Chat as Args;
use crate::error::{Error, Result};
use crate::{files, model, out};

const HELP: &str = "\
/help                 this list
/system TEXT          set the system message; without TEXT, remove it
/reset                begin again, with the system message
/undo                 take back the last message and its answer
/save FILE            write the conversation as JSON
/load FILE            continue a written conversation
/set NAME VALUE       change temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty,
                      frequency_penalty, penalty_window, seed or max_tokens; VALUE none removes it
/stats                tokens and rates of the last answer, and the options
/exit                 end";

/// The longest line that is read from a pipe.
const LONGEST_LINE: u64 = 16 << 20;

/// Talks until the input ends.
pub fn run(args: Args) -> Result<()> {
    let device = model::device(&args.device.device)?;
    let companions = &args.companions;
    let opened = model::open_adapted(&args.model, args.tokenizer.as_deref(), &companions.adapter)?;
    let small = model::open_draft(companions, &opened)?;
    let options = ChatOptions {
        sampling: args.sampling.sampling(&opened.generation, args.seed),
        max_tokens: args.max_tokens,
        stop: args.sampling.stop.clone(),
        template: args.template.as_deref().map(template).transpose()?,
        variables: args.set.iter().map(|text| variable(text)).collect::<Result<_>>()?,
        constraint: model::constraint(&opened, &args.grammar)?,
    };
    let decode = decode::Options { weights: args.weights_type.into(), ..decode::Options::default() };
    let mut chat = chat::Chat::new(&opened, device.as_ref(), decode, options)?;
    chat.set_draft(model::draft(small.as_ref(), device.as_ref(), decode, companions)?);
    if let Some(system) = &args.system {
        chat.set_system(system);
    }
    let mut input = match args.message.is_empty() {
        true => Input::new(args.history.as_deref(), args.json)?,
        false => Input::Given(args.message.into()),
    };
    let mut desk = Desk { chat, json: args.json, last: None, interrupt: Interrupt::new()? };
    if input.is_terminal() && !args.json {
        out::note("Type a message, or /help for commands. Ctrl-D ends.");
    }
    // In a pipe a failed turn is the command's failure; in a terminal the user tries again.
    let mut failed = false;
    while let Some(text) = input.next()? {
        match desk.take(&text) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(error) if error.is_closed() => return Err(error),
            Err(error) => {
                failed = true;
                desk.report(&error)?;
            }
        }
    }
    input.keep()?;
    if failed && !input.is_terminal() { Err(Error::told()) } else { Ok(()) }
}

/// A conversation and what is shown of it.
struct Desk<'a> {
    chat: chat::Chat<'a>,
    json: bool,
    last: Option<ChatAnswer>,
    interrupt: Interrupt,
}

impl Desk<'_> {
    /// Does what a line says: a command, or a message.
    fn take(&mut self, text: &str) -> Result<ControlFlow<()>> {
        let text = text.trim_end_matches(['\r', '\n']);
        if text.trim().is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(command) = text.strip_prefix('/') else {
            self.say(text)?;
            return Ok(ControlFlow::Continue(()));
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        match (name, rest.trim()) {
            ("help", _) => self.tell(HELP, json!({"help": HELP}))?,
            ("system", text) => self.chat.set_system(text),
            ("reset", _) => self.chat.reset(),
            ("undo", _) => self.chat.undo()?,
            ("save", "") | ("load", "") => return Err(Error::new(format!("/{name} needs a file"))),
            ("save", file) => {
                let text = serde_json::to_string_pretty(self.chat.messages())?;
                files::replace(Path::new(file), text.as_bytes())?;
            }
            ("load", file) => {
                let messages: Vec<Message> = serde_json::from_slice(&files::read(Path::new(file))?)
                    .map_err(|e| Error::new(format!("{file}: not a conversation: {e}")))?;
                self.chat.set_messages(messages);
            }
            ("set", rest) => self.set(rest)?,
            ("stats", _) => self.stats()?,
            ("exit" | "quit", _) => return Ok(ControlFlow::Break(())),
            _ => return Err(Error::new(format!("unknown command `/{name}`; /help lists them"))),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Sends a message and shows the answer as it is made.
    fn say(&mut self, text: &str) -> Result<()> {
        let Desk { chat, json, interrupt, .. } = self;
        let mut shown = Ok(());
        interrupt.begin();
        let answer = chat.say(text, |piece| {
            let text = piece;
            shown = if *json { out::json(&json!({"piece": text})) } else { out::print(text) };
            if shown.is_err() || interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        interrupt.end();
        shown?;
        let answer = answer?;
        if self.json {
            out::json(&json!({"answer": answer.text, "finish": answer.finish, "stats": stats(&answer)}))?;
        } else {
            out::line("")?;
        }
        self.last = Some(answer);
        Ok(())
    }

    /// `/set NAME VALUE`.
    fn set(&mut self, rest: &str) -> Result<()> {
        let Some((name, value)) = rest.split_once(char::is_whitespace) else {
            return Err(Error::new("/set needs a name and a value, such as /set temperature 0.7"));
        };
        let value = value.trim();
        let none = value == "none";
        let parsed: Value = match value {
            "none" => Value::Null,
            _ => serde_json::from_str(value).map_err(|_| Error::new(format!("`{value}` is not a number")))?,
        };
        if name == "max_tokens" {
            let count = parsed.as_u64().and_then(|count| usize::try_from(count).ok());
            if count.is_none() && !none {
                return Err(Error::new(format!("`{value}` is not a whole number")));
            }
            self.chat.set_max_tokens(count);
            return Ok(());
        }
        // The options know their own names and types.
        let mut options = serde_json::to_value(&self.chat.options().sampling)?;
        let Some(field) = options.get_mut(name) else {
            return Err(Error::new(format!("no option is named `{name}`; /help lists them")));
        };
        *field = if none { serde_json::to_value(Sampling::default())?[name].clone() } else { parsed };
        let sampling = serde_json::from_value(options).map_err(|e| Error::new(format!("{name} {value}: {e}")))?;
        Ok(self.chat.set_sampling(sampling)?)
    }

    /// `/stats`.
    fn stats(&mut self) -> Result<()> {
        // By way of text, so that 0.7 stays 0.7 and does not become the nearest single-precision
        // number.
        let options: Value = serde_json::from_str(&serde_json::to_string(&self.chat.options().sampling)?)?;
        let Some(last) = &self.last else {
            return self
                .tell(&format!("no answer yet\noptions: {options}"), json!({"stats": null, "options": options}));
        };
        let values = stats(last);
        let mut text = format!(
            "{} messages; prompt of {} tokens, {} reused, first token after {:.2} s; answer of {} tokens at {:.1} tokens/s\n\
             options: {options}",
            self.chat.messages().len(),
            last.prompt_tokens,
            last.reused_tokens,
            last.first.as_secs_f64(),
            last.tokens,
            values["tokens_per_second"].as_f64().unwrap_or(0.0),
        );
        let mut json = json!({"stats": values, "options": options});
        if let Some(draft) = self.chat.draft() {
            text += &format!("\n{}", model::draft_text(draft.stats()));
            json["draft"] = model::draft_json(draft.stats());
        }
        self.tell(&text, json)
    }

    fn tell(&self, text: &str, json: Value) -> Result<()> {
        if self.json { out::json(&json) } else { out::line(text) }
    }

    fn report(&self, error: &Error) -> Result<()> {
        if self.json {
            return out::json(&json!({"error": error.to_string()}));
        }
        out::note(format_args!("error: {error}"));
        Ok(())
    }
}

fn stats(answer: &ChatAnswer) -> Value {
    let decode = (answer.whole - answer.first).as_secs_f64();
    json!({
        "prompt_tokens": answer.prompt_tokens, "reused_tokens": answer.reused_tokens, "tokens": answer.tokens,
        "seconds_to_first_token": answer.first.as_secs_f64(), "seconds": answer.whole.as_secs_f64(),
        // The first token belongs to the prompt.
        "tokens_per_second": answer.tokens.saturating_sub(1) as f64 / decode.max(1e-9),
    })
}

fn template(path: &Path) -> Result<Template> {
    let bytes = files::read(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
    Template::new(text).map_err(|e| Error::new(format!("{}: {e}", path.display())))
}

/// `NAME=VALUE`, where the value is JSON if it can be read as such.
fn variable(text: &str) -> Result<(String, Value)> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| Error::new(format!("--set {text}: not of the form NAME=VALUE")))?;
    Ok((name.to_string(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// Lines from a line editor, from a pipe, or from the command line.
enum Input<'a> {
    Given(VecDeque<String>),
    Editor(Box<rustyline::DefaultEditor>, Option<&'a Path>),
    Pipe,
}

impl<'a> Input<'a> {
    fn new(history: Option<&'a Path>, json: bool) -> Result<Input<'a>> {
        if json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(Input::Pipe);
        }
        let mut editor = rustyline::DefaultEditor::new()?;
        if let Some(path) = history.filter(|path| path.exists()) {
            editor.load_history(path).map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
        }
        Ok(Input::Editor(Box::new(editor), history))
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Input::Editor(..))
    }

    /// The next line, with those that it continues on; `None` at the end.
    fn next(&mut self) -> Result<Option<String>> {
        if let Input::Given(messages) = self {
            return Ok(messages.pop_front());
        }
        let mut text = String::new();
        loop {
            let Some(line) = self.line(if text.is_empty() { "> " } else { ". " })? else {
                return Ok((!text.is_empty()).then_some(text));
            };
            let line = line.trim_end_matches(['\r', '\n']);
            match line.strip_suffix('\\') {
                Some(begun) => text = text + begun + "\n",
                None => {
                    text += line;
                    break;
                }
            }
        }
        if let (Input::Editor(editor, _), false) = (&mut *self, text.trim().is_empty()) {
            editor.add_history_entry(&text)?;
        }
        Ok(Some(text))
    }

    fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        match self {
            Input::Editor(editor, _) => match editor.readline(prompt) {
                Ok(line) => Ok(Some(line)),
                // Ctrl-C at the prompt discards the line.
                Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
                Err(ReadlineError::Eof) => Ok(None),
                Err(error) => Err(error.into()),
            },
            Input::Given(messages) => Ok(messages.pop_front()),
            Input::Pipe => {
                let mut line = Vec::new();
                let mut input = io::Read::take(io::stdin().lock(), LONGEST_LINE);
                input.read_until(b'\n', &mut line).map_err(|e| Error::new(format!("standard input: {e}")))?;
                if line.len() as u64 == LONGEST_LINE {
                    return Err(Error::new(format!("standard input: a line has more than {LONGEST_LINE} bytes")));
                }
                let line = String::from_utf8(line).map_err(|_| Error::new("standard input: not UTF-8"))?;
                Ok((!line.is_empty()).then_some(line))
            }
        }
    }

    /// Writes the history to its file.
    fn keep(&mut self) -> Result<()> {
        if let Input::Editor(editor, Some(path)) = self {
            let path: &Path = path;
            editor.save_history(path).map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
        }
        Ok(())
    }
}

/// Ctrl-C: ends the answer at hand; while none is made, the command.
struct Interrupt(Arc<AtomicU8>);

const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const INTERRUPTED: u8 = 2;

impl Interrupt {
    fn new() -> Result<Interrupt> {
        let state = Arc::new(AtomicU8::new(IDLE));
        let seen = state.clone();
        let handle = move || {
            let changed = seen.compare_exchange(ANSWERING, INTERRUPTED, Ordering::SeqCst, Ordering::SeqCst);
            if changed.is_err() {
                std::process::exit(130);
            }
        };
        ctrlc::set_handler(handle).map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))?;
        Ok(Interrupt(state))
    }

    fn begin(&self) {
        self.0.store(ANSWERING, Ordering::SeqCst);
    }

    fn end(&self) {
        self.0.store(IDLE, Ordering::SeqCst);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) == INTERRUPTED
    }
}
