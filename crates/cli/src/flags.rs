//! Translates field names in library errors to flags of the command.
//!
//! A library writes the name of an option's field in backquotes, `` `min_lr` ``; on the command
//! line it is `--min-lr`. Remedies that exist only in the command, such as `--resume`, are added
//! here.

use std::error::Error;

use ferrane::llm::{config, generate, model, sample};
use ferrane::train::session::{SessionError, SessionOptions};
use ferrane::train::{data, run};

/// Option fields of `generate` that a session does not have.
const GENERATE: [&str; 4] = ["prompt", "weights_type", "top_p", "temperature"];

/// Option fields of `bench` that a session does not have.
const BENCH: [&str; 4] = ["repeat", "shape", "tokens", "vocab"];

/// The message of an error, with flags instead of field names if it is an error of models or
/// training.
pub fn spell(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    let of_options = error.is::<SessionError>()
        || error.is::<run::Error>()
        || error.is::<data::Error>()
        || error.is::<model::Error>()
        || error.is::<generate::Error>()
        || error.is::<config::Error>()
        || error.is::<sample::Error>()
        || error.is::<ferrane_perf::Error>();
    if !of_options {
        return text;
    }
    let options = serde_json::to_value(SessionOptions::default()).unwrap_or_default();
    let fields = options.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str));
    let names = fields.chain(["vocabulary"]).chain(GENERATE).chain(BENCH);
    names.fold(text, |text, name| text.replace(&format!("`{name}`"), &format!("--{}", name.replace('_', "-"))))
}

/// The remedy on the command line, for errors whose message cannot name it.
pub fn remedy(error: &(dyn Error + 'static)) -> Option<String> {
    let session = error.downcast_ref::<SessionError>();
    // A transparent error stands for the one in it, which the chain of causes leaves out.
    let model = match (session, error.downcast_ref::<generate::Error>()) {
        (Some(SessionError::Model(model)), _) | (_, Some(generate::Error::Model(model))) => Some(model),
        _ => error.downcast_ref::<model::Error>(),
    };
    match (session, model) {
        (_, Some(model::Error::Missing(_))) => Some("`ferrane train` makes one.".into()),
        (Some(SessionError::NothingToResume(_)), _) => Some("Leave --resume out to begin a run.".into()),
        (Some(SessionError::OtherStart { field, .. }), _) => {
            Some(format!("Leave --{field} out, or begin another run with another --out."))
        }
        (Some(SessionError::Run(run::Error::Exists { .. })), _) => Some("Give --resume to continue it.".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_flags() {
        let refused = run::RunOptions { min_lr: Some(-1.0), ..Default::default() }.check().unwrap_err();
        assert!(spell(&refused).starts_with("--min-lr -1: must be"), "{}", spell(&refused));
        let nested = SessionError::from(data::Error::TooShort { found: 1, need: 2, seq: 3 });
        assert!(spell(&nested).ends_with("a smaller --seq"), "{}", spell(&nested));
        // Messages of other errors stay unchanged.
        let other = ferrane::Error::new(ferrane::ErrorKind::QueueFull, "the port `data`");
        assert!(spell(&other).contains("`data`"));
    }
}
