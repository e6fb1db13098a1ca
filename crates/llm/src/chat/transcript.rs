//! Conversations as training data: their ids, and which of them an assistant wrote.

use std::ops::Range;

use serde_json::{Map, Value as Json};

use super::{Error, Message, Template, message};
use crate::tokenizer::Tokenizer;

/// Number of messages of the longest conversation. Each answer is rendered by itself, so the work
/// grows with the square of this.
const MESSAGES: usize = 256;
/// Bytes of the longest conversation, as the template writes it.
const LONGEST: usize = 1 << 20;

/// A conversation as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// The ids of the whole conversation, as [`Template::encode`] gives them.
    pub ids: Vec<u32>,
    /// The tokens that the assistant wrote, in ascending order: its answers with what the template
    /// writes after them, not the marks before them.
    pub written: Vec<Range<usize>>,
}

impl Template {
    /// Encodes a conversation and finds the assistant's part of it. An answer counts if the
    /// template writes it in the conversation as it does at the end of one, after the text that
    /// asks for it: a model never writes an answer that the template shortens later, as some do
    /// with reasoning.
    ///
    /// # Errors
    /// As [`Template::render`]; [`Error::Limit`] for a conversation of more than 256 messages or
    /// more than 1 MiB of text.
    pub fn transcript(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        tools: &[Json],
        extra: &Map<String, Json>,
    ) -> Result<Transcript, Error> {
        if messages.len() > MESSAGES {
            return Err(Error::Limit);
        }
        let (messages, tools) = defused(tokenizer, messages, tools);
        let text = self.render(&messages, &tools, false, extra)?;
        if text.len() > LONGEST {
            return Err(Error::Limit);
        }
        let ids = tokenizer.encode_chat(&text);
        let mut written = Vec::new();
        for (index, _) in messages.iter().enumerate().filter(|(_, message)| message.role == "assistant") {
            let (asked, answered) = (&messages[..index], &messages[..=index]);
            let before = unless_refused(self.render(asked, &tools, true, extra))?;
            let after = unless_refused(self.render(answered, &tools, false, extra))?;
            let (Some(before), Some(after)) = (before, after) else { continue };
            if text.starts_with(&after) && after.starts_with(&before) {
                // A token across a boundary belongs to what follows it.
                let at = |text: &str| common(&tokenizer.encode_chat(text), &ids);
                let range = at(&before)..at(&after);
                written.extend((!range.is_empty()).then_some(range));
            }
        }
        Ok(Transcript { ids, written })
    }
}

/// Messages and tools in which nothing is a control token.
pub(super) fn defused(tokenizer: &Tokenizer, messages: &[Message], tools: &[Json]) -> (Vec<Message>, Vec<Json>) {
    let defuse = &|text: &mut String| *text = tokenizer.defuse(text).into_owned();
    let (mut messages, mut tools) = (messages.to_vec(), tools.to_vec());
    messages.iter_mut().for_each(|message| message.for_each_text(defuse));
    tools.iter_mut().for_each(|tool| message::for_each_string(tool, defuse));
    (messages, tools)
}

/// `None` for a beginning of a conversation that the template does not accept by itself.
fn unless_refused(text: Result<String, Error>) -> Result<Option<String>, Error> {
    match text {
        Err(Error::Refused(_) | Error::Render(_)) => Ok(None),
        text => text.map(Some),
    }
}

/// Number of ids that both begin with.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}.\n{% endfor %}\
        {% if add_generation_prompt %}[assistant]{% endif %}";

    fn tokenizer() -> Tokenizer {
        Tokenizer::train("the cat sat on the mat, what is it, an answer", 290).unwrap()
    }

    fn conversation(turns: &[(&str, &str)]) -> Vec<Message> {
        turns.iter().map(|(role, text)| Message::new(*role, *text)).collect()
    }

    fn written(template: &Template, messages: &[Message]) -> Vec<String> {
        let tokenizer = tokenizer();
        let found = template.transcript(&tokenizer, messages, &[], &Map::new()).unwrap();
        let whole = template.encode(&tokenizer, messages, &[], false, &Map::new()).unwrap();
        assert_eq!(found.ids, whole);
        found.written.into_iter().map(|range| tokenizer.decode(&whole[range])).collect()
    }

    #[test]
    fn answers_with_their_ends_are_what_the_assistant_wrote() {
        let template = Template::new(TEMPLATE).unwrap();
        let messages =
            conversation(&[("user", "hello"), ("assistant", "an answer"), ("user", "it"), ("assistant", "b")]);
        let found = written(&template, &messages);
        assert_eq!(found.iter().map(|text| text.trim()).collect::<Vec<_>>(), ["an answer.", "b."]);
        assert!(written(&template, &messages[..1]).is_empty());
        // The mark of the role is not the assistant's, even in the first message.
        assert_eq!(written(&template, &messages[1..2])[0].trim(), "an answer.");
    }

    #[test]
    fn answers_that_the_template_changes_later_do_not_count() {
        let source = "{% for m in messages %}[{{ m.role }}]{{ m.content if loop.last else m.content[:2] }}.\n{% endfor %}\
            {% if add_generation_prompt %}[assistant]{% endif %}";
        let messages =
            conversation(&[("user", "he"), ("assistant", "answer"), ("user", "it"), ("assistant", "what is")]);
        let found = written(&Template::new(source).unwrap(), &messages);
        assert_eq!(found.iter().map(|text| text.trim()).collect::<Vec<_>>(), ["what is."]);
    }

    #[test]
    fn conversations_beyond_the_limits_are_refused() {
        let (template, tokenizer) = (Template::new(TEMPLATE).unwrap(), tokenizer());
        for messages in [vec![Message::new("user", "a"); MESSAGES + 1], vec![Message::new("user", "a".repeat(LONGEST))]]
        {
            let found = template.transcript(&tokenizer, &messages, &[], &Map::new());
            assert!(matches!(found, Err(Error::Limit)));
        }
        let raising = Template::new("{{ raise_exception('no') }}").unwrap();
        let found = raising.transcript(&tokenizer, &conversation(&[("user", "a")]), &[], &Map::new());
        assert!(matches!(found, Err(Error::Refused(_))));
    }
}
