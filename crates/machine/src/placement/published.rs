//! Published placements: the cases that the model of preference is fitted to, those that are held
//! out, and the errors on both.
//!
//! A case describes a program by its ops and their shapes, in the order in which they depend on
//! each other, and says where the framework placed them: op by op where the source does, otherwise
//! as a number of ops. The program is built from the description, without the bytes of its
//! weights, and placed by [`place`](super::place()) like any other.

use std::collections::HashMap;

use ferrane_mil::{
    Arg, Block, BlockId, DataType, Function, Op, OpId, Opset, OpsetTag, Program, Type, Value, ValueDef, ValueId,
};
use serde::Deserialize;

use crate::profile::Profile;

use super::eligible::{Ineligibility, ineligible};
use super::model::PreferenceModel;
use super::options::{AllowedUnits, Framework, PlaceOptions};
use super::place::place_known;
use super::record::Placement;

/// The largest number of ops of a case; more is a mistake in the data.
const MAX_OPS: usize = 1 << 16;

/// A source of cases. All of its cases are either fitted or held out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacementSource {
    /// The name by which cases cite it.
    pub name: String,
    /// Where it was published.
    pub url: String,
    /// True if its cases are held out of the fit.
    pub held_out: bool,
    /// True if it was read only when the numbers had been fitted.
    #[serde(default)]
    pub after_fit: bool,
}

/// An op of a case.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseOp {
    /// The name of the op, as in MIL.
    pub op: String,
    /// The shape of the first operand. It is the result of the op before, unless `side` is set.
    pub x: Vec<usize>,
    /// The shape of the result; that of the operand if not given.
    pub y: Option<Vec<usize>>,
    /// The shape of a second operand that is known only at run time.
    pub b: Option<Vec<usize>>,
    /// The shape of a constant operand.
    pub w: Option<Vec<usize>>,
    /// The element type of the constant operand as it is stored; that of the first operand if not
    /// given.
    pub weights: Option<String>,
    /// The element type of the result.
    #[serde(default = "fp16")]
    pub dtype: String,
    /// The element type of the first operand, if it is another one.
    pub from: Option<String>,
    /// The number of such ops in sequence.
    #[serde(default = "one")]
    pub n: usize,
    /// True if the op reads an input of its own and no later op reads its result.
    #[serde(default)]
    pub side: bool,
    /// Where the framework placed it: true on the engine; `None` if the source says only totals.
    pub on: Option<bool>,
}

fn fp16() -> String {
    "fp16".to_string()
}

fn one() -> usize {
    1
}

/// Ops that are repeated.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseBlock {
    /// The number of repetitions.
    #[serde(default = "one")]
    pub repeat: usize,
    /// The ops of one repetition.
    pub ops: Vec<CaseOp>,
}

/// A program, described by its ops, and where a framework placed them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPlacement {
    /// The name of the case.
    pub id: String,
    /// The name of its source.
    pub source: String,
    /// The profile that is nearest to the machine of the source.
    pub machine: String,
    /// The machine and the system in the source's words; empty where it states none.
    #[serde(default)]
    pub stated: String,
    /// The processors that the framework was allowed.
    pub units: AllowedUnits,
    /// What is known about the program beyond its ops.
    #[serde(default)]
    pub note: String,
    /// Totals: ops on the engine, and all ops, where the source gives no more.
    pub total: Option<[usize; 2]>,
    /// The ops in groups that are repeated, in the order in which they depend on each other.
    #[serde(rename = "block")]
    pub blocks: Vec<CaseBlock>,
}

/// A file of cases.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPlacements {
    /// The sources that cases of any file may cite.
    #[serde(default, rename = "source")]
    pub sources: Vec<PlacementSource>,
    /// The cases in the order of the file.
    #[serde(default, rename = "case")]
    pub cases: Vec<PublishedPlacement>,
}

/// Why published placements could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishedPlacementError {
    /// The text is not TOML of this form.
    #[error("published placements: {0}")]
    Form(#[from] toml::de::Error),
    /// A case is inconsistent.
    #[error("published placements: `{case}`: {why}")]
    Case {
        /// The name of the case.
        case: String,
        /// What is wrong with it.
        why: String,
    },
}

const FILES: [&str; 4] = [
    include_str!("../../data/placement/sources.toml"),
    include_str!("../../data/placement/probes.toml"),
    include_str!("../../data/placement/models.toml"),
    include_str!("../../data/placement/later.toml"),
];

impl PublishedPlacements {
    /// The built-in cases.
    ///
    /// # Errors
    /// The embedded data are damaged, which a test excludes.
    pub fn built_in() -> Result<PublishedPlacements, PublishedPlacementError> {
        let mut all = PublishedPlacements::default();
        for text in FILES {
            let file: PublishedPlacements = toml::from_str(text)?;
            all.sources.extend(file.sources);
            all.cases.extend(file.cases);
        }
        Ok(all)
    }

    /// The source of a case.
    pub fn source(&self, case: &PublishedPlacement) -> Option<&PlacementSource> {
        self.sources.iter().find(|s| s.name == case.source)
    }

    /// Builds the program of each case, with the machine's eligibility of its ops.
    ///
    /// # Errors
    /// A case cites no source, names no machine, or is inconsistent.
    pub fn prepare(&self) -> Result<Vec<PreparedPlacement>, PublishedPlacementError> {
        self.cases.iter().map(|case| PreparedPlacement::new(self, case)).collect()
    }
}

/// A case with its program, ready to be placed with any model.
pub struct PreparedPlacement {
    /// The description that the program was built from.
    pub case: PublishedPlacement,
    /// True if it is held out of the fit.
    pub held_out: bool,
    /// True if its source was read only when the numbers had been fitted.
    pub after_fit: bool,
    /// For each op whether the framework placed it on the engine, if the source says so.
    pub published: Vec<Option<bool>>,
    program: Program,
    profile: Profile,
    reasons: HashMap<OpId, Ineligibility>,
}

impl PreparedPlacement {
    fn new(all: &PublishedPlacements, case: &PublishedPlacement) -> Result<Self, PublishedPlacementError> {
        let wrong = |why: String| PublishedPlacementError::Case { case: case.id.clone(), why };
        let source = all.source(case).ok_or_else(|| wrong(format!("unknown source `{}`", case.source)))?;
        let profile = Profile::named(&case.machine).map_err(|e| wrong(e.to_string()))?;
        let (program, published) = build(case).map_err(wrong)?;
        let known = published.iter().all(Option::is_some);
        if known == case.total.is_some() || case.total.is_some_and(|[on, all]| on > all || all == 0) {
            return Err(wrong("give either `on` for every op, or `total`".to_string()));
        }
        let reasons = ineligible(&program, 0, &profile, PreferenceModel::core_ml());
        Ok(PreparedPlacement {
            case: case.clone(),
            held_out: source.held_out,
            after_fit: source.after_fit,
            published,
            program,
            profile,
            reasons,
        })
    }

    /// Places the program of the case.
    pub fn place(&self, model: &PreferenceModel) -> Placement {
        let options = PlaceOptions { framework: Framework::CoreMl, units: self.case.units, function: None };
        place_known(&self.program.functions[0], &self.reasons, &self.profile, &options, Some(model), None)
    }

    /// The number of ops that the source reports.
    pub fn ops(&self) -> usize {
        self.case.total.map_or(self.published.len(), |[_, all]| all)
    }

    /// The share of ops on the engine that the source reports.
    pub fn engine_share(&self) -> f64 {
        match self.case.total {
            Some([on, all]) => on as f64 / all as f64,
            None => {
                let on = self.published.iter().filter(|on| **on == Some(true)).count();
                on as f64 / self.published.len().max(1) as f64
            }
        }
    }
}

/// The program of a case, and the published placement of each of its ops.
fn build(case: &PublishedPlacement) -> Result<(Program, Vec<Option<bool>>), String> {
    let mut function = Function {
        name: "main".to_string(),
        bodies: vec![(OpsetTag::Known(Opset::IOS18), BlockId(0))],
        blocks: vec![Block::default()],
        ..Function::default()
    };
    let (mut chain, mut published) = (None, Vec::new());
    for block in &case.blocks {
        for _ in 0..block.repeat {
            for op in &block.ops {
                for _ in 0..op.n {
                    if published.len() >= MAX_OPS {
                        return Err(format!("more than {MAX_OPS} ops"));
                    }
                    let result = add(&mut function, op, chain)?;
                    chain = if op.side { chain } else { Some(result) };
                    published.push(op.on);
                }
            }
        }
    }
    function.blocks[0].outputs.extend(chain);
    let program = Program {
        version: (1, 3),
        dialect: Default::default(),
        attributes: Vec::new(),
        functions: vec![function],
        weights: Default::default(),
    };
    Ok((program, published))
}

/// Adds an op that reads the result `chain`, or an input of its own.
fn add(function: &mut Function, op: &CaseOp, chain: Option<ValueId>) -> Result<ValueId, String> {
    let dtype = |name: &str| DataType::from_name(name).ok_or_else(|| format!("unknown type `{name}`"));
    let to = dtype(&op.dtype)?;
    let from = op.from.as_deref().map_or(Ok(to), dtype)?;
    let operand = Type::tensor(from, &op.x);
    let x = match chain.filter(|_| !op.side) {
        Some(value) if function.value(value).ty == operand => value,
        Some(value) => {
            let had = &function.value(value).ty;
            return Err(format!("`{}` reads {operand}, but the op before returns {had}", op.op));
        }
        None => input(function, operand),
    };
    let second = match op.op.as_str() {
        "conv" | "conv_transpose" | "linear" => "weight",
        "gather" => "indices",
        "scaled_dot_product_attention" => "key",
        _ => "y",
    };
    let first = if op.op == "scaled_dot_product_attention" { "query" } else { "x" };
    let mut args = vec![(first.to_string(), Arg::Value(x))];
    if let Some(shape) = &op.b {
        let b = input(function, Type::tensor(from, shape));
        args.push((second.to_string(), Arg::Value(b)));
        if op.op == "scaled_dot_product_attention" {
            args.push(("value".to_string(), Arg::Value(b)));
        }
    }
    if let Some(shape) = &op.w {
        let stored = op.weights.as_deref().map_or(Ok(from), dtype)?;
        let w = push(function, "const", Vec::new(), Type::tensor(stored, shape));
        args.push((second.to_string(), Arg::Value(w)));
    }
    Ok(push(function, &op.op, args, Type::tensor(to, op.y.as_ref().unwrap_or(&op.x))))
}

fn input(function: &mut Function, ty: Type) -> ValueId {
    let id = ValueId(function.values.len() as u32);
    let def = ValueDef::Input(function.inputs.len() as u32);
    function.values.push(Value { name: format!("v{}", id.0), ty, def });
    function.inputs.push(id);
    id
}

fn push(function: &mut Function, name: &str, args: Vec<(String, Arg)>, ty: Type) -> ValueId {
    let (value, op) = (ValueId(function.values.len() as u32), OpId(function.ops.len() as u32));
    function.values.push(Value { name: format!("v{}", value.0), ty, def: ValueDef::Op(op, 0) });
    let attributes = Vec::new();
    let (outputs, blocks) = (vec![value], Vec::new());
    function.ops.push(Op { name: name.to_string(), args, attributes, outputs, blocks, span: None });
    function.blocks[0].ops.push(op);
    value
}
