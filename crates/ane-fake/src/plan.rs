//! Core ML's plan of a model: convolutions and products go to the engine, every other op to the
//! CPU, and constants nowhere.

use std::path::Path;

use ferrane_mil::package::Form;
use ferrane_mil::{Block, Function, OpId};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::coreml::{FakeConfiguration, opened, refused};
use crate::events::{Copied, Literal};
use crate::foundation::{FakeString, Object, array, dictionary, error_object, given, make, path, string};
use crate::session::CallFailure;

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLComputePlan"]
    #[ivars = Retained<FakeStructure>]
    struct FakePlan;

    impl FakePlan {
        #[unsafe(method(loadContentsOfURL:configuration:completionHandler:))]
        fn load(source: Option<&AnyObject>, configuration: Option<&AnyObject>, handler: *const Literal) {
            // SAFETY: `handler` is a live block or nil.
            let Some(copied) = (unsafe { Copied::of(handler) }) else { return };
            let known = configuration.is_some_and(|c| c.downcast_ref::<FakeConfiguration>().is_some());
            let source = path(source).filter(|_| known);
            std::thread::spawn(move || {
                let plan = source.ok_or_else(|| refused("no URL or no configuration")).and_then(|path| plan(&path));
                match plan {
                    Ok(plan) => copied.answer(Some(plan), None),
                    Err(failure) => copied.answer(None, Some(error_object(failure))),
                }
            });
        }

        #[unsafe(method_id(modelStructure))]
        fn structure(&self) -> Retained<FakeStructure> {
            self.ivars().clone()
        }

        #[unsafe(method_id(computeDeviceUsageForMLProgramOperation:))]
        fn usage(&self, operation: Option<&AnyObject>) -> Option<Retained<FakeUsage>> {
            given(|| {
                let op = operation?.downcast_ref::<FakeOperation>()?.ivars();
                op.runs().then(|| make!(FakeUsage, op.engine()))
            })
        }

        #[unsafe(method_id(estimatedCostOfMLProgramOperation:))]
        fn cost(&self, operation: Option<&AnyObject>) -> Option<Retained<FakeCost>> {
            given(|| {
                let op = operation?.downcast_ref::<FakeOperation>()?.ivars();
                op.runs().then(|| make!(FakeCost, if op.engine() { 0.5 } else { 0.0 }))
            })
        }
    }
);

fn plan(path: &Path) -> Result<Object, CallFailure> {
    let model = opened(path, Form::Compiled)?;
    let functions = model.program.functions.iter().map(|function| {
        let block = block(function, function.body());
        let made: Retained<FakeFunction> = make!(FakeFunction, block);
        (function.name.as_str(), object(made))
    });
    let program: Retained<FakeProgram> = make!(FakeProgram, dictionary(functions.collect()));
    let structure: Retained<FakeStructure> = make!(FakeStructure, program);
    let plan: Retained<FakePlan> = make!(FakePlan, structure);
    Ok(object(plan))
}

fn object<T: ClassType>(made: Retained<T>) -> Object {
    // SAFETY: every object is an `AnyObject`.
    unsafe { Retained::cast_unchecked(made) }
}

fn block(function: &Function, block: &Block) -> Retained<FakeBlock> {
    let op = |id: &OpId| -> Retained<FakeOperation> {
        let op = function.op(*id);
        let outputs = op.outputs.iter().map(|v| function.value(*v).name.clone()).collect();
        let blocks = array(op.blocks.iter().map(|id| self::block(function, function.block(*id))));
        make!(FakeOperation, PlannedOperation { name: op.name.clone(), outputs, blocks })
    };
    make!(FakeBlock, array(block.ops.iter().map(op)))
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructure"]
    #[ivars = Retained<FakeProgram>]
    struct FakeStructure;

    impl FakeStructure {
        #[unsafe(method_id(program))]
        fn program(&self) -> Option<Retained<FakeProgram>> {
            Some(self.ivars().clone())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgram"]
    #[ivars = Object]
    struct FakeProgram;

    impl FakeProgram {
        #[unsafe(method_id(functions))]
        fn functions(&self) -> Object {
            self.ivars().clone()
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramFunction"]
    #[ivars = Retained<FakeBlock>]
    struct FakeFunction;

    impl FakeFunction {
        #[unsafe(method_id(block))]
        fn block(&self) -> Retained<FakeBlock> {
            self.ivars().clone()
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramBlock"]
    #[ivars = Object]
    struct FakeBlock;

    impl FakeBlock {
        #[unsafe(method_id(operations))]
        fn operations(&self) -> Object {
            self.ivars().clone()
        }
    }
);

struct PlannedOperation {
    name: String,
    outputs: Vec<String>,
    blocks: Object,
}

impl PlannedOperation {
    fn runs(&self) -> bool {
        self.name != "const"
    }

    fn engine(&self) -> bool {
        ["conv", "linear", "matmul"].contains(&self.name.as_str())
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramOperation"]
    #[ivars = PlannedOperation]
    struct FakeOperation;

    impl FakeOperation {
        #[unsafe(method_id(operatorName))]
        fn operator(&self) -> Retained<FakeString> {
            string(&format!("ios18.{}", self.ivars().name))
        }

        #[unsafe(method_id(outputs))]
        fn outputs(&self) -> Object {
            array(self.ivars().outputs.iter().map(|name| -> Retained<FakeNamedValue> {
                make!(FakeNamedValue, name.clone())
            }))
        }

        #[unsafe(method_id(blocks))]
        fn blocks(&self) -> Object {
            self.ivars().blocks.clone()
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelStructureProgramNamedValueType"]
    #[ivars = String]
    struct FakeNamedValue;

    impl FakeNamedValue {
        #[unsafe(method_id(name))]
        fn name(&self) -> Retained<FakeString> {
            string(self.ivars())
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLComputePlanDeviceUsage"]
    #[ivars = bool]
    struct FakeUsage;

    impl FakeUsage {
        #[unsafe(method_id(supportedComputeDevices))]
        fn supported(&self) -> Object {
            let cpu = device(false);
            if *self.ivars() { array([cpu, device(true)]) } else { array([cpu]) }
        }

        #[unsafe(method_id(preferredComputeDevice))]
        fn preferred(&self) -> Object {
            device(*self.ivars())
        }
    }
);

fn device(engine: bool) -> Object {
    if engine {
        let made: Retained<FakeEngineDevice> = make!(FakeEngineDevice, ());
        return object(made);
    }
    let made: Retained<FakeCpuDevice> = make!(FakeCpuDevice, ());
    object(made)
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLNeuralEngineComputeDevice"]
    #[ivars = ()]
    struct FakeEngineDevice;
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLCPUComputeDevice"]
    #[ivars = ()]
    struct FakeCpuDevice;
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLComputePlanCost"]
    #[ivars = f64]
    struct FakeCost;

    impl FakeCost {
        #[unsafe(method(weight))]
        fn weight(&self) -> f64 {
            *self.ivars()
        }
    }
);

pub(crate) fn register() {
    let _ = (FakePlan::class(), FakeStructure::class(), FakeProgram::class(), FakeFunction::class());
    let _ = (FakeBlock::class(), FakeOperation::class(), FakeNamedValue::class(), FakeUsage::class());
    let _ = (FakeEngineDevice::class(), FakeCpuDevice::class(), FakeCost::class());
}
