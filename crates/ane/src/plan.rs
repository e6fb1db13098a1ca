//! Core ML's own plan of a model: for each op, the processors that can run it and the one that Core
//! ML prefers.
//!
//! `MLComputePlan` (macOS 14.4) is public, and its answer is what
//! [`placement`](ferrane_machine::placement) predicts where there is no Mac. It states a preference
//! before anything runs. **This crate has never asked it on a Mac**; it is tested over the fake
//! framework.

use std::path::Path;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_machine::placement::{AllowedUnits, PlannedOp};

/// The plan of each op of a function that runs, in order; ops in blocks of other ops follow those.
///
/// `model` is an `.mlpackage`, an `.mlmodel`, or a compiled `.mlmodelc`. Core ML compiles it for
/// this Mac, which can take minutes.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if there is no Core ML or it is older than macOS 14.4,
/// [`ErrorKind::Unsupported`] for a model that is no program or lacks the function,
/// [`ErrorKind::System`] with Core ML's reason if it makes no plan.
pub fn compute_plan(model: &Path, function: &str, units: AllowedUnits) -> Result<Vec<PlannedOp>> {
    #[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
    if call::is_there()? {
        return objc2::rc::autoreleasepool(|_| call::plan(model, function, units));
    }
    let _ = (model, function, units);
    let os = std::env::consts::OS;
    let message = format!("the plan of a model comes from Core ML, a framework of macOS; this is {os}");
    Err(Error::new(ErrorKind::Unavailable, message))
}

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod call {
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use ferrane_device::{Error, ErrorKind, Result};
    use ferrane_machine::placement::{AllowedUnits, PlannedOp, Processor};

    use crate::bind::coreml::{ComputeUnits, Configuration, CoreModel};
    use crate::bind::foundation::{self, text, url};
    use crate::bind::plan::{ComputePlan, NamedValue, Operation, StructureBlock, StructureFunction};
    use crate::bind::{Ended, Handler, HandlerBlock, Held, Object};

    /// How long Core ML may take: it compiles the model for each processor.
    const LIMIT: Duration = Duration::from_secs(1800);

    /// Blocks inside of ops are not visited beyond this depth.
    const DEPTH: usize = 32;

    pub(super) fn is_there() -> Result<bool> {
        #[cfg(target_vendor = "apple")]
        return crate::system::find().map(|_| true);
        #[cfg(not(target_vendor = "apple"))]
        Ok(crate::system::find().is_some())
    }

    struct Answer(Sender<(Option<Object>, Option<Object>)>);

    impl Handler for Answer {
        fn ended(&self, with: Ended) {
            if let Ended::Answer(found, error) = with {
                // The receiver is gone if it took too long.
                let _ = self.0.send((found, error));
            }
        }
    }

    /// A compiled model in a temporary folder, removed on drop.
    struct Temporary(PathBuf);

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    pub(super) fn plan(model: &Path, function: &str, units: AllowedUnits) -> Result<Vec<PlannedOp>> {
        let compiled = model.extension().is_some_and(|e| e == "mlmodelc");
        let temporary = if compiled { None } else { Some(Temporary(CoreModel::compiled(model)?)) };
        let path = temporary.as_ref().map_or(model, |t| &t.0);
        let units = if units == AllowedUnits::All { ComputeUnits::All } else { ComputeUnits::CpuAndEngine };
        let plan = load(path, units)?;
        let unsupported = |message: String| Error::new(ErrorKind::Unsupported, message);
        let Some(program) = plan.structure()??.program()? else {
            return Err(unsupported("the model is not a program, so Core ML plans no ops of it".into()));
        };
        let found = program.functions()??.get(&text(function)?)?;
        let found = found.ok_or_else(|| unsupported(format!("the model has no function `{function}`")))?;
        let mut ops = Vec::new();
        visit(&plan, &found.cast::<StructureFunction>()?.block()??, DEPTH, &mut ops)?;
        Ok(ops)
    }

    fn load(compiled: &Path, units: ComputeUnits) -> Result<ComputePlan> {
        let (sender, receiver) = channel();
        let held = Held::new(Answer(sender));
        ComputePlan::load(&url(compiled)?, &Configuration::of(units)?, &HandlerBlock::with_answer(&held))?;
        let seconds = LIMIT.as_secs();
        let (found, error) = receiver
            .recv_timeout(LIMIT)
            .map_err(|_| Error::new(ErrorKind::System, format!("Core ML has made no plan in {seconds} seconds")))?;
        match (found, error) {
            (Some(plan), _) => plan.cast(),
            (None, Some(error)) => Err(foundation::error(error)),
            (None, None) => Err(Error::new(ErrorKind::System, "Core ML makes no plan and gives no reason")),
        }
    }

    fn visit(plan: &ComputePlan, block: &StructureBlock, depth: usize, ops: &mut Vec<PlannedOp>) -> Result<()> {
        for operation in block.operations()??.elements()? {
            let operation: Operation = operation.cast()?;
            // Constants and what is computed when the model is compiled have no device.
            if let Some(usage) = plan.usage(&operation)? {
                let name = match operation.outputs()??.elements()?.into_iter().next() {
                    Some(output) => output.cast::<NamedValue>()?.name()??.read()?,
                    None => String::new(),
                };
                let supported = usage.supported()??.elements()?;
                let supported = supported.iter().filter_map(processor).collect();
                let op = operation.operator()??.read()?;
                ops.push(PlannedOp {
                    name,
                    op: op.rsplit('.').next().unwrap_or_default().to_owned(),
                    supported,
                    preferred: usage.preferred()?.as_ref().and_then(processor),
                    weight: plan.cost(&operation)?.map(|cost| cost.weight()).transpose()?,
                });
            }
            for inner in operation.blocks()??.elements()? {
                if depth > 0 {
                    visit(plan, &inner.cast()?, depth - 1, ops)?;
                }
            }
        }
        Ok(())
    }

    fn processor(device: &Object) -> Option<Processor> {
        match device.class_name().as_str() {
            "MLNeuralEngineComputeDevice" => Some(Processor::Engine),
            "MLGPUComputeDevice" => Some(Processor::Gpu),
            "MLCPUComputeDevice" => Some(Processor::Cpu),
            _ => None,
        }
    }
}
