//! The four ways to run a request (apple-runtime §5). They use the same model and the same
//! requests. Their relative speed depends on sizes and on the number of loaded models, so the
//! choice is an option of opening.

use ferrane_device::{Error, ErrorKind, Result};

use crate::bind::foundation::Map;
use crate::bind::{Client, InMemoryModel, Model, Program, Request};

/// The values of the option `dispatch`.
pub(crate) const WORDS: [(&str, Dispatch); 4] = [
    ("standard", Dispatch::Standard),
    ("realtime", Dispatch::RealTime),
    ("process-request", Dispatch::ProcessRequest),
    ("direct", Dispatch::Direct),
];

/// The call that runs requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// Through the model's own evaluation method.
    #[default]
    Standard,
    /// Through the shared client at real-time priority.
    RealTime,
    /// Through the inner program of the model.
    ProcessRequest,
    /// Through a client of our own, without the daemon.
    Direct,
}

impl Dispatch {
    /// The value of the option.
    pub(crate) fn word(self) -> &'static str {
        WORDS.iter().find(|(_, d)| *d == self).map_or("", |(word, _)| word)
    }
}

/// A loaded model with the objects that its dispatch needs.
pub(crate) enum Route {
    Standard(InMemoryModel),
    RealTime(Bracket, Model),
    ProcessRequest { program: Program, model: Option<Model>, string_id: u64 },
    Direct(Client, Model),
}

/// A section of real-time requests, ended on drop.
pub(crate) struct Bracket(Client);

impl Drop for Bracket {
    fn drop(&mut self) {
        // It returns NO even when it works.
        let _ = self.0.end_real_time();
    }
}

fn there<T>(found: Option<T>, what: &str) -> Result<T> {
    found.ok_or_else(|| Error::new(ErrorKind::Unavailable, format!("{what}; use `dispatch=standard`")))
}

impl Route {
    /// Creates the route for a loaded model.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if this system lacks an object that the dispatch needs.
    pub(crate) fn new(dispatch: Dispatch, model: &InMemoryModel) -> Result<Route> {
        let inner = || there(model.model()?, "the model has no model inside");
        Ok(match dispatch {
            Dispatch::Standard => Route::Standard(model.clone()),
            Dispatch::RealTime => {
                let client = there(Client::shared()?, "there is no shared client")?;
                // It returns NO, and real-time requests work nevertheless (claim C177).
                client.begin_real_time()?;
                Route::RealTime(Bracket(client), inner()?)
            }
            Dispatch::ProcessRequest => {
                let program = there(model.program()?, "the model has no program inside")?;
                Route::ProcessRequest { program, model: model.model()?, string_id: model.string_id()? }
            }
            Dispatch::Direct => {
                let client = there(Client::restricted(true)?, "there is no client of our own")?;
                Route::Direct(client, inner()?)
            }
        })
    }

    /// Runs a request and waits.
    ///
    /// # Errors
    /// The engine's error.
    pub(crate) fn evaluate(&self, qos: u32, options: &Map, request: &Request) -> Result<()> {
        match self {
            Route::Standard(model) => model.evaluate(qos, options, request),
            Route::RealTime(bracket, model) => bracket.0.evaluate_real_time(model, options, request),
            Route::ProcessRequest { program, model, string_id } => {
                // The driver's status; the error contains it as well.
                let mut status = 0;
                program.process(request, model.as_ref(), qos, 0, *string_id, options, &mut status)
            }
            Route::Direct(client, model) => client.evaluate_direct(model, options, request, qos),
        }
    }
}
