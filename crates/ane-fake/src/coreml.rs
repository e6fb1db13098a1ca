//! The Core ML classes that the E5 path uses: configurations, models, descriptions, arrays,
//! features.
//!
//! A compiled model is a folder that contains the text. Arrays are fp32 or int32.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrane_host::sync::lock;
use ferrane_mil::package::{Form, Opened, open};
use ferrane_mil::{DataType, Function, Type};
use objc2::encode::{Encode, Encoding};
use objc2::rc::{Allocated, Retained};
use objc2::runtime::{AnyObject, NSObject};
use objc2::{ClassType, DefinedClass, define_class};

use crate::foundation::{
    FakeDictionary, FakeString, FakeUrl, Object, dictionary, elements, given, make, number, numbers, path, report,
    string, text, url,
};
use crate::program::failure;
use crate::session::{Call, CallFailure, count};

/// A failure in Core ML's domain.
pub(crate) fn refused(text: impl Into<String>) -> CallFailure {
    failure("com.apple.CoreML", 0, text)
}

/// The result of a method with an `NSError **`.
pub(crate) fn found<T>(result: Result<T, CallFailure>, error: *mut *mut AnyObject) -> Option<T> {
    result.map_err(|failure| report(error, failure)).ok()
}

/// Sends NSObject's `init` to an allocated object with instance variables.
macro_rules! init {
    ($this:ident, $ivars:expr) => {{
        let this = $this.set_ivars($ivars);
        // SAFETY: `init` of NSObject returns the object that `alloc` made.
        unsafe { objc2::msg_send![super(this), init] }
    }};
}

pub(crate) use init;

#[derive(Default)]
pub(crate) struct Settings {
    units: isize,
    usage: isize,
    mask: u64,
    options: Option<String>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelConfiguration"]
    #[ivars = Mutex<Settings>]
    pub(crate) struct FakeConfiguration;

    impl FakeConfiguration {
        #[unsafe(method_id(init))]
        fn init(this: Allocated<Self>) -> Retained<Self> {
            init!(this, Mutex::default())
        }

        #[unsafe(method(setComputeUnits:))]
        fn set_units(&self, units: isize) {
            self.set(|s| s.units = units);
        }

        #[unsafe(method(experimentalMLE5EngineUsage))]
        fn usage(&self) -> isize {
            self.set(|s| s.usage)
        }

        #[unsafe(method(setExperimentalMLE5EngineUsage:))]
        fn set_usage(&self, usage: isize) {
            self.set(|s| s.usage = usage);
        }

        #[unsafe(method(e5rtComputeDeviceTypeMask))]
        fn mask(&self) -> u64 {
            self.set(|s| s.mask)
        }

        #[unsafe(method(setE5rtComputeDeviceTypeMask:))]
        fn set_mask(&self, mask: u64) {
            self.set(|s| s.mask = mask);
        }

        #[unsafe(method_id(e5rtCustomANECompilerOptions))]
        fn options(&self) -> Option<Retained<FakeString>> {
            self.set(|s| s.options.as_deref().map(string))
        }

        #[unsafe(method(setE5rtCustomANECompilerOptions:))]
        fn set_options(&self, options: Option<&AnyObject>) {
            self.set(|s| s.options = text(options));
        }

        #[unsafe(method_id(neuralEngineCompilerOptions))]
        fn engine_options(&self) -> Option<Retained<FakeString>> {
            // The options that were set, or else the system's (apple-runtime §12).
            Some(self.set(|s| string(s.options.as_deref().unwrap_or("EnableLowEffortCPAllocation=true"))))
        }

        #[unsafe(method_id(e5rtDynamicCallableFunctions))]
        fn dynamic_functions(&self) -> Option<Object> {
            None
        }
    }
);

impl FakeConfiguration {
    fn set<T>(&self, change: impl FnOnce(&mut Settings) -> T) -> T {
        change(&mut lock(self.ivars()))
    }

    /// True if a model goes through the E5 runtime, to the CPU and the engine.
    pub(crate) fn is_e5(&self) -> bool {
        self.set(|s| (s.usage, s.units) == (1, 3))
    }
}

/// The element type and extents of a port.
pub(crate) type PortShape = (DataType, Vec<usize>);

/// The ports of a function by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ports {
    pub(crate) inputs: BTreeMap<String, PortShape>,
    pub(crate) outputs: BTreeMap<String, PortShape>,
}

impl Ports {
    pub(crate) fn of(function: &Function) -> Ports {
        let side = |ids: &[ferrane_mil::ValueId]| {
            let port = |v: &ferrane_mil::ValueId| {
                let value = function.value(*v);
                let tensor = matches!(value.ty, Type::Tensor { .. }).then(|| value.ty.dtype().zip(value.ty.shape()));
                Some((value.name.clone(), tensor??))
            };
            ids.iter().filter_map(port).collect()
        };
        Ports { inputs: side(&function.inputs), outputs: side(&function.body().outputs) }
    }
}

pub(crate) fn opened(path: &Path, form: Form) -> Result<Opened, CallFailure> {
    let odd = |e: String| refused(format!("Unable to load {}: {e}", path.display()));
    let found = open(path).map_err(|e| odd(e.to_string()))?;
    if found.form == form { Ok(found) } else { Err(odd("another form".into())) }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModel"]
    #[ivars = Retained<FakeDescription>]
    struct FakeModel;

    impl FakeModel {
        #[unsafe(method_id(compileModelAtURL:error:))]
        fn compile(source: Option<&AnyObject>, error: *mut *mut AnyObject) -> Option<Retained<FakeUrl>> {
            found(count(Call::CompileModel).and_then(|()| compile(source)), error)
        }

        #[unsafe(method_id(modelWithContentsOfURL:configuration:error:))]
        fn load(
            source: Option<&AnyObject>,
            configuration: Option<&AnyObject>,
            error: *mut *mut AnyObject,
        ) -> Option<Retained<FakeModel>> {
            let load = || {
                let source = path(source).ok_or_else(|| refused("no URL"))?;
                configuration
                    .and_then(|c| c.downcast_ref::<FakeConfiguration>())
                    .ok_or_else(|| refused("no configuration"))?;
                let model = opened(&source, Form::Compiled)?;
                let main = model.program.function("main").ok_or_else(|| refused("no function main"))?;
                let description: Retained<FakeDescription> = make!(FakeDescription, Ports::of(main));
                Ok(make!(FakeModel, description))
            };
            found(load(), error)
        }

        #[unsafe(method_id(modelDescription))]
        fn description(&self) -> Retained<FakeDescription> {
            self.ivars().clone()
        }
    }
);

/// Compiles a package into a new folder, which the caller then owns.
fn compile(source: Option<&AnyObject>) -> Result<Retained<FakeUrl>, CallFailure> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let source = path(source).ok_or_else(|| refused("no URL"))?;
    let package = opened(&source, Form::Package)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("fake-{}-{number}.mlmodelc", std::process::id()));
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("model.mil"), ferrane_mil::print(&package.program)));
    written.map_err(|e| refused(e.to_string()))?;
    Ok(url(&folder))
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLModelDescription"]
    #[ivars = Ports]
    pub(crate) struct FakeDescription;

    impl FakeDescription {
        #[unsafe(method_id(inputDescriptionsByName))]
        fn inputs(&self) -> Object {
            described(&self.ivars().inputs)
        }

        #[unsafe(method_id(outputDescriptionsByName))]
        fn outputs(&self) -> Object {
            described(&self.ivars().outputs)
        }
    }
);

fn described(ports: &BTreeMap<String, PortShape>) -> Object {
    let words = |tensor: &PortShape| string(&format!("{tensor:?}")).into_super().into();
    dictionary(ports.iter().map(|(name, tensor)| (name.as_str(), words(tensor))).collect())
}

/// A block argument, which is nil here.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct NullableBlock(*const c_void);

// SAFETY: a block argument is a pointer, and this type is one.
unsafe impl Encode for NullableBlock {
    const ENCODING: Encoding = Encoding::Block;
}

/// The layout of four-byte elements in memory.
pub(crate) struct Elements {
    address: usize,
    pub(crate) dtype: DataType,
    pub(crate) shape: Vec<usize>,
    strides: Vec<usize>,
    /// The memory, if the array owns it.
    _own: Option<Box<[u32]>>,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLMultiArray"]
    #[ivars = Elements]
    pub(crate) struct FakeMultiArray;

    impl FakeMultiArray {
        #[unsafe(method_id(initWithDataPointer:shape:dataType:strides:deallocator:error:))]
        fn over(
            this: Allocated<Self>,
            memory: *mut c_void,
            shape: Option<&AnyObject>,
            dtype: isize,
            strides: Option<&AnyObject>,
            _deallocator: NullableBlock,
            error: *mut *mut AnyObject,
        ) -> Option<Retained<Self>> {
            let list = |list| {
                let numbers = elements(list)?.iter().map(|n| number(Some(n)).map(|n| n as usize));
                numbers.collect::<Option<Vec<_>>>()
            };
            let found = given(|| Some((list(shape)?, list(strides)?)));
            let dtype = array_type(dtype);
            match (found, dtype) {
                (Some((shape, strides)), Some(dtype)) if shape.len() == strides.len() && !shape.is_empty() => {
                    init!(this, Elements { address: memory as usize, dtype, shape, strides, _own: None })
                }
                _ => {
                    report(error, refused("no such multi array"));
                    None
                }
            }
        }

        #[unsafe(method(dataPointer))]
        fn data(&self) -> *mut c_void {
            self.ivars().address as *mut c_void
        }

        #[unsafe(method(dataType))]
        fn dtype(&self) -> isize {
            if self.ivars().dtype == DataType::Int32 { INT32 } else { FP32 }
        }

        #[unsafe(method_id(shape))]
        fn shape(&self) -> Object {
            numbers(self.ivars().shape.iter().map(|n| *n as u64))
        }

        #[unsafe(method_id(strides))]
        fn strides(&self) -> Object {
            numbers(self.ivars().strides.iter().map(|n| *n as u64))
        }
    }
);

/// The values of `MLMultiArrayDataTypeFloat32` and `…Int32`.
const FP32: isize = 0x10000 | 32;
const INT32: isize = 0x20000 | 32;

fn array_type(code: isize) -> Option<DataType> {
    match code {
        FP32 => Some(DataType::Fp32),
        INT32 => Some(DataType::Int32),
        _ => None,
    }
}

impl FakeMultiArray {
    /// An array with its own memory and a gap between elements, so a caller that assumes packed
    /// elements fails.
    pub(crate) fn new((dtype, shape): &PortShape) -> Retained<FakeMultiArray> {
        let mut strides = vec![2; shape.len()];
        for axis in (0..shape.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        let mut own = vec![0; 2 * shape.iter().product::<usize>().max(1)].into_boxed_slice();
        let address = own.as_mut_ptr() as usize;
        make!(FakeMultiArray, Elements { address, dtype: *dtype, shape: shape.clone(), strides, _own: Some(own) })
    }

    /// The addresses of the elements in row-major order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = *mut u32> + '_ {
        let Elements { address, shape, strides, .. } = self.ivars();
        (0..shape.iter().product::<usize>()).map(move |mut i| {
            let mut offset = 0;
            for (extent, stride) in shape.iter().zip(strides).rev() {
                offset += i % extent * stride;
                i /= extent;
            }
            (*address + 4 * offset) as *mut u32
        })
    }

    pub(crate) fn tensor(&self) -> PortShape {
        (self.ivars().dtype, self.ivars().shape.clone())
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLFeatureValue"]
    #[ivars = Retained<FakeMultiArray>]
    pub(crate) struct FakeFeatureValue;

    impl FakeFeatureValue {
        #[unsafe(method_id(featureValueWithMultiArray:))]
        fn with(array: Option<&AnyObject>) -> Option<Retained<FakeFeatureValue>> {
            given(|| {
                let array = array?.downcast_ref::<FakeMultiArray>()?;
                // SAFETY: a live object of that class, which is retained.
                let array = unsafe { Retained::retain(std::ptr::from_ref(array).cast_mut()) }?;
                Some(make!(FakeFeatureValue, array))
            })
        }

        #[unsafe(method_id(multiArrayValue))]
        fn array(&self) -> Retained<FakeMultiArray> {
            self.ivars().clone()
        }
    }
);

impl FakeFeatureValue {
    pub(crate) fn of(array: Retained<FakeMultiArray>) -> Retained<FakeFeatureValue> {
        make!(FakeFeatureValue, array)
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLDictionaryFeatureProvider"]
    #[ivars = BTreeMap<String, Retained<FakeFeatureValue>>]
    pub(crate) struct FakeFeatures;

    impl FakeFeatures {
        #[unsafe(method_id(initWithDictionary:error:))]
        fn with(
            this: Allocated<Self>,
            values: Option<&AnyObject>,
            error: *mut *mut AnyObject,
        ) -> Option<Retained<Self>> {
            let value = |(name, object): (String, Object)| Some((name, object.downcast::<FakeFeatureValue>().ok()?));
            let values = values.and_then(|v| v.downcast_ref::<FakeDictionary>());
            match values.and_then(|v| v.entries().map(value).collect()) {
                Some(values) => init!(this, values),
                None => {
                    report(error, refused("no dictionary of features"));
                    None
                }
            }
        }

        #[unsafe(method_id(featureValueForName:))]
        fn value(&self, name: Option<&AnyObject>) -> Option<Retained<FakeFeatureValue>> {
            given(|| self.ivars().get(&text(name)?).cloned())
        }
    }
);

impl FakeFeatures {
    pub(crate) fn of(values: BTreeMap<String, Retained<FakeFeatureValue>>) -> Retained<FakeFeatures> {
        make!(FakeFeatures, values)
    }

    pub(crate) fn arrays(&self) -> impl Iterator<Item = (&str, &FakeMultiArray)> {
        self.ivars().iter().map(|(name, value)| (name.as_str(), &**value.ivars()))
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "MLPredictionOptions"]
    #[ivars = Mutex<Option<Object>>]
    pub(crate) struct FakeOptions;

    impl FakeOptions {
        #[unsafe(method_id(init))]
        fn init(this: Allocated<Self>) -> Retained<Self> {
            init!(this, Mutex::default())
        }

        #[unsafe(method(setOutputBackings:))]
        fn set_backings(&self, backings: &AnyObject) {
            // SAFETY: a live object, which is retained.
            let kept = unsafe { Retained::retain(std::ptr::from_ref(backings).cast_mut()) };
            *lock(self.ivars()) = kept;
        }

        #[unsafe(method_id(outputBackings))]
        fn backings(&self) -> Object {
            let backings = lock(self.ivars()).clone();
            backings.unwrap_or_else(|| dictionary(Vec::new()))
        }
    }
);

impl FakeOptions {
    pub(crate) fn backing(&self, name: &str) -> Option<Retained<FakeMultiArray>> {
        let backings = lock(self.ivars()).clone()?;
        backings.downcast_ref::<FakeDictionary>()?.get(name)?.downcast::<FakeMultiArray>().ok()
    }
}

pub(crate) fn register() {
    let _ = (FakeConfiguration::class(), FakeModel::class(), FakeDescription::class(), FakeMultiArray::class());
    let _ = (FakeFeatureValue::class(), FakeFeatures::class(), FakeOptions::class());
}
