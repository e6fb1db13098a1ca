//! Checks of a statement against the registry: the diagnostics of one op, at the positions of its
//! parts.

use ferrane_diag::{Diagnostic, Diagnostics, Severity, Span, nearest};

use super::function::Named;
use super::options::{Missing, Types};
use super::reader::{Doubt, Reader};
use super::statement::Places;
use crate::codes;
use crate::error::MilError;
use crate::op;
use crate::ops::{self, InferContext, OpDef, Presence};
use crate::opset::Opset;
use crate::program::{Arg, Constant, Dim, Op, Payload, Type, ValueDef, ValueId};
use crate::verify::check_op;

impl<'a> Reader<'a> {
    /// Compares an op that was read without mistakes with the registry. Ops that are not in it are
    /// kept as they are.
    pub(super) fn check(&mut self, op: &Op, places: &Places<'a>, results: &[Named<'a>]) {
        let Some(opset) = self.opset.filter(|_| self.options.types == Types::Check) else { return };
        match ops::lookup(&op.name, opset) {
            Err(e) => self.unknown_op(op, places.op, opset, &e),
            Ok(def) if self.names_fit(op, def, places) => {
                let Err(e) = check_op(&self.function, op, opset, &self.weights) else { return };
                if self.is_consequence(op, def, &e) {
                    return self.silence();
                }
                let diagnostic = self.misfit(op, &e, places, results);
                let narrower = if matches!(e, MilError::ResultType { .. }) { self.narrower(op, def) } else { None };
                match narrower.filter(|_| self.doubts.len() < Diagnostics::LIMIT) {
                    Some(types) => self.doubts.push(Doubt { types, diagnostic }),
                    None => self.report(diagnostic),
                }
            }
            Ok(_) => {}
        }
    }

    fn unknown_op(&mut self, op: &Op, place: Span, opset: Opset, e: &MilError) {
        let name = place.of(self.whole());
        if self.is_full() || !self.unknown.insert(name) {
            return;
        }
        let mut d = Diagnostic::warning(e.code(), place, format!("{e}; it is kept unchecked"));
        if let Some(since) = ops::all().filter(|def| def.name == op.name).map(|def| def.since).min() {
            d = d.note(None, format!("`{name}` exists from ios{} on; this function is of ios{}", since.0, opset.0));
        } else if let MilError::UnknownOp { suggestion: Some(near), .. } = e {
            d = d.suggest(place, near.as_str());
        }
        self.report(d);
    }

    /// Every argument is one of the signature, and none is missing.
    fn names_fit(&mut self, op: &Op, def: &'static OpDef, places: &Places<'a>) -> bool {
        let mark = self.mark();
        let names = || def.params.iter().map(|p| p.name);
        // The argument that a misspelled one probably means is not reported as missing.
        let mut meant = Vec::new();
        for (name, _) in &op.args {
            let place = places.arguments.get(name.as_str()).map_or(places.op, |(name, _)| *name);
            if op.name == op::CONST {
                let message = format!("`{name}` of `const` is an attribute: it stands in brackets after the call");
                self.report(Diagnostic::error(codes::UNKNOWN_ARGUMENT, place, message));
                meant.push("val");
            } else if def.param(name).is_none() {
                let free = names().filter(|n| op.arg(n).is_none());
                let suggestion = nearest(name, free.clone()).or_else(|| nearest(name, names())).map(str::to_string);
                meant.extend(free.filter(|n| suggestion.as_deref() == Some(n)));
                let (op, argument) = (op.name.clone(), name.clone());
                let e = MilError::UnknownArgument { op, argument, suggestion: suggestion.clone() };
                let mut d = Diagnostic::error(e.code(), place, e.to_string());
                d = d.note(None, format!("`{}` takes {}", def.name, names().collect::<Vec<_>>().join(", ")));
                self.report(match suggestion {
                    Some(near) => d.suggest(place, near),
                    None => d,
                });
            }
        }
        let in_brackets = op.name == op::CONST || op.name.starts_with("constexpr_");
        for param in def.params.iter().filter(|p| p.presence == Presence::Required && !meant.contains(&p.name)) {
            let attribute = op.attribute(param.name).is_some();
            if op.arg(param.name).is_some() || (attribute && in_brackets) {
                continue;
            }
            let e = MilError::MissingArgument { op: op.name.clone(), argument: param.name.to_string() };
            let mut d = Diagnostic::error(e.code(), places.op, e.to_string());
            if attribute {
                d = d
                    .note(None, format!("`{}` stands in the brackets; arguments stand in the parentheses", param.name));
            } else if in_brackets {
                let others = op.attributes.iter().map(|(n, _)| n.as_str()).filter(|n| def.param(n).is_none());
                if let Some(near) = nearest(param.name, others) {
                    d = d.note(None, format!("the attribute `{near}` may be meant to be `{}`", param.name));
                }
            }
            self.report(d);
        }
        self.mark() == mark
    }

    /// The diagnostic for an error of the op's rule, at the part that it concerns.
    fn misfit(&self, op: &Op, e: &MilError, places: &Places<'a>, results: &[Named<'a>]) -> Diagnostic {
        let mut d = Diagnostic::error(e.code(), places.op, e.to_string());
        match e {
            MilError::ArgumentType { argument, .. } | MilError::NotConstant { argument, .. } => {
                if let Some((_, value)) = places.arguments.get(argument.as_str()) {
                    d.span = Some(*value);
                }
                if let Some(Arg::Value(v)) = op.arg(argument)
                    && let Some(value) = self.function.values.get(v.index())
                {
                    let what = format!("`{}` is {}", value.name, self.spelled(&value.ty));
                    d = d.note(self.place(*v), what);
                }
            }
            MilError::ResultType { declared, inferred, .. } => {
                let result = results
                    .iter()
                    .find(|r| r.ty.as_ref().is_some_and(|(ty, _)| ty.to_string() == *declared))
                    .or_else(|| results.first());
                if let Some(Named { ty: Some((_, place)), .. }) = result {
                    d.span = Some(*place);
                    // The spelling of the error is that of shorthand; a scalar in verbose text has
                    // another one.
                    if !self.verbose || inferred.starts_with("tensor") {
                        d = d.suggest(*place, inferred.as_str());
                    }
                }
            }
            _ => {}
        }
        d
    }

    /// True if a value that must be constant could not be read, which has been reported.
    fn is_consequence(&self, op: &Op, def: &OpDef, e: &MilError) -> bool {
        if !matches!(e, MilError::NotConstant { .. } | MilError::Shape { .. }) {
            return false;
        }
        let args = def.params.iter().filter(|p| p.constant).filter_map(|p| op.arg(p.name));
        let mut values = args.flat_map(|arg| match arg {
            Arg::Value(v) => std::slice::from_ref(v),
            Arg::List(vs) => vs.as_slice(),
            Arg::Const(_) => &[],
        });
        values.any(|v| self.unread(*v))
    }

    /// The value's op, or the literal that it stands for, could not be read.
    fn unread(&self, value: ValueId) -> bool {
        let ValueDef::Op(id, _) = self.function.value(value).def else { return false };
        let op = self.function.op(id);
        match op.attribute("val") {
            // An op that could not be read has no name.
            _ if op.name != op::CONST => op.name.is_empty(),
            None => true,
            // A record without bytes is allowed.
            Some(Constant::Tensor { payload: Payload::Weight(record), .. }) => {
                self.options.missing == Missing::Refuse && self.weights.bytes(*record).is_none()
            }
            Some(Constant::Tensor { ty, payload: Payload::Bytes(bytes) }) => ty.bytes() != Some(bytes.len()),
            Some(_) => false,
        }
    }

    /// The results that are declared wider than the op gives them, with what it gives: one where
    /// more is declared. `None` if anything else is wrong with them.
    fn narrower(&self, op: &Op, def: &'static OpDef) -> Option<Vec<(ValueId, Type)>> {
        let found = ops::infer(&InferContext::of(&self.function, &self.weights, def, op)).ok()?;
        let mut narrower = Vec::new();
        for (&value, found) in op.outputs.iter().zip(found) {
            let declared = &self.function.value(value).ty;
            if ops::agree(declared, &found) {
                continue;
            }
            let (Type::Tensor { dtype: a, shape: wide }, Type::Tensor { dtype: b, shape: narrow }) = (declared, &found)
            else {
                return None;
            };
            let fits = wide.iter().zip(narrow).all(|(w, n)| w == n || *n == Dim::Fixed(1));
            if a != b || wide.len() != narrow.len() || !fits {
                return None;
            }
            narrower.push((value, found));
        }
        Some(narrower)
    }

    /// Decides on the doubtful results of a function. If every use broadcasts a value, it makes no
    /// difference that it was declared with the broadcast shape: the program is meaningful, and
    /// Apple's compiler accepts it. The value then gets the type that its op computes, with a
    /// warning. Otherwise every choice of the type leaves an error.
    pub(super) fn settle(&mut self) {
        for Doubt { types, mut diagnostic } in std::mem::take(&mut self.doubts) {
            let mut declared = Vec::new();
            for (value, ty) in &types {
                declared.push(std::mem::replace(&mut self.function.values[value.index()].ty, ty.clone()));
            }
            if self.harmless(&types) {
                diagnostic.severity = Severity::Warning;
                diagnostic =
                    diagnostic.note(None, "every use broadcasts it to what is declared; the type is taken from the op");
            } else {
                for ((value, _), ty) in types.iter().zip(declared) {
                    self.function.values[value.index()].ty = ty;
                }
            }
            self.report(diagnostic);
        }
    }

    /// True if the values are used, only as operands, and each op that uses them computes its
    /// declared type.
    fn harmless(&self, values: &[(ValueId, Type)]) -> bool {
        let Some(opset) = self.opset else { return false };
        let returned = |(v, _): &(ValueId, Type)| self.function.blocks.iter().any(|b| b.outputs.contains(v));
        let mut used = 0;
        let mut fits = |op: &Op| {
            let uses = op.operands().any(|o| values.iter().any(|(v, _)| *v == o));
            used += usize::from(uses);
            !uses || (op.blocks.is_empty() && check_op(&self.function, op, opset, &self.weights).is_ok())
        };
        !values.iter().any(returned) && self.function.ops.iter().all(&mut fits) && used > 0
    }
}
