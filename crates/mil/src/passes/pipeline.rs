//! Runs passes in order, to a fixed point, and reports the changes.

use super::draft::Draft;
use super::pass::{Context, Exactness, Options, PaddedOutput, Pass};
use super::{all, find};
use crate::error::MilError;
use crate::eval::Evaluate;
use crate::program::Program;

/// The most rounds of a pipeline. A further round lets earlier passes use what later ones
/// uncovered; typical programs reach the fixed point after two or three.
const ROUNDS: usize = 8;

/// Passes that run one after the other.
///
/// ```
/// use ferrane_mil::passes::Pipeline;
/// # use ferrane_mil::{Constant, Evaluate, Function, Op};
/// use ferrane_mil::{Builder, DataType, Opset, Type, Weights};
///
/// # struct NoArithmetic;
/// # impl Evaluate for NoArithmetic {
/// #     fn evaluate(&self, _: &Function, _: &Op, _: Opset, _: &Weights) -> Result<Vec<Constant>, String> {
/// #         Err("computes nothing".into())
/// #     }
/// # }
/// # let evaluator = NoArithmetic;
/// # fn run(evaluator: &dyn Evaluate) -> Result<(), Box<dyn std::error::Error>> {
/// let mut b = Builder::new("main", Opset::IOS18);
/// let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
/// let same = b.op("identity", "same", [("x", x.into())])?;
/// let y = b.op("relu", "y", [("x", same.into())])?;
/// let program = b.finish(&[("y", y)])?;
///
/// // `evaluator` folds constants; the emulator of `ferrane-emulator` is one.
/// let (smaller, report) = Pipeline::simplify().run(&program, evaluator)?;
/// assert_eq!(report.ops, (2, 1));
/// assert_eq!(smaller.functions[0].ops[0].name, "relu");
/// # Ok(())
/// # }
/// # run(&evaluator).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    passes: Vec<Pass>,
    /// Limits of the passes.
    pub options: Options,
}

/// The changes that a pipeline made.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// The runs that changed something, in order, over all rounds.
    pub steps: Vec<PassRun>,
    /// Outputs that were made larger.
    pub padded: Vec<PaddedOutput>,
    /// Ops of all functions before and after, nested ones included.
    pub ops: (usize, usize),
}

/// One run of a pass.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PassRun {
    /// Name of the pass.
    pub pass: &'static str,
    /// Number of changes, at least 1.
    pub changes: usize,
}

impl Report {
    /// Changes of all passes.
    pub fn changes(&self) -> usize {
        self.steps.iter().map(|s| s.changes).sum()
    }
}

impl Pipeline {
    /// These passes, in this order.
    pub fn new(passes: impl IntoIterator<Item = Pass>) -> Pipeline {
        Pipeline { passes: passes.into_iter().collect(), options: Options::default() }
    }

    /// The passes of these names, in this order.
    ///
    /// # Errors
    /// The first name that is not that of a pass.
    pub fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Pipeline, &'n str> {
        names.into_iter().map(|name| find(name).ok_or(name)).collect::<Result<Vec<_>, _>>().map(Pipeline::new)
    }

    /// The pipeline that makes a program smaller without changing a bit of its results: every pass
    /// that only moves, removes or shares.
    pub fn simplify() -> Pipeline {
        Pipeline::new(all().iter().copied().filter(|p| p.repeats && p.exactness == Exactness::Bits))
    }

    /// The passes, in the order in which they run.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// Runs the passes in order; then again those of them that may find more after the others,
    /// until none does.
    ///
    /// # Errors
    /// The program does not verify; a pass cannot reach its goal; or the result does not verify,
    /// which would be a bug of a pass.
    pub fn run(&self, program: &Program, evaluate: &dyn Evaluate) -> Result<(Program, Report), MilError> {
        let mut draft = Draft::of(program)?;
        let mut context = Context { evaluate, options: &self.options, padded: Vec::new() };
        let mut steps = Vec::new();
        for round in 0..ROUNDS {
            let mut changed = false;
            for pass in self.passes.iter().filter(|p| round == 0 || p.repeats) {
                let changes = (pass.run)(&mut draft, &mut context)?;
                if changes > 0 {
                    steps.push(PassRun { pass: pass.name, changes });
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        let padded = context.padded;
        let after = draft.freeze()?;
        let count = |p: &Program| p.functions.iter().map(|f| f.ops.len()).sum();
        let ops = (count(program), count(&after));
        Ok((after, Report { steps, padded, ops }))
    }
}
