//! `adapter_config.json`: which modules an adapter changes, with which rank and scale.

use std::path::Path;

use fancy_regex::Regex;
use serde_json::{Map, Value};

use super::Error;

/// Fields without an effect on the result: where the adapter came from, how it was trained, and
/// settings of options that are off. A linear layer stores its matrix in one order only, so PEFT
/// ignores `fan_in_fan_out` for it.
const HARMLESS: [&str; 17] = [
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// Initializations that leave the model's own weights as they are. The others (PiSSA, OLoRA, …)
/// change them, so such an adapter belongs to other weights.
const PLAIN_INIT: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// The modules that an adapter changes.
#[derive(Debug)]
enum Targets {
    /// Names, or ends of names after a dot.
    Names(Vec<String>),
    /// The whole name matches.
    Pattern(Regex),
    /// Every linear layer except for the classifier.
    AllLinear,
}

impl Targets {
    fn read(value: &Value, field: &'static str, path: &Path) -> Result<Targets, Error> {
        match value {
            Value::String(text) if text.eq_ignore_ascii_case("all-linear") => Ok(Targets::AllLinear),
            Value::String(text) => Ok(Targets::Pattern(pattern(&format!("^(?:{text})$"), field, path)?)),
            Value::Array(list) => {
                let names = list.iter().map(|name| name.as_str().map(str::to_string)).collect::<Option<_>>();
                names.map(Targets::Names).ok_or_else(|| bad(path, field, "must be a list of names"))
            }
            _ => Err(bad(path, field, "must be a list of names or a text")),
        }
    }

    fn contains(&self, module: &str) -> Result<bool, Error> {
        match self {
            Targets::AllLinear => Ok(module != "lm_head"),
            Targets::Names(names) => Ok(names.iter().any(|name| ends_with(module, name))),
            Targets::Pattern(pattern) => matches(pattern, module),
        }
    }
}

/// Whether a module's name is `name` or ends with it after a dot.
fn ends_with(module: &str, name: &str) -> bool {
    module.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

fn pattern(text: &str, field: &'static str, path: &Path) -> Result<Regex, Error> {
    Regex::new(text).map_err(|e| bad(path, field, &format!("`{text}`: {e}")))
}

fn matches(pattern: &Regex, module: &str) -> Result<bool, Error> {
    let failed = |e: fancy_regex::Error| Error::Pattern { pattern: pattern.as_str().into(), reason: e.to_string() };
    pattern.is_match(module).map_err(failed)
}

fn bad(path: &Path, field: &str, reason: &str) -> Error {
    Error::Field { file: path.display().to_string(), field: field.into(), reason: reason.into() }
}

/// What a configuration says about modules.
#[derive(Debug)]
pub(super) struct LoraConfig {
    rank: usize,
    alpha: f64,
    /// Whether the scale is divided by the root of the rank instead of the rank.
    root: bool,
    targets: Targets,
    excluded: Option<Targets>,
    /// Layers that are changed; `None`: all.
    layers: Option<Vec<usize>>,
    ranks: Vec<(Regex, f64)>,
    alphas: Vec<(Regex, f64)>,
}

/// Whether a value switches an option off.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

impl LoraConfig {
    pub(super) fn open(path: &Path) -> Result<LoraConfig, Error> {
        let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
        let fields = serde_json::from_slice(&bytes);
        let fields = fields.map_err(|e| bad(path, "the file", &format!("is not a JSON object: {e}")))?;
        LoraConfig::read(fields, path)
    }

    fn read(mut fields: Map<String, Value>, path: &Path) -> Result<LoraConfig, Error> {
        let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
        match take("peft_type") {
            Some(Value::String(kind)) if kind == "LORA" => {}
            other => {
                let found = other.map_or("absent".into(), |other| other.to_string());
                return Err(bad(path, "peft_type", &format!("is {found}; only \"LORA\" is supported")));
            }
        }
        match take("bias") {
            None => {}
            Some(Value::String(kind)) if kind == "none" => {}
            Some(other) => return Err(bad(path, "bias", &format!("is {other}; only \"none\" is supported"))),
        }
        match take("init_lora_weights") {
            None | Some(Value::Bool(_)) => {}
            Some(Value::String(kind)) if PLAIN_INIT.contains(&kind.as_str()) => {}
            Some(other) => {
                let reason = format!("is {other}, which changes the weights of the model itself; convert the adapter");
                return Err(bad(path, "init_lora_weights", &reason));
            }
        }
        let rank = take("r").unwrap_or(Value::from(8));
        let rank = rank.as_u64().and_then(|r| usize::try_from(r).ok()).filter(|r| *r > 0);
        let alpha = take("lora_alpha").unwrap_or(Value::from(8)).as_f64().filter(|alpha| alpha.is_finite());
        let root = match take("use_rslora") {
            None => false,
            Some(value) => value.as_bool().ok_or_else(|| bad(path, "use_rslora", "must be true or false"))?,
        };
        let targets = take("target_modules").ok_or_else(|| bad(path, "target_modules", "is absent"))?;
        let excluded = take("exclude_modules").filter(|value| !is_off(value));
        let layers = take("layers_to_transform").filter(|value| !is_off(value));
        let (ranks, alphas) = (take("rank_pattern"), take("alpha_pattern"));
        let config = LoraConfig {
            rank: rank.ok_or_else(|| bad(path, "r", "must be a whole number above 0"))?,
            alpha: alpha.ok_or_else(|| bad(path, "lora_alpha", "must be a finite number"))?,
            root,
            targets: Targets::read(&targets, "target_modules", path)?,
            excluded: excluded.map(|value| Targets::read(&value, "exclude_modules", path)).transpose()?,
            layers: layers.map(|value| indices(&value, path)).transpose()?,
            ranks: patterns(ranks, "rank_pattern", path)?,
            alphas: patterns(alphas, "alpha_pattern", path)?,
        };
        // Each field of a newer version is accepted only while it is off.
        let changes = |(name, value): &(&String, &Value)| !HARMLESS.contains(&name.as_str()) && !is_off(value);
        match fields.iter().find(changes) {
            Some((name, value)) => {
                let reason = format!("is {value}, which is not supported; an adapter that ignored it would be wrong");
                Err(bad(path, name, &reason))
            }
            None => Ok(config),
        }
    }

    /// Whether PEFT adapts this module.
    pub(super) fn selects(&self, module: &str, layer: usize) -> Result<bool, Error> {
        if self.excluded.as_ref().map_or(Ok(false), |excluded| excluded.contains(module))? {
            return Ok(false);
        }
        let here = self.layers.as_ref().is_none_or(|layers| layers.contains(&layer));
        Ok(here && self.targets.contains(module)?)
    }

    /// Rank and scale of a module.
    pub(super) fn rank_and_scale(&self, module: &str) -> Result<(usize, f64), Error> {
        let rank = first(&self.ranks, module)?.map_or(self.rank, |rank| rank as usize);
        let alpha = first(&self.alphas, module)?.unwrap_or(self.alpha);
        let rank_of_scale = if self.root { (rank as f64).sqrt() } else { rank as f64 };
        Ok((rank, alpha / rank_of_scale))
    }
}

/// The value of the first pattern that matches the end of a module's name.
fn first(patterns: &[(Regex, f64)], module: &str) -> Result<Option<f64>, Error> {
    for (pattern, value) in patterns {
        if matches(pattern, module)? {
            return Ok(Some(*value));
        }
    }
    Ok(None)
}

/// A map from patterns to numbers; ranks must be whole.
fn patterns(value: Option<Value>, field: &'static str, path: &Path) -> Result<Vec<(Regex, f64)>, Error> {
    let map = match value {
        None => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(bad(path, field, "must be an object")),
    };
    let whole = field == "rank_pattern";
    let entry = |(key, value): (&String, &Value)| {
        let number = value.as_f64().filter(|n| n.is_finite() && (!whole || (*n >= 1.0 && n.fract() == 0.0)));
        let number = number.ok_or_else(|| bad(path, field, &format!("`{key}` is {value}")))?;
        Ok((pattern(&format!("^(?:.*\\.)?(?:{key})$"), field, path)?, number))
    };
    map.iter().map(entry).collect()
}

/// An index of a layer, or a list of them.
fn indices(value: &Value, path: &Path) -> Result<Vec<usize>, Error> {
    let index = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    let list = match value {
        Value::Array(list) => list.iter().map(index).collect(),
        one => index(one).map(|index| vec![index]),
    };
    list.ok_or_else(|| bad(path, "layers_to_transform", "must be indices of layers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(fields: &Value) -> Result<LoraConfig, Error> {
        let mut all = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": ["q_proj"]});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        LoraConfig::read(all.as_object().unwrap().clone(), Path::new("adapter_config.json"))
    }

    #[test]
    fn modules_are_selected_as_peft_does() {
        let module = "model.layers.1.self_attn.q_proj";
        for (fields, module, selected) in [
            (json!({}), module, true),
            (json!({}), "model.layers.1.self_attn.k_proj", false),
            // A name is not a part of a name.
            (json!({"target_modules": ["proj"]}), module, false),
            (json!({"target_modules": ["self_attn.q_proj"]}), module, true),
            (json!({"target_modules": "all-linear"}), "lm_head", false),
            (json!({"target_modules": "All-Linear"}), module, true),
            (json!({"target_modules": r".*\.[01]\.self_attn\.(q|v)_proj"}), module, true),
            (json!({"target_modules": "q_proj"}), module, false),
            (json!({"target_modules": r"(?!.*\.1\.).*q_proj"}), module, false),
            (json!({"exclude_modules": ["q_proj"]}), module, false),
            (json!({"exclude_modules": r".*\.0\..*"}), module, true),
            (json!({"layers_to_transform": [0, 2]}), module, false),
            (json!({"layers_to_transform": 1}), module, true),
        ] {
            assert_eq!(read(&fields).unwrap().selects(module, 1).unwrap(), selected, "{fields} {module}");
        }
    }

    #[test]
    fn ranks_and_scales() {
        let module = "model.layers.1.self_attn.q_proj";
        for (fields, rank, scale) in [
            (json!({}), 4, 1.5),
            (json!({"use_rslora": true}), 4, 3.0),
            (json!({"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"k_proj": 100}}), 2, 3.0),
            (json!({"rank_pattern": {"roj": 2}, "alpha_pattern": {"layers.1.*": 8}}), 4, 2.0),
            (json!({"rank_pattern": {"q_proj": 16, ".*": 2}, "use_rslora": true}), 16, 1.5),
        ] {
            assert_eq!(read(&fields).unwrap().rank_and_scale(module).unwrap(), (rank, scale), "{fields}");
        }
    }

    #[test]
    fn fields_that_change_the_result_are_named() {
        for (field, value) in [
            ("peft_type", json!("LOHA")),
            ("peft_type", Value::Null),
            ("bias", json!("all")),
            ("use_dora", json!(true)),
            ("modules_to_save", json!(["lm_head"])),
            ("init_lora_weights", json!("pissa_niter_4")),
            ("layer_replication", json!([[0, 1]])),
            ("lora_bias", json!(true)),
            ("use_qalora", json!(true)),
            ("trainable_token_indices", json!([3])),
            ("invented_later", json!(0.5)),
            ("r", json!(0)),
            ("r", json!(-1)),
            ("lora_alpha", json!("x")),
            ("use_rslora", json!("yes")),
            ("target_modules", Value::Null),
            ("target_modules", json!("(")),
            ("target_modules", json!([1])),
            ("rank_pattern", json!({"q_proj": 1.5})),
            ("alpha_pattern", json!([])),
            ("layers_to_transform", json!(["x"])),
        ] {
            let error = read(&json!({ field: value })).unwrap_err().to_string();
            assert!(error.contains(&format!("`{field}`")), "{field} {value}: {error}");
        }
        for (field, value) in [
            ("bias", json!("none")),
            ("use_dora", json!(false)),
            ("modules_to_save", json!([])),
            ("invented_later", Value::Null),
            ("lora_dropout", json!(0.1)),
            ("init_lora_weights", json!("gaussian")),
        ] {
            read(&json!({ field: value })).unwrap();
        }
    }

    #[test]
    fn a_pattern_that_takes_too_long_is_an_error() {
        let config = read(&json!({"target_modules": r"(a+)+\1x"})).unwrap();
        let error = config.selects(&"a".repeat(4000), 0).unwrap_err();
        assert!(matches!(error, Error::Pattern { .. }), "{error}");
    }
}
