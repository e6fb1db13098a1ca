//! What the E5 path needs of the public Core ML: configurations, a compiled model to borrow from,
//! arrays and features.
//!
//! Selectors and types are those of Apple's headers, but for the keys of a configuration that
//! apple-runtime §12 names: their types are those of published class listings.

use std::ffi::c_void;

use ferrane_device::Result;
use objc2::encode::{Encode, Encoding};

use super::class;
use super::foundation::{List, Map, Text, Url};
use super::object::{Arg, Object};
use super::{BoundClass, Method};

/// No block.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct NoBlock(*const c_void);

impl NoBlock {
    /// Nil.
    pub const NIL: NoBlock = NoBlock(std::ptr::null());
}

// SAFETY: a block is a pointer, and nil is one.
unsafe impl Encode for NoBlock {
    const ENCODING: Encoding = Encoding::Block;
}

/// `MLComputeUnits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(isize)]
pub enum ComputeUnits {
    /// The CPU alone.
    Cpu = 0,
    /// The CPU and the engine.
    CpuAndEngine = 3,
}

/// `MLMultiArrayDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(isize)]
pub enum ArrayType {
    /// fp32.
    Fp32 = 65568,
    /// int32.
    Int32 = 131104,
}

class! {
    /// How a model is to run.
    Configuration = c"MLModelConfiguration" {
        /// One with every default.
        pub make new() -> Result<Configuration> = c"init", "@@:";
        /// Which units may be used: a [`ComputeUnits`].
        pub method set_compute_units(units: isize) -> () = c"setComputeUnits:", "v@:q";
        /// 1 sends a model through the E5 runtime.
        pub method e5_usage() -> isize = c"experimentalMLE5EngineUsage", "q@:";
        /// Sets it.
        pub method set_e5_usage(usage: isize) -> () = c"setExperimentalMLE5EngineUsage:", "v@:q";
        /// The devices that the E5 runtime may use, a bit each.
        pub method device_mask() -> u64 = c"e5rtComputeDeviceTypeMask", "Q@:";
        /// Sets them.
        pub method set_device_mask(mask: u64) -> () = c"setE5rtComputeDeviceTypeMask:", "v@:Q";
        /// Options for the engine's compiler; nil unless they were set.
        pub method compiler_options() -> Option<Text> = c"e5rtCustomANECompilerOptions", "@@:";
        /// Sets them.
        pub method set_compiler_options(options: Option<&Text>) -> () = c"setE5rtCustomANECompilerOptions:", "v@:@";
        /// What the engine's compiler is given in the end, `EnableLowEffortCPAllocation=true` for
        /// example.
        pub method engine_options() -> Option<Text> = c"neuralEngineCompilerOptions", "@@:";
        /// Functions that may be called while a program runs.
        pub method dynamic_functions() -> Option<Object> = c"e5rtDynamicCallableFunctions", "@@:";
    }
}

class! {
    /// A model of Core ML.
    CoreModel = c"MLModel" {
        /// Compiles a package or model into a temporary folder.
        pub fetch_class compile(source: &Url) -> Url = c"compileModelAtURL:error:", "@@:@^@";
        /// Loads a compiled one.
        pub fetch_class load(compiled: &Url, configuration: &Configuration) -> CoreModel = c"modelWithContentsOfURL:configuration:error:", "@@:@@^@";
        /// Its ports.
        pub method description() -> Result<Description> = c"modelDescription", "@@:";
    }
}

class! {
    /// The ports of a model.
    Description = c"MLModelDescription" {
        /// Inputs by name.
        pub method inputs() -> Result<Map> = c"inputDescriptionsByName", "@@:";
        /// Outputs by name.
        pub method outputs() -> Result<Map> = c"outputDescriptionsByName", "@@:";
    }
}

class! {
    /// A tensor of Core ML.
    MultiArray = c"MLMultiArray" {
        /// Over memory that somebody else owns and outlives it: `dtype` is an [`ArrayType`],
        /// strides count elements.
        pub(crate) fetch_new over(memory: *const c_void, shape: &List, dtype: isize, strides: &List, deallocator: NoBlock) -> MultiArray = c"initWithDataPointer:shape:dataType:strides:deallocator:error:", "@@:^v@q@@?^@";
        /// Its elements.
        pub method data() -> *mut c_void = c"dataPointer", "^v@:";
        /// Its element type.
        pub method dtype() -> isize = c"dataType", "q@:";
        /// Its extents.
        pub method shape() -> Result<List> = c"shape", "@@:";
        /// Elements from one index to the next, per axis.
        pub method strides() -> Result<List> = c"strides", "@@:";
    }
}

class! {
    /// The value of a port.
    FeatureValue = c"MLFeatureValue" {
        /// A tensor.
        pub class with(array: &MultiArray) -> Result<FeatureValue> = c"featureValueWithMultiArray:", "@@:@";
        /// The tensor, if it is one.
        pub method array() -> Option<MultiArray> = c"multiArrayValue", "@@:";
    }
}

class! {
    /// Values of ports by name. Any object of the protocol `MLFeatureProvider` answers to the
    /// second method.
    Features = c"MLDictionaryFeatureProvider" {
        /// Of a dictionary.
        pub fetch_new with(values: &Map) -> Features = c"initWithDictionary:error:", "@@:@^@";
        /// The value of a port.
        pub method value(name: &Text) -> Option<FeatureValue> = c"featureValueForName:", "@@:@";
    }
}

class! {
    /// How one prediction is to be made.
    PredictionOptions = c"MLPredictionOptions" {
        /// With every default.
        pub make new() -> Result<PredictionOptions> = c"init", "@@:";
        /// Arrays by the names of outputs, to be written in place of new ones. Core ML need not
        /// follow.
        pub method set_backings(backings: &Map) -> () = c"setOutputBackings:", "v@:@";
        /// What was set.
        pub method backings() -> Result<Map> = c"outputBackings", "@@:";
    }
}

pub(super) fn methods() -> Vec<&'static Method> {
    let lists = [
        Configuration::methods(),
        CoreModel::methods(),
        Description::methods(),
        MultiArray::methods(),
        FeatureValue::methods(),
        Features::methods(),
        PredictionOptions::methods(),
    ];
    lists.into_iter().flatten().collect()
}

impl Arg for NoBlock {
    type Raw = NoBlock;

    fn raw(&self) -> NoBlock {
        *self
    }
}
