//! The frameworks: classes by name, and the messages of the standard path (apple-runtime §2).
//!
//! Each message is one function here with its argument types, so a wrong guess of a private signature is found in one place; debug
//! builds of `objc2` compare each send with the method's own type encoding.

mod foundation;
pub(crate) mod iosurface;

use std::ffi::CStr;
use std::ptr;

use ferrane_device::{Error, ErrorKind, Result};
use objc2::msg_send;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{AnyClass, AnyObject, Bool};

pub(crate) use foundation::{Foundation, Object};
use iosurface::{IoSurface, IoSurfaces};

/// The quality of service that every published program uses; other values make no difference (benchmarks §9).
const QOS: u32 = 21;

/// The classes and functions that the backend needs.
pub(crate) struct Framework {
    descriptor: &'static AnyClass,
    model: &'static AnyClass,
    request: &'static AnyClass,
    surface_object: &'static AnyClass,
    pub(crate) foundation: Foundation,
    pub(crate) surfaces: IoSurfaces,
}

/// A class by name.
fn class(name: &CStr) -> Result<&'static AnyClass> {
    AnyClass::get(name).ok_or_else(|| {
        let name = name.to_string_lossy();
        Error::new(ErrorKind::Unavailable, format!("this system has no class {name}"))
    })
}

impl Framework {
    /// Those of macOS.
    #[cfg(target_vendor = "apple")]
    pub(crate) fn system() -> Result<Framework> {
        const PATH: &CStr = c"/System/Library/PrivateFrameworks/AppleNeuralEngine.framework/AppleNeuralEngine";
        iosurface::library(PATH)?;
        Framework::with(IoSurfaces::system()?)
    }

    /// The fake.
    #[cfg(not(target_vendor = "apple"))]
    pub(crate) fn fake() -> Result<Framework> {
        ferrane_ane_fake::install();
        Framework::with(IoSurfaces::fake()?)
    }

    fn with(surfaces: IoSurfaces) -> Result<Framework> {
        Ok(Framework {
            descriptor: class(c"_ANEInMemoryModelDescriptor")?,
            model: class(c"_ANEInMemoryModel")?,
            request: class(c"_ANERequest")?,
            surface_object: class(c"_ANEIOSurfaceObject")?,
            foundation: Foundation::new()?,
            surfaces,
        })
    }

    /// A descriptor of text and weight files. The dictionary is never nil: without weights it is empty.
    pub(crate) fn describe(&self, mil: &[u8], weights: &[(String, &[u8])]) -> Result<Object> {
        let foundation = &self.foundation;
        let entry = |(path, data): &(String, &[u8])| {
            let keys = [foundation.string("offset")?, foundation.string("data")?];
            let values = [foundation.number(0)?, foundation.data(data)?];
            Ok((foundation.string(path)?, foundation.dictionary(&keys, &values)?))
        };
        let (keys, values): (Vec<_>, Vec<_>) =
            weights.iter().map(entry).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let (text, weights) = (foundation.data(mil)?, foundation.dictionary(&keys, &values)?);
        let none: *mut AnyObject = ptr::null_mut();
        // SAFETY: NSData, NSDictionary and nil, as the selector wants; it gives an object or nil.
        let made: Option<Retained<AnyObject>> = autoreleasepool(|_| unsafe {
            msg_send![self.descriptor, modelWithMILText: text.raw(), weights: weights.raw(), optionsPlist: none]
        });
        // The class gives no reason for nil; text that is not UTF-8 or no MIL at all is the usual one.
        Object::new(made, ErrorKind::InvalidProgram, "the framework makes no descriptor of this text")
    }

    /// A model of a descriptor.
    pub(crate) fn model(&self, descriptor: &Object) -> Result<Model> {
        // SAFETY: a descriptor, as the selector wants; it gives an object or nil.
        let made: Option<Retained<AnyObject>> =
            autoreleasepool(|_| unsafe { msg_send![self.model, inMemoryModelWithDescriptor: descriptor.raw()] });
        let object = Object::new(made, ErrorKind::System, "the framework makes no model of the descriptor")?;
        Ok(Model { object, no_options: self.foundation.dictionary(&[], &[])? })
    }

    /// The engine's object of a surface.
    pub(crate) fn surface_object(&self, surface: *mut IoSurface) -> Result<Object> {
        // SAFETY: a surface that the caller keeps alive; the selector gives an object or nil.
        let made: Option<Retained<AnyObject>> =
            autoreleasepool(|_| unsafe { msg_send![self.surface_object, objectWithIOSurface: surface] });
        Object::new(made, ErrorKind::Binding, "the framework takes no such surface")
    }

    /// A request: surface objects with their symbols, and a procedure.
    pub(crate) fn request(
        &self,
        inputs: &[(u32, Object)],
        outputs: &[(u32, Object)],
        procedure: u32,
    ) -> Result<Object> {
        let foundation = &self.foundation;
        let list = |ports: &[(u32, Object)]| {
            let objects: Vec<_> = ports.iter().map(|(_, o)| o.clone()).collect();
            let indices =
                ports.iter().map(|(symbol, _)| foundation.number(u64::from(*symbol))).collect::<Result<Vec<_>>>()?;
            Ok::<_, Error>((foundation.array(&objects)?, foundation.array(&indices)?))
        };
        let ((inputs, input_indices), (outputs, output_indices)) = (list(inputs)?, list(outputs)?);
        let procedure = foundation.number(u64::from(procedure))?;
        let none: *mut AnyObject = ptr::null_mut();
        // SAFETY: arrays of objects, arrays of numbers, nil and a number, as the selector wants; it gives an object or nil.
        let made: Option<Retained<AnyObject>> = autoreleasepool(|_| unsafe {
            msg_send![
                self.request,
                requestWithInputs: inputs.raw(),
                inputIndices: input_indices.raw(),
                outputs: outputs.raw(),
                outputIndices: output_indices.raw(),
                weightsBuffer: none,
                perfStats: none,
                procedureIndex: procedure.raw()
            ]
        });
        Object::new(made, ErrorKind::Binding, "the framework makes no request of these surfaces")
    }
}

/// A model: compiled, loaded and evaluated by messages.
pub(crate) struct Model {
    object: Object,
    /// The empty dictionary that every call wants.
    no_options: Object,
}

impl Model {
    /// The framework's own hash of text and weights; the name of the staging directory.
    pub(crate) fn identifier(&self, foundation: &Foundation) -> Result<String> {
        // SAFETY: no argument; the selector gives a string or nil.
        let text: Option<Retained<AnyObject>> =
            autoreleasepool(|_| unsafe { msg_send![self.object.raw(), hexStringIdentifier] });
        let text = Object::new(text, ErrorKind::System, "the model has no identifier")?;
        foundation.text(&text)
    }

    /// Compiles what is staged.
    pub(crate) fn compile(&self, foundation: &Foundation) -> Result<()> {
        let options = self.no_options.raw();
        foundation.answer(|error| {
            // SAFETY: a u32, a dictionary and a place for an error.
            unsafe { msg_send![self.object.raw(), compileWithQoS: QOS, options: options, error: error] }
        })
    }

    /// Loads what was compiled.
    pub(crate) fn load(&self, foundation: &Foundation) -> Result<()> {
        let options = self.no_options.raw();
        foundation.answer(|error| {
            // SAFETY: as in `compile`.
            unsafe { msg_send![self.object.raw(), loadWithQoS: QOS, options: options, error: error] }
        })
    }

    /// Runs a request and waits.
    pub(crate) fn evaluate(&self, foundation: &Foundation, request: &Object) -> Result<()> {
        let options = self.no_options.raw();
        foundation.answer(|error| {
            // SAFETY: a u32, a dictionary, a request and a place for an error.
            unsafe {
                msg_send![
                    self.object.raw(),
                    evaluateWithQoS: QOS,
                    options: options,
                    request: request.raw(),
                    error: error
                ]
            }
        })
    }

    /// Takes it off the engine.
    pub(crate) fn unload(&self, foundation: &Foundation) -> Result<()> {
        foundation.answer(|error| {
            // SAFETY: a u32 and a place for an error.
            unsafe { msg_send![self.object.raw(), unloadWithQoS: QOS, error: error] }
        })
    }

    /// What the loaded model says of itself (apple-runtime §11), if it says anything.
    pub(crate) fn attributes(&self) -> Option<Object> {
        // SAFETY: no argument; the selector gives a dictionary or nil.
        let made: Option<Retained<AnyObject>> =
            autoreleasepool(|_| unsafe { msg_send![self.object.raw(), modelAttributes] });
        made.map(Object::from)
    }
}

/// The type of a call that answers with BOOL and an `NSError **`.
type Answer = Bool;
