//! The rotary settings of a `config.json`: `rope_theta`, `partial_rotary_factor`, and the object
//! `rope_scaling`, which newer files call `rope_parameters`.
//!
//! A setting in an object overrides one at the top level. In newer files of models whose layers
//! differ, the object has one object for each type of layer.

use super::Fields;
use crate::config::{Error, Rope, RopeScaling, RopeStyle};
use serde_json::{Map, Value};

/// The objects that may hold rotary settings, in order of precedence.
const OBJECTS: [&str; 2] = ["rope_scaling", "rope_parameters"];
/// The types of layers that an object may be split by.
const LAYER_TYPES: [&str; 2] = ["full_attention", "sliding_attention"];

/// Settings that every type has.
const COMMON: [&str; 4] = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];
/// The types that are read, with their further settings. `finetuned` is a remark of the file.
const TYPES: [(&str, &[&str]); 5] = [
    ("default", &[]),
    ("linear", &["factor", "original_max_position_embeddings"]),
    ("llama3", &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]),
    (
        "yarn",
        &[
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
            "finetuned",
        ],
    ),
    ("longrope", &["factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"]),
];

/// What the rotary settings depend on.
pub(super) struct RopeContext {
    pub head_dim: usize,
    /// `max_position_embeddings`.
    pub positions: usize,
    /// The base of files that state none.
    pub base: f64,
    /// Phi-3's first files call LongRoPE `su` or `yarn`.
    pub phi3: bool,
}

/// The base of Gemma 3's layers with a window, if the file states none.
const LOCAL_BASE: f64 = 1e4;

/// The rotary settings of one type of layer.
struct Settings<'a> {
    fields: &'a Fields<'a>,
    /// The objects with their names, in order of precedence.
    objects: Vec<(String, &'a Map<String, Value>)>,
}

impl Fields<'_> {
    /// The rotation of the layers of a type, and the longest context that it is made for.
    pub(super) fn rope(&self, layers: &str, context: &RopeContext) -> Result<(Rope, usize), Error> {
        let mut objects = Vec::new();
        for name in OBJECTS {
            let Some(value) = self.get(name) else { continue };
            let Some(object) = value.as_object() else { return Err(self.error(name, "is not an object")) };
            let Some(inner) = object.get(layers).filter(|_| LAYER_TYPES.iter().any(|t| object.contains_key(*t))) else {
                if LAYER_TYPES.iter().any(|t| object.contains_key(*t)) {
                    return Err(self.error(&format!("{name}.{layers}"), "is missing"));
                }
                objects.push((name.to_string(), object));
                continue;
            };
            let path = format!("{name}.{layers}");
            objects.push((path.clone(), inner.as_object().ok_or_else(|| self.error(&path, "is not an object"))?));
        }
        Settings { fields: self, objects }.read(context)
    }

    /// The rotation of Gemma 3's layers with a window, which has a base of its own and is not
    /// scaled.
    pub(super) fn local_rope(&self, context: &RopeContext) -> Result<Rope, Error> {
        if OBJECTS.iter().filter_map(|name| self.get(name)).any(|object| object.get(LAYER_TYPES[1]).is_some()) {
            return Ok(self.rope(LAYER_TYPES[1], &RopeContext { base: LOCAL_BASE, ..*context })?.0);
        }
        let base = self.number("rope_local_base_freq")?.unwrap_or(LOCAL_BASE);
        let rotated = Settings { fields: self, objects: Vec::new() }.rotated(context.head_dim)?;
        Ok(Rope { rotated, ..Rope::new(RopeStyle::Half, base as f32) })
    }
}

impl Settings<'_> {
    /// A setting and its path, from the first object that has it.
    fn get(&self, inner: &str) -> Option<(String, &Value)> {
        let found = |(path, object): &(String, &_)| {
            let object: &Map<String, Value> = object;
            object.get(inner).filter(|v| !v.is_null()).map(|_| format!("{path}.{inner}"))
        };
        let (at, path) = self.objects.iter().enumerate().find_map(|(at, o)| found(o).map(|path| (at, path)))?;
        self.objects[at].1.get(inner).map(|value| (path, value))
    }

    fn number(&self, inner: &str) -> Result<Option<f64>, Error> {
        self.get(inner).map(|(path, value)| self.fields.as_number(&path, value)).transpose()
    }

    fn needed(&self, inner: &str) -> Result<f64, Error> {
        self.number(inner)?.ok_or_else(|| self.missing(inner))
    }

    fn missing(&self, inner: &str) -> Error {
        let object = self.objects.first().map_or(OBJECTS[0], |(path, _)| path);
        self.fields.error(&format!("{object}.{inner}"), "is missing")
    }

    /// The context of the first training, which some files state at the top level.
    fn original(&self) -> Result<Option<usize>, Error> {
        let name = "original_max_position_embeddings";
        if let Some(top) = self.fields.optional_size(name)? {
            return Ok(Some(top));
        }
        self.get(name).map(|(path, value)| self.fields.as_size(&path, value)).transpose()
    }

    /// One divisor for each rotated pair.
    fn divisors(&self, inner: &str) -> Result<Vec<f64>, Error> {
        let (path, value) = self.get(inner).ok_or_else(|| self.missing(inner))?;
        let list = value.as_array().ok_or_else(|| self.fields.error(&path, "is not a list of numbers"))?;
        list.iter().map(|number| self.fields.as_number(&path, number)).collect()
    }

    fn flag(&self, inner: &str, default: bool) -> Result<bool, Error> {
        let Some((path, value)) = self.get(inner) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.fields.error(&path, format!("{value} is neither true nor false")))
    }

    /// The type, after a check that it has every setting of the objects.
    fn kind(&self, phi3: bool) -> Result<&'static str, Error> {
        let stated = self.get("rope_type").or_else(|| self.get("type"));
        let kind = match &stated {
            None => "default",
            Some((path, value)) => match value.as_str() {
                Some("su" | "yarn") if phi3 => "longrope",
                Some("dynamic") => {
                    let reason = "\"dynamic\" changes the frequencies while a sequence grows, but the keys in a cache \
                                  are rotated already; remove it for contexts of up to max_position_embeddings \
                                  tokens, where it changes nothing, or use \"yarn\"";
                    return Err(self.fields.error(path, reason));
                }
                name => match TYPES.iter().find(|(known, _)| Some(*known) == name) {
                    Some((known, _)) => known,
                    None => {
                        let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
                        let reason = format!("scaling {value} is not supported, only {}", known.join(", "));
                        return Err(self.fields.error(path, reason));
                    }
                },
            },
        };
        let settings = TYPES.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, list)| list);
        for (path, object) in &self.objects {
            for (name, value) in *object {
                if !value.is_null() && !COMMON.contains(&name.as_str()) && !settings.contains(&name.as_str()) {
                    let of = if stated.is_some() { format!("of type \"{kind}\"") } else { "without a type".into() };
                    let reason = format!("is not a setting of rotary frequencies {of}");
                    return Err(self.fields.error(&format!("{path}.{name}"), reason));
                }
            }
        }
        Ok(kind)
    }

    fn read(&self, context: &RopeContext) -> Result<(Rope, usize), Error> {
        let kind = self.kind(context.phi3)?;
        let base = match self.number("rope_theta")? {
            Some(base) => base,
            None => self.fields.number("rope_theta")?.unwrap_or(context.base),
        };
        let mut max_seq = context.positions;
        let scaling = match kind {
            "linear" => Some(RopeScaling::Linear { factor: self.needed("factor")? }),
            "llama3" => Some(RopeScaling::Llama3 {
                factor: self.needed("factor")?,
                low: self.needed("low_freq_factor")?,
                high: self.needed("high_freq_factor")?,
                original: self.original()?.ok_or_else(|| self.missing("original_max_position_embeddings"))?,
            }),
            "yarn" => {
                let (scaling, longest) = self.yarn(context)?;
                max_seq = max_seq.max(longest);
                Some(scaling)
            }
            "longrope" => Some(self.long_rope(context)?),
            _ => None,
        };
        let rotated = self.rotated(context.head_dim)?;
        Ok((Rope { style: RopeStyle::Half, base: base as f32, rotated, scaling }, max_seq))
    }

    /// Number of rotated elements of a head; `None` for all.
    fn rotated(&self, head_dim: usize) -> Result<Option<usize>, Error> {
        let field = "partial_rotary_factor";
        let factor = match self.number(field)? {
            Some(factor) => factor,
            None => self.fields.number(field)?.unwrap_or(1.0),
        };
        let rotated = (head_dim as f64 * factor) as usize;
        if factor > 1.0 || rotated == 0 || !rotated.is_multiple_of(2) {
            let reason = format!("{factor} of {head_dim} elements of a head is not an even number from 2 on");
            return Err(self.fields.error(field, reason));
        }
        Ok((rotated != head_dim).then_some(rotated))
    }

    /// YaRN, and the longest context that a stated original one is extended to.
    fn yarn(&self, context: &RopeContext) -> Result<(RopeScaling, usize), Error> {
        let stated = self.original()?;
        let original = stated.unwrap_or(context.positions);
        let factor = match self.number("factor")? {
            Some(factor) => factor,
            None if stated.is_some() => context.positions as f64 / original as f64,
            None => return Err(self.missing("factor")),
        };
        let of_log = |weight: f64| if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 };
        let nonzero = |inner| Ok::<_, Error>(self.number(inner)?.filter(|value| *value != 0.0));
        let attention = match (self.number("attention_factor")?, nonzero("mscale")?, nonzero("mscale_all_dim")?) {
            (Some(stated), ..) => stated,
            (None, Some(scale), Some(all)) => of_log(scale) / of_log(all),
            _ => of_log(1.0),
        };
        let scaling = RopeScaling::Yarn {
            factor,
            original,
            attention,
            beta_fast: nonzero("beta_fast")?.unwrap_or(32.0),
            beta_slow: nonzero("beta_slow")?.unwrap_or(1.0),
            truncate: self.flag("truncate", true)?,
        };
        // A float beyond the range becomes the largest integer, which the configuration refuses.
        Ok((scaling, stated.map_or(0, |original| (original as f64 * factor) as usize)))
    }

    fn long_rope(&self, context: &RopeContext) -> Result<RopeScaling, Error> {
        let (original, factor) = match self.original()? {
            Some(original) => (original, context.positions as f64 / original as f64),
            None => (context.positions, self.number("factor")?.unwrap_or(1.0)),
        };
        let attention = match self.number("attention_factor")? {
            Some(stated) => stated,
            None if factor <= 1.0 => 1.0,
            None => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
        };
        Ok(RopeScaling::LongRope {
            short: self.divisors("short_factor")?,
            long: self.divisors("long_factor")?,
            original,
            attention,
        })
    }
}
