//! A statement against the registry: the diagnostics of one op, at the places of its parts.

use ferrane_diag::{Code, Diagnostic, Span, nearest};

use super::function::Named;
use super::parse::Types;
use super::reader::Reader;
use super::statement::Places;
use crate::error::MilError;
use crate::ops::{self, OpDef, Opset, Presence};
use crate::program::{Arg, Op};
use crate::verify::check_op;

impl<'a> Reader<'a> {
    /// Compares an op that was read without mistakes with the registry. Ops that are not in it are kept as they are.
    pub(super) fn check(&mut self, op: &Op, places: &Places<'a>, results: &[Named<'a>]) {
        let Some(opset) = self.opset.filter(|_| self.options.types == Types::Check) else { return };
        match ops::lookup(&op.name, opset) {
            Err(e) => self.unknown_op(op, places.op, opset, &e),
            Ok(def) if self.names_fit(op, def, places) => {
                if let Err(e) = check_op(&self.function, op, opset, &self.weights) {
                    self.misfit(op, &e, places, results);
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
        self.tell(d);
    }

    /// Every argument is one of the signature, and none is missing.
    fn names_fit(&mut self, op: &Op, def: &'static OpDef, places: &Places<'a>) -> bool {
        let mark = self.mark();
        let names = || def.params.iter().map(|p| p.name);
        // What a misspelled argument was meant to be is not missing, too.
        let mut meant = Vec::new();
        for (name, _) in &op.args {
            let place = places.arguments.get(name.as_str()).map_or(places.op, |(name, _)| *name);
            if op.name == "const" {
                let message = format!("`{name}` of `const` is an attribute: it stands in brackets behind the call");
                self.tell(Diagnostic::error(Code(205), place, message));
                meant.push("val");
            } else if def.param(name).is_none() {
                let free = names().filter(|n| op.arg(n).is_none());
                let suggestion = nearest(name, free.clone()).or_else(|| nearest(name, names())).map(str::to_string);
                meant.extend(free.filter(|n| suggestion.as_deref() == Some(n)));
                let (op, argument) = (op.name.clone(), name.clone());
                let e = MilError::UnknownArgument { op, argument, suggestion: suggestion.clone() };
                let mut d = Diagnostic::error(e.code(), place, e.to_string());
                d = d.note(None, format!("`{}` takes {}", def.name, names().collect::<Vec<_>>().join(", ")));
                self.tell(match suggestion {
                    Some(near) => d.suggest(place, near),
                    None => d,
                });
            }
        }
        let in_brackets = op.name == "const" || op.name.starts_with("constexpr_");
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
            self.tell(d);
        }
        self.mark() == mark
    }

    /// What the op's own rules found, at the part that it is about.
    fn misfit(&mut self, op: &Op, e: &MilError, places: &Places<'a>, results: &[Named<'a>]) {
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
                    // The spelling of the error is that of shorthand; a scalar in verbose text has another one.
                    if !self.verbose || inferred.starts_with("tensor") {
                        d = d.suggest(*place, inferred.as_str());
                    }
                }
            }
            _ => {}
        }
        self.tell(d);
    }
}
