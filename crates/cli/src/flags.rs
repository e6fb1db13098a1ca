//! Translates field names in library errors to flags of the command.
//!
//! A library writes the name of an option's field in backquotes, `` `min_lr` ``; on the command
//! line it is `--min-lr`. Remedies that exist only in the command, such as `--resume`, are added
//! here.

use std::error::Error;

use ferrane::ModelError;
use ferrane::llm::{chat, config, export, generate, model, sample};
use ferrane::mil::grad::GradError;
use ferrane::mil::package::PackageError;
use ferrane::train::session::{SessionError, SessionOptions};
use ferrane::train::{data, lora, run};

/// Option fields of `generate` and `chat` that a session does not have.
const GENERATE: [&str; 10] = [
    "prompt",
    "weights_type",
    "template",
    "top_p",
    "temperature",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
];

/// Option fields of adapters that are trained.
const ADAPTERS: [&str; 2] = ["lora_alpha", "lora_targets"];

/// Option fields of `bench` that a session does not have.
const BENCH: [&str; 4] = ["repeat", "shape", "tokens", "vocab"];

/// Limits of a server whose flags have other names than their fields.
const SERVER: [(&str, &str); 3] = [("body", "max-body"), ("request_time", "timeout"), ("origins", "allow-origin")];

/// Option fields of `export` that a session does not have.
const EXPORT: [&str; 2] = ["context", "prefill"];

/// The message of an error, with flags instead of field names if it is an error of models or
/// training.
pub fn spell(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    if let Some(text) = of_program(error, &text) {
        return text;
    }
    if let Some(ferrane_serve::Error::Option { name, .. }) = error.downcast_ref() {
        let flag = SERVER.iter().find(|(field, _)| field == name).map_or(*name, |(_, flag)| *flag);
        return text.replacen(&format!("`{name}`"), &format!("--{}", flag.replace('_', "-")), 1);
    }
    let of_options = error.is::<SessionError>()
        || error.is::<run::Error>()
        || error.is::<lora::Error>()
        || error.is::<data::Error>()
        || error.is::<model::Error>()
        || error.is::<generate::Error>()
        || error.is::<config::Error>()
        || error.is::<sample::Error>()
        || error.is::<chat::ChatError>()
        || error.is::<export::Error>()
        || error.is::<ferrane_perf::Error>();
    if !of_options {
        return text;
    }
    let options = serde_json::to_value(SessionOptions::default()).unwrap_or_default();
    let fields = options.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str));
    let names = fields.chain(["vocabulary"]).chain(GENERATE).chain(BENCH).chain(EXPORT).chain(ADAPTERS);
    names.fold(text, |text, name| text.replace(&format!("`{name}`"), &format!("--{}", name.replace('_', "-"))))
}

/// The message of an error about a program or its file, if it names a field or lacks a remedy.
fn of_program(error: &(dyn Error + 'static), text: &str) -> Option<String> {
    match error.downcast_ref() {
        // A transparent error stands for the one in it.
        Some(ModelError::Package(inner)) => return of_program(inner, text),
        Some(ModelError::Shapes { .. }) => return Some(text.replacen("`shapes`", "--shape", 1)),
        Some(ModelError::Function { .. }) => return Some(text.replacen("`function`", "--function", 1)),
        Some(ModelError::NoImage { .. }) => return Some(text.replacen("`format`", "--output-format", 1)),
        _ => {}
    }
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(PackageError::Exists { path }), _) => Some(format!("{}: exists; --force replaces it", path.display())),
        (Some(PackageError::OtherWeights { .. }), _) => {
            Some(format!("{text}; --force replaces it, or give -o another folder"))
        }
        (_, Some(GradError::NoFloats { what, .. })) => {
            Some(text.replace(&format!("in `{what}s`"), &format!("with --{what}")))
        }
        _ => None,
    }
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
        let shapes = ModelError::Shapes { text: "`shapes`".into(), reason: "no choice".into() };
        assert_eq!(spell(&shapes), "--shape `shapes`: no choice");
        let function = || "main".to_string();
        assert!(spell(&ModelError::NoImage { function: function() }).starts_with("--output-format png: `main` has no"));
        let ints = GradError::NoFloats { function: function(), what: "output" };
        assert!(spell(&ints).ends_with("name a value with --output"), "{}", spell(&ints));
        let exists = PackageError::Exists { path: "a.mil".into() };
        assert_eq!(spell(&exists), "a.mil: exists; --force replaces it");
        // Messages of other errors stay unchanged.
        let other = ferrane::Error::new(ferrane::ErrorKind::QueueFull, "the port `data`");
        assert!(spell(&other).contains("`data`"));
    }
}
