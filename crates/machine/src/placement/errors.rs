//! Errors of the model over published placements.
//!
//! Where a source places each op, an op is right if the prediction has it on the same side of the
//! engine's boundary. Where a source gives only totals, the share of right ops is taken as one
//! less the difference of the shares on the engine, which is its upper bound. Ops whose placement
//! is not known count as wrong.

use std::fmt::Write as _;

use super::model::PreferenceModel;
use super::options::Processor;
use super::published::PreparedPlacement;
use super::record::{PlacedOp, Placement};

/// What a prediction says about an op.
struct OpSide {
    /// True on the engine; `None` if that is not known.
    on: Option<bool>,
    likely: bool,
}

/// The errors of one case. Numbers of ops are those that the source reports.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseError {
    /// The name of the case.
    pub id: String,
    /// The name of its source.
    pub source: String,
    /// True if it is held out of the fit.
    pub held_out: bool,
    /// True if its source was read only when the numbers had been fitted.
    pub after_fit: bool,
    /// The number of ops.
    pub ops: f64,
    /// The number of ops whose placement is right.
    pub right: f64,
    /// The number of ops that are called likely.
    pub likely: f64,
    /// The number of likely ops whose placement is right.
    pub likely_right: f64,
    /// The sum of the squared errors of the probabilities.
    pub squared: f64,
    /// The published and the predicted share of ops on the engine.
    pub shares: [f64; 2],
}

impl CaseError {
    /// The error of a model on a case.
    pub fn of(prepared: &PreparedPlacement, model: &PreferenceModel) -> CaseError {
        let placement = prepared.place(model);
        CaseError::between(prepared, &placement)
    }

    /// The error of a placement on a case.
    pub fn between(prepared: &PreparedPlacement, placement: &Placement) -> CaseError {
        let one = |op: &PlacedOp| OpSide { on: op.runs_on.map(|p| p == Processor::Engine), likely: op.is_likely() };
        let predicted: Vec<OpSide> = placement.ops.iter().map(one).collect();
        let count = |f: &dyn Fn(&OpSide) -> bool| predicted.iter().filter(|p| f(p)).count() as f64;
        let scale = prepared.ops() as f64 / predicted.len().max(1) as f64;
        let on_share = count(&|p| p.on == Some(true)) / predicted.len().max(1) as f64;
        let mut error = CaseError {
            id: prepared.case.id.clone(),
            source: prepared.case.source.clone(),
            held_out: prepared.held_out,
            after_fit: prepared.after_fit,
            ops: prepared.ops() as f64,
            right: 0.0,
            likely: count(&|p| p.likely) * scale,
            likely_right: 0.0,
            squared: 0.0,
            shares: [prepared.engine_share(), on_share],
        };
        if prepared.case.total.is_none() {
            let pairs = || predicted.iter().zip(&prepared.published);
            error.right = pairs().filter(|(p, on)| p.on.is_some() && p.on == **on).count() as f64;
            error.likely_right = pairs().filter(|(p, on)| p.likely && p.on == **on).count() as f64;
            let squares = placement.ops.iter().zip(&prepared.published).map(|(op, on)| {
                let p = op.engine_probability.unwrap_or(0.5);
                (p - f64::from(u8::from(*on == Some(true)))).powi(2)
            });
            error.squared = squares.sum();
            return error;
        }
        let on = error.shares[0] * error.ops;
        let side = |wanted: bool, likely: bool| {
            let n = count(&|p| p.on == Some(wanted) && (p.likely || !likely)) * scale;
            n.min(if wanted { on } else { error.ops - on })
        };
        error.right = side(true, false) + side(false, false);
        error.likely_right = side(true, true) + side(false, true);
        let p = placement.engine_share().unwrap_or(0.5);
        error.squared = error.ops * (p - error.shares[0]).powi(2);
        error
    }

    /// True if both say that most ops run on the engine, or both say that most do not.
    pub fn is_model_right(&self) -> bool {
        (self.shares[0] > 0.5) == (self.shares[1] > 0.5)
    }
}

/// The errors over several cases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacementErrors {
    /// The number of cases.
    pub cases: usize,
    /// The number of ops.
    pub ops: f64,
    /// The share of ops whose placement is right.
    pub right: f64,
    /// The mean over the cases of the share of ops whose placement is right.
    pub right_by_case: f64,
    /// The share of cases for which "mostly on the engine" is right.
    pub models: f64,
    /// The share of ops that are called likely.
    pub likely: f64,
    /// The share of likely ops whose placement is right.
    pub likely_right: f64,
    /// The mean squared error of the probabilities.
    pub brier: f64,
}

impl PlacementErrors {
    /// The errors over these cases.
    pub fn over<'a>(cases: impl IntoIterator<Item = &'a CaseError>) -> PlacementErrors {
        let cases: Vec<&CaseError> = cases.into_iter().collect();
        let sum = |f: fn(&CaseError) -> f64| cases.iter().map(|c| f(c)).sum::<f64>();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let (n, ops, likely) = (cases.len() as f64, sum(|c| c.ops), sum(|c| c.likely));
        PlacementErrors {
            cases: cases.len(),
            ops,
            right: share(sum(|c| c.right), ops),
            right_by_case: share(sum(|c| c.right / c.ops), n),
            models: share(cases.iter().filter(|c| c.is_model_right()).count() as f64, n),
            likely: share(likely, ops),
            likely_right: share(sum(|c| c.likely_right), likely),
            brier: share(sum(|c| c.squared), ops),
        }
    }
}

/// The errors of a model over all published placements, next to those of a model without a
/// preference.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementEvaluation {
    /// The errors of each case.
    pub errors: Vec<CaseError>,
    /// The errors of each case if every eligible op were on the engine.
    pub eligible: Vec<CaseError>,
}

impl PlacementEvaluation {
    /// Places every case once with the model, and once as if nothing but eligibility counted.
    pub fn of(cases: &[PreparedPlacement], model: &PreferenceModel) -> PlacementEvaluation {
        let mut eager = model.clone();
        eager.fitted.entry_ms = 0.0;
        let errors = |model: &PreferenceModel| cases.iter().map(|c| CaseError::of(c, model)).collect();
        PlacementEvaluation { errors: errors(model), eligible: errors(&eager) }
    }

    /// The errors over the fitted cases.
    pub fn fitted(&self) -> PlacementErrors {
        PlacementErrors::over(self.errors.iter().filter(|e| !e.held_out))
    }

    /// The errors over the cases that are held out.
    pub fn held_out(&self) -> PlacementErrors {
        PlacementErrors::over(self.errors.iter().filter(|e| e.held_out))
    }

    /// The errors over the cases of sources that were read only when the numbers had been fitted.
    /// They are held out, too.
    pub fn after_fit(&self) -> PlacementErrors {
        PlacementErrors::over(self.errors.iter().filter(|e| e.after_fit))
    }

    /// The errors over the cases that are held out, if every eligible op were on the engine.
    pub fn held_out_eligible(&self) -> PlacementErrors {
        PlacementErrors::over(self.eligible.iter().filter(|e| e.held_out))
    }

    /// A Markdown table of the errors.
    pub fn summary(&self) -> String {
        let mut text = String::from(
            "| cases | number | ops | ops right | mean over cases | models right | likely | likely and right | Brier |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        let rows = [
            ("fitted", self.fitted()),
            ("held out", self.held_out()),
            ("of these, read after the fit", self.after_fit()),
            ("held out, eligibility alone", self.held_out_eligible()),
        ];
        for (name, e) in rows {
            let percent = |v: f64| format!("{:.1} %", 100.0 * v);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {name} | {} | {:.0} | {} | {} | {} | {} | {} | {:.4} |",
                e.cases,
                e.ops,
                percent(e.right),
                percent(e.right_by_case),
                percent(e.models),
                percent(e.likely),
                percent(e.likely_right),
                e.brier
            );
        }
        text
    }

    /// A Markdown table of the cases.
    pub fn cases(&self) -> String {
        let mut text =
            String::from("| case | ops | published | predicted | ops right | |\n|---|---|---|---|---|---|\n");
        for e in &self.errors {
            let percent = |v: f64| format!("{:.0} %", 100.0 * v);
            let split = match (e.held_out, e.after_fit) {
                (false, _) => "fitted",
                (true, false) => "held out",
                (true, true) => "read after the fit",
            };
            let _ = writeln!(
                text,
                "| {} | {:.0} | {} | {} | {} | {split} |",
                e.id,
                e.ops,
                percent(e.shares[0]),
                percent(e.shares[1]),
                percent(e.right / e.ops.max(1.0))
            );
        }
        text
    }
}
