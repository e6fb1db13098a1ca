//! Core ML's plan of a model: its structure, and the device of each op (macOS 14.4).
//!
//! Selectors and types are those of Apple's headers.

use super::block::HandlerBlock;
use super::coreml::Configuration;
use super::foundation::{List, Map, Text, Url};
use super::object::Object;
use super::{BoundClass, Method, class};
use ferrane_device::Result;

class! {
    /// The plan of a model.
    ComputePlan = c"MLComputePlan" {
        /// Makes the plan of a compiled model, and calls the block with it or with an error.
        pub class load(compiled: &Url, configuration: &Configuration, block: &HandlerBlock<'_>) -> () = c"loadContentsOfURL:configuration:completionHandler:", "v@:@@@?";
        /// The structure of the model.
        pub method structure() -> Result<Structure> = c"modelStructure", "@@:";
        /// The devices of an op; nil for ops that do not run, such as constants.
        pub method usage(operation: &Operation) -> Option<DeviceUsage> = c"computeDeviceUsageForMLProgramOperation:", "@@:@";
        /// The estimated cost of an op; nil if it is not known.
        pub method cost(operation: &Operation) -> Option<PlanCost> = c"estimatedCostOfMLProgramOperation:", "@@:@";
    }
}

class! {
    /// The structure of a model.
    Structure = c"MLModelStructure" {
        /// The program; nil if the model is of another kind.
        pub method program() -> Option<StructureProgram> = c"program", "@@:";
    }
}

class! {
    /// A program.
    StructureProgram = c"MLModelStructureProgram" {
        /// The functions by name.
        pub method functions() -> Result<Map> = c"functions", "@@:";
    }
}

class! {
    /// A function.
    StructureFunction = c"MLModelStructureProgramFunction" {
        /// The block with its ops.
        pub method block() -> Result<StructureBlock> = c"block", "@@:";
    }
}

class! {
    /// A block of ops.
    StructureBlock = c"MLModelStructureProgramBlock" {
        /// The ops in order.
        pub method operations() -> Result<List> = c"operations", "@@:";
    }
}

class! {
    /// An op.
    Operation = c"MLModelStructureProgramOperation" {
        /// The name of the operator, such as `ios17.conv`.
        pub method operator() -> Result<Text> = c"operatorName", "@@:";
        /// The results.
        pub method outputs() -> Result<List> = c"outputs", "@@:";
        /// Blocks inside of the op.
        pub method blocks() -> Result<List> = c"blocks", "@@:";
    }
}

class! {
    /// A result of an op.
    NamedValue = c"MLModelStructureProgramNamedValueType" {
        /// Its name.
        pub method name() -> Result<Text> = c"name", "@@:";
    }
}

class! {
    /// The devices of an op.
    DeviceUsage = c"MLComputePlanDeviceUsage" {
        /// Devices that can run it.
        pub method supported() -> Result<List> = c"supportedComputeDevices", "@@:";
        /// The device that Core ML prefers.
        pub method preferred() -> Option<Object> = c"preferredComputeDevice", "@@:";
    }
}

class! {
    /// The cost of an op.
    PlanCost = c"MLComputePlanCost" {
        /// Its share of the cost of the whole model, from 0 to 1.
        pub method weight() -> f64 = c"weight", "d@:";
    }
}

pub(super) fn methods() -> Vec<&'static Method> {
    let lists = [
        ComputePlan::methods(),
        Structure::methods(),
        StructureProgram::methods(),
        StructureFunction::methods(),
        StructureBlock::methods(),
        Operation::methods(),
        NamedValue::methods(),
        DeviceUsage::methods(),
        PlanCost::methods(),
    ];
    lists.into_iter().flatten().collect()
}
