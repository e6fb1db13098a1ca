//! `POST /v1/completions`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use ferrane_llm::grammar::Constraint;

use super::body;
use crate::app::App;
use crate::error::ApiError;
use crate::reply::{CompletionReply, ReplyForm, streamed, whole};
use crate::request::Completion;
use crate::schedule::{Client, OutputKind, Plan};

pub async fn completions(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = body::json(request, app.options.body).await?;
    let asked = Completion::read(body, &app.name, &app.defaults, app.options.choices)?;
    let shared = app.clone();
    // Encoding a long text would keep other requests of this thread waiting.
    let prepared = tokio::task::spawn_blocking(move || prepare(&shared, asked)).await;
    let (asked, prompts, echo, constraint) = prepared.map_err(|e| ApiError::internal(e.to_string()))??;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let max_tokens = match asked.max_tokens {
        // What the client did not ask for need not fit.
        None => app.room("prompt", longest, None)?.min(Completion::TOKENS),
        wanted => app.room("max_tokens", longest, wanted)?,
    };
    let plan = app.plan(&asked.common, max_tokens, asked.logprobs, OutputKind::Continuation);
    let plan = Plan { echo: asked.echo, constraint, ..plan };
    let (form, n) = (ReplyForm::of(&asked.common, asked.logprobs.is_some()), asked.common.n);
    let choices = prompts.len() * n;
    let echo = echo.into_iter().flat_map(|text| std::iter::repeat_n(text, n)).collect();
    let reply = CompletionReply::new(app.head("cmpl"), app.model.clone(), form, echo);
    let events = app.submit(&client, prompts, plan, n)?;
    if form.stream { streamed(events, reply, choices).await } else { whole(events, reply, choices).await }
}

type Prepared = (Completion, Vec<Vec<u32>>, Vec<Option<String>>, Option<Constraint>);

/// The tokens of the prompts, their texts if they are part of the output, and its grammar.
fn prepare(app: &App, asked: Completion) -> Result<Prepared, ApiError> {
    let prompts: Vec<Vec<u32>> =
        asked.prompts.iter().map(|prompt| app.prompt_ids("prompt", prompt)).collect::<Result<_, _>>()?;
    let tokenizer = app.model.tokenizer().map_err(|e| ApiError::internal(e.to_string()))?;
    let text = |ids: &Vec<u32>| {
        let mut stream = tokenizer.stream();
        ids.iter().map(|&id| stream.push(id)).collect::<String>()
    };
    let echo = prompts.iter().map(|ids| asked.echo.then(|| text(ids))).collect();
    let constraint = app.constraint("response_format", asked.common.format.as_ref())?;
    Ok((asked, prompts, echo, constraint))
}
