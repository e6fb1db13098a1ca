//! The public Core ML classes that the E5 path uses: configurations, a compiled model to borrow
//! from, arrays and features.
//!
//! Selectors and types are those of Apple's headers, except for the configuration keys in
//! apple-runtime §12, whose types come from published class listings.

use std::ffi::c_void;
use std::path::{Path, PathBuf};

use ferrane_device::{Error, ErrorKind, Result};
use objc2::encode::{Encode, Encoding};

use super::class;
use super::foundation::{List, Map, Text, Url, url};
use super::object::{Arg, Object};
use super::{BoundClass, Method};

/// The type of an absent block argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct NoBlock(*const c_void);

impl NoBlock {
    /// The nil block: no deallocator.
    pub const NIL: NoBlock = NoBlock(std::ptr::null());
}

// SAFETY: a block argument is a pointer, and this type is one, always null.
unsafe impl Encode for NoBlock {
    const ENCODING: Encoding = Encoding::Block;
}

/// `MLComputeUnits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(isize)]
pub enum ComputeUnits {
    /// The CPU, and no other unit.
    Cpu = 0,
    /// The CPU, the GPU and the engine.
    All = 2,
    /// The CPU and the engine.
    CpuAndEngine = 3,
}

/// `MLMultiArrayDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(isize)]
pub enum ArrayType {
    /// 32-bit floats.
    Fp32 = 65568,
    /// 32-bit integers.
    Int32 = 131104,
}

class! {
    /// The configuration with which a model is loaded.
    Configuration = c"MLModelConfiguration" {
        /// A configuration with every default.
        pub make new() -> Result<Configuration> = c"init", "@@:";
        /// The units that may be used: a [`ComputeUnits`].
        pub method set_compute_units(units: isize) -> () = c"setComputeUnits:", "v@:q";
        /// 1 sends a model through the E5 runtime.
        pub method e5_usage() -> isize = c"experimentalMLE5EngineUsage", "q@:";
        /// Sets the engine usage; see [`Configuration::e5_usage`].
        pub method set_e5_usage(usage: isize) -> () = c"setExperimentalMLE5EngineUsage:", "v@:q";
        /// The devices that the E5 runtime may use, one bit each.
        pub method device_mask() -> u64 = c"e5rtComputeDeviceTypeMask", "Q@:";
        /// Sets the mask of devices.
        pub method set_device_mask(mask: u64) -> () = c"setE5rtComputeDeviceTypeMask:", "v@:Q";
        /// Options for the engine's compiler; nil if none were set.
        pub method compiler_options() -> Option<Text> = c"e5rtCustomANECompilerOptions", "@@:";
        /// Sets the options for the engine's compiler.
        pub method set_compiler_options(options: Option<&Text>) -> () = c"setE5rtCustomANECompilerOptions:", "v@:@";
        /// The options that the engine's compiler finally receives, such as
        /// `EnableLowEffortCPAllocation=true`.
        pub method engine_options() -> Option<Text> = c"neuralEngineCompilerOptions", "@@:";
        /// Functions that may be called while a program runs.
        pub method dynamic_functions() -> Option<Object> = c"e5rtDynamicCallableFunctions", "@@:";
    }
}

class! {
    /// A Core ML model.
    CoreModel = c"MLModel" {
        /// Compiles a package or model into a temporary folder.
        pub fetch_class compile(source: &Url) -> Url = c"compileModelAtURL:error:", "@@:@^@";
        /// Loads a compiled model.
        pub fetch_class load(compiled: &Url, configuration: &Configuration) -> CoreModel = c"modelWithContentsOfURL:configuration:error:", "@@:@@^@";
        /// The description of its ports.
        pub method description() -> Result<Description> = c"modelDescription", "@@:";
    }
}

class! {
    /// The description of a model's ports.
    Description = c"MLModelDescription" {
        /// Descriptions of the inputs by name.
        pub method inputs() -> Result<Map> = c"inputDescriptionsByName", "@@:";
        /// Descriptions of the outputs by name.
        pub method outputs() -> Result<Map> = c"outputDescriptionsByName", "@@:";
    }
}

class! {
    /// A Core ML tensor.
    MultiArray = c"MLMultiArray" {
        /// An array over memory that its owner keeps alive for longer: `dtype` is an [`ArrayType`],
        /// strides are in elements.
        pub(crate) fetch_new over(memory: *const c_void, shape: &List, dtype: isize, strides: &List, deallocator: NoBlock) -> MultiArray = c"initWithDataPointer:shape:dataType:strides:deallocator:error:", "@@:^v@q@@?^@";
        /// The address of the first element.
        pub method data() -> *mut c_void = c"dataPointer", "^v@:";
        /// The element type, an [`ArrayType`].
        pub method dtype() -> isize = c"dataType", "q@:";
        /// The extents, outermost first.
        pub method shape() -> Result<List> = c"shape", "@@:";
        /// The stride of each axis in elements.
        pub method strides() -> Result<List> = c"strides", "@@:";
    }
}

class! {
    /// The value of a port.
    FeatureValue = c"MLFeatureValue" {
        /// A value that holds a tensor.
        pub class with(array: &MultiArray) -> Result<FeatureValue> = c"featureValueWithMultiArray:", "@@:@";
        /// The tensor; nil if the value is not one.
        pub method array() -> Option<MultiArray> = c"multiArrayValue", "@@:";
    }
}

class! {
    /// Values of ports by name. Any object of the protocol `MLFeatureProvider` responds to the
    /// second method.
    Features = c"MLDictionaryFeatureProvider" {
        /// Takes a dictionary from names to values.
        pub fetch_new with(values: &Map) -> Features = c"initWithDictionary:error:", "@@:@^@";
        /// The value of a port; nil if there is none.
        pub method value(name: &Text) -> Option<FeatureValue> = c"featureValueForName:", "@@:@";
    }
}

class! {
    /// The options of one prediction.
    PredictionOptions = c"MLPredictionOptions" {
        /// Options with every default.
        pub make new() -> Result<PredictionOptions> = c"init", "@@:";
        /// Arrays by output name, to be written instead of new ones. Core ML may ignore them.
        pub method set_backings(backings: &Map) -> () = c"setOutputBackings:", "v@:@";
        /// The output arrays that were set.
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

impl Configuration {
    /// The configuration for these units.
    ///
    /// # Errors
    /// Core ML returned nil, raised an exception or lacks a method.
    pub fn of(units: ComputeUnits) -> Result<Configuration> {
        let configuration = Configuration::new()??;
        configuration.set_compute_units(units as isize)?;
        Ok(configuration)
    }
}

impl CoreModel {
    /// Compiles a package or model, and gives the path of the temporary folder with the result,
    /// which the caller owns.
    ///
    /// # Errors
    /// Core ML refuses the model, or as [`url`].
    pub fn compiled(source: &Path) -> Result<PathBuf> {
        let compiled = CoreModel::compile(&url(source)?)?.path()?;
        let compiled =
            compiled.ok_or_else(|| Error::new(ErrorKind::System, "Core ML gives no path of a compiled model"))?;
        Ok(PathBuf::from(compiled.read()?))
    }
}

impl Arg for NoBlock {
    type Raw = NoBlock;

    fn raw(&self) -> NoBlock {
        *self
    }
}
