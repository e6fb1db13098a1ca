//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

use super::body;
use crate::app::App;
use crate::error::ApiError;
use crate::reply::{ChatReply, ReplyForm, streamed, whole};
use crate::request::Chat;
use crate::schedule::{Client, OutputKind, Plan};

pub async fn chat(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = body::json(request, app.options.body).await?;
    let asked = Chat::read(body, &app.name, &app.defaults, app.options.choices)?;
    let shared = app.clone();
    // Rendering and encoding a long chat, or compiling a schema, would keep other requests of this
    // thread waiting.
    let prepared = tokio::task::spawn_blocking(move || {
        let ids = shared.chat_ids(&asked)?;
        let constraint = shared.chat_constraint(&asked)?;
        Ok::<_, ApiError>((asked, ids, constraint))
    });
    let (asked, prompt, constraint) = prepared.await.map_err(|e| ApiError::internal(e.to_string()))??;
    let max_tokens = app.room("messages", prompt.len(), asked.max_tokens)?;
    let plan = app.plan(&asked.common, max_tokens, asked.logprobs, OutputKind::Answer);
    let plan = Plan { constraint, ..plan };
    let (form, n) = (ReplyForm::of(&asked.common, asked.logprobs.is_some()), asked.common.n);
    let reply = ChatReply::new(app.head("chatcmpl"), app.model.clone(), form, &asked.tool_names());
    let events = app.submit(&client, vec![prompt], plan, n)?;
    if form.stream { streamed(events, reply, n).await } else { whole(events, reply, n).await }
}
