//! The private classes: descriptor, model, surface object, request. Selectors and types as in apple-runtime §2.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ferrane_mil::text::{Missing, Options};
use ferrane_mil::{Function, Program, Type, ValueId, Weights};
use objc2::encode::{Encoding, RefEncode};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{AllocAnyThread, ClassType, DefinedClass, define_class, msg_send};

use crate::foundation::{
    FakeDictionary, FakeString, Object, array, bytes, dictionary, elements, number, number_object, numbers, report,
    string,
};
use crate::session::{Call, Failure, count};
use crate::surface;

const ENGINE: &str = "com.apple.appleneuralengine";
const COMPILER: &str = "com.apple.appleneuralengine.compiler";
const PROCESS: &str =
    "processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:: ANEProgramProcessRequestDirect()";

/// `__IOSurface`, for the type encoding.
#[repr(C)]
struct IoSurface {
    _opaque: [u8; 0],
}

// SAFETY: the encoding of a pointer to the opaque struct, as Apple's headers have it.
unsafe impl RefEncode for IoSurface {
    const ENCODING_REF: Encoding = Encoding::Pointer(&Encoding::Struct("__IOSurface", &[]));
}

/// Text and weight files as they were given.
struct Description {
    mil: Vec<u8>,
    weights: BTreeMap<String, Vec<u8>>,
}

impl Description {
    fn hex(&self) -> String {
        let mut hash = DefaultHasher::new();
        (&self.mil, &self.weights).hash(&mut hash);
        format!("{:016X}", hash.finish())
    }
}

/// One function as the compiled model has it: symbols of inputs and outputs, bytes of each.
struct Entry {
    name: String,
    inputs: Vec<(u64, usize)>,
    outputs: Vec<(u64, usize)>,
}

struct Compiled {
    input_symbols: Vec<String>,
    output_symbols: Vec<String>,
    entries: Vec<Entry>,
}

#[derive(Default)]
struct Life {
    compiled: Option<Compiled>,
    loaded: bool,
}

struct Model {
    descriptor: Retained<FakeDescriptor>,
    life: Mutex<Life>,
}

fn failure(domain: &str, code: isize, text: impl Into<String>) -> Failure {
    Failure { domain: domain.into(), code, text: text.into() }
}

fn process_failure(status: u32) -> Failure {
    failure(ENGINE, 8, format!("{PROCESS} Failed with status={status:#x} : statusType=0x9: Program Inference error"))
}

/// Answers a BOOL method with an `NSError **`.
fn answer(result: Result<(), Failure>, error: *mut *mut AnyObject) -> Bool {
    match result {
        Ok(()) => Bool::YES,
        Err(failure) => {
            report(error, failure);
            Bool::NO
        }
    }
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEInMemoryModelDescriptor"]
    #[ivars = Description]
    struct FakeDescriptor;

    impl FakeDescriptor {
        #[unsafe(method_id(modelWithMILText:weights:optionsPlist:))]
        fn model_with(
            text: Option<&AnyObject>,
            weights: Option<&AnyObject>,
            _options: Option<&AnyObject>,
        ) -> Option<Retained<FakeDescriptor>> {
            descriptor(text, weights)
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEInMemoryModel"]
    #[ivars = Model]
    struct FakeModel;

    impl FakeModel {
        #[unsafe(method_id(inMemoryModelWithDescriptor:))]
        fn with_descriptor(descriptor: Option<&AnyObject>) -> Option<Retained<FakeModel>> {
            model(descriptor)
        }

        #[unsafe(method_id(hexStringIdentifier))]
        fn hex(&self) -> Retained<FakeString> {
            string(&self.ivars().descriptor.ivars().hex())
        }

        #[unsafe(method(compileWithQoS:options:error:))]
        fn compile(&self, _qos: u32, options: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
            answer(count(Call::Compile).and_then(|()| self.do_compile(options)), error)
        }

        #[unsafe(method(loadWithQoS:options:error:))]
        fn load(&self, _qos: u32, options: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
            answer(count(Call::Load).and_then(|()| self.do_load(options)), error)
        }

        #[unsafe(method(evaluateWithQoS:options:request:error:))]
        fn evaluate(
            &self,
            _qos: u32,
            options: Option<&AnyObject>,
            request: Option<&AnyObject>,
            error: *mut *mut AnyObject,
        ) -> Bool {
            answer(count(Call::Evaluate).and_then(|()| self.do_evaluate(options, request)), error)
        }

        #[unsafe(method(unloadWithQoS:error:))]
        fn unload(&self, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            let result = count(Call::Unload).and_then(|()| {
                let loaded = std::mem::take(&mut self.life().loaded);
                if loaded { Ok(()) } else { Err(failure(ENGINE, 6, "the model is not loaded")) }
            });
            answer(result, error)
        }

        #[unsafe(method_id(modelAttributes))]
        fn attributes(&self) -> Option<Object> {
            let life = self.life();
            life.compiled.as_ref().filter(|_| life.loaded).map(Compiled::attributes)
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEIOSurfaceObject"]
    #[ivars = usize]
    struct FakeSurfaceObject;

    impl FakeSurfaceObject {
        #[unsafe(method_id(objectWithIOSurface:))]
        fn with_surface(surface: *mut IoSurface) -> Option<Retained<FakeSurfaceObject>> {
            surface_object(surface)
        }
    }
);

/// Surfaces with their symbols, and the procedure.
struct Bound {
    inputs: Vec<(u64, usize)>,
    outputs: Vec<(u64, usize)>,
    procedure: u64,
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANERequest"]
    #[ivars = Bound]
    struct FakeRequest;

    impl FakeRequest {
        #[unsafe(method_id(requestWithInputs:inputIndices:outputs:outputIndices:weightsBuffer:perfStats:procedureIndex:))]
        fn request_with(
            inputs: Option<&AnyObject>,
            input_indices: Option<&AnyObject>,
            outputs: Option<&AnyObject>,
            output_indices: Option<&AnyObject>,
            _weights_buffer: Option<&AnyObject>,
            _perf_stats: Option<&AnyObject>,
            procedure: Option<&AnyObject>,
        ) -> Option<Retained<FakeRequest>> {
            request((inputs, input_indices), (outputs, output_indices), procedure)
        }
    }
);

fn descriptor(text: Option<&AnyObject>, weights: Option<&AnyObject>) -> Option<Retained<FakeDescriptor>> {
    count(Call::Descriptor).ok()?;
    // A string in place of data, or no dictionary, gives nil.
    let mil = bytes(text)?.to_vec();
    let given = weights?.downcast_ref::<FakeDictionary>()?;
    let mut files = BTreeMap::new();
    for (name, entry) in given.entries() {
        let entry = entry.downcast_ref::<FakeDictionary>()?;
        number(entry.get("offset").as_deref())?;
        files.insert(name, bytes(entry.get("data").as_deref())?.to_vec());
    }
    let this = FakeDescriptor::alloc().set_ivars(Description { mil, weights: files });
    // SAFETY: `init` of NSObject gives the object that was allocated.
    Some(unsafe { msg_send![super(this), init] })
}

fn model(descriptor: Option<&AnyObject>) -> Option<Retained<FakeModel>> {
    let descriptor = descriptor?.downcast_ref::<FakeDescriptor>()?;
    // SAFETY: a valid reference.
    let descriptor = unsafe { Retained::retain(std::ptr::from_ref(descriptor).cast_mut()) }?;
    let this = FakeModel::alloc().set_ivars(Model { descriptor, life: Mutex::default() });
    // SAFETY: `init` of NSObject gives the object that was allocated.
    Some(unsafe { msg_send![super(this), init] })
}

fn surface_object(surface: *mut IoSurface) -> Option<Retained<FakeSurfaceObject>> {
    surface::memory(surface.cast())?;
    let this = FakeSurfaceObject::alloc().set_ivars(surface as usize);
    // SAFETY: `init` of NSObject gives the object that was allocated.
    Some(unsafe { msg_send![super(this), init] })
}

type Listed<'a> = (Option<&'a AnyObject>, Option<&'a AnyObject>);

fn request(inputs: Listed<'_>, outputs: Listed<'_>, procedure: Option<&AnyObject>) -> Option<Retained<FakeRequest>> {
    let bound = Bound {
        inputs: bind(inputs.0, inputs.1)?,
        outputs: bind(outputs.0, outputs.1)?,
        procedure: number(procedure)?,
    };
    let this = FakeRequest::alloc().set_ivars(bound);
    // SAFETY: `init` of NSObject gives the object that was allocated.
    Some(unsafe { msg_send![super(this), init] })
}

fn bind(surfaces: Option<&AnyObject>, indices: Option<&AnyObject>) -> Option<Vec<(u64, usize)>> {
    let (surfaces, indices) = (elements(surfaces)?, elements(indices)?);
    if surfaces.len() != indices.len() {
        return None;
    }
    let surface = |o: &Object| Some(*o.downcast_ref::<FakeSurfaceObject>()?.ivars());
    surfaces.iter().zip(indices).map(|(s, i)| Some((number(Some(i))?, surface(s)?))).collect()
}

impl FakeModel {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.ivars().life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that the caller stages files in.
    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(self.ivars().descriptor.ivars().hex())
    }

    fn do_compile(&self, options: Option<&AnyObject>) -> Result<(), Failure> {
        let failed = |why: String| failure(COMPILER, 1, format!("_ANECompiler : ANECCompile() FAILED {why}"));
        if options.and_then(|o| o.downcast_ref::<FakeDictionary>()).is_none() {
            return Err(failed("err=(NoOptions)".into()));
        }
        let description = self.ivars().descriptor.ivars();
        let folder = self.folder();
        let staged = |path: &Path, expected: &[u8]| {
            let found = std::fs::read(path).map_err(|e| failed(format!("err=({}: {e})", path.display())))?;
            if found == expected { Ok(()) } else { Err(failed(format!("err=({} differs)", path.display()))) }
        };
        staged(&folder.join("model.mil"), &description.mil)?;
        for (name, data) in &description.weights {
            let relative = name.strip_prefix("@model_path/").map(Path::new);
            let plain = relative.filter(|p| p.components().all(|c| matches!(c, Component::Normal(_))));
            let relative = plain.ok_or_else(|| failed(format!("err=(weight path {name})")))?;
            staged(&folder.join(relative), data)?;
        }
        let options = Options { missing: Missing::Keep, ..Options::default() };
        let parsed = ferrane_mil::parse_with(&description.mil, &Weights::new(), options);
        let program = parsed.program.ok_or_else(|| failed("err=(InvalidMILProgram)".into()))?;
        let compiled = Compiled::of(&program).ok_or_else(|| failed("err=(CompilationFailure)".into()))?;
        std::fs::write(folder.join("net.plist"), b"compiled").map_err(|e| failed(format!("err=({e})")))?;
        self.life().compiled = Some(compiled);
        Ok(())
    }

    fn do_load(&self, options: Option<&AnyObject>) -> Result<(), Failure> {
        let failed = || failure(ENGINE, 6, "program load failure status 0x20004");
        options.and_then(|o| o.downcast_ref::<FakeDictionary>()).ok_or_else(failed)?;
        // A model made anew loads what an earlier one compiled, if the folder still has it.
        if !self.folder().join("net.plist").exists() {
            return Err(failed());
        }
        if self.life().compiled.is_none() {
            self.do_compile(options)?;
        }
        self.life().loaded = true;
        Ok(())
    }

    fn do_evaluate(&self, options: Option<&AnyObject>, request: Option<&AnyObject>) -> Result<(), Failure> {
        let life = self.life();
        let compiled = life.compiled.as_ref().filter(|_| life.loaded).ok_or_else(|| process_failure(0x16))?;
        options.and_then(|o| o.downcast_ref::<FakeDictionary>()).ok_or_else(|| process_failure(0x16))?;
        let request = request.and_then(|r| r.downcast_ref::<FakeRequest>()).ok_or_else(|| process_failure(0x16))?;
        let request = request.ivars();
        let entry = compiled.entries.get(request.procedure as usize).ok_or_else(|| process_failure(0x2))?;
        let inputs = placed(&entry.inputs, &request.inputs)?;
        let outputs = placed(&entry.outputs, &request.outputs)?;
        for (i, &(target, length)) in outputs.iter().enumerate() {
            let Some(&(source, available)) = inputs.get(i % inputs.len().max(1)) else { continue };
            // SAFETY: both surfaces are at least as long as their ports, and distinct surfaces do not overlap; the same surface
            // at both ends is what `copy` allows. The caller keeps them alive for the call.
            unsafe { std::ptr::copy(source, target, length.min(available)) };
        }
        Ok(())
    }
}

/// The memory of each port, in the order of symbols.
fn placed(ports: &[(u64, usize)], bound: &[(u64, usize)]) -> Result<Vec<(*mut u8, usize)>, Failure> {
    if ports.len() != bound.len() {
        return Err(process_failure(0x1d));
    }
    let place = |&(symbol, length): &(u64, usize)| {
        let surface = bound.iter().find(|(s, _)| *s == symbol).ok_or_else(|| process_failure(0x2))?.1;
        let (base, size) = surface::memory(surface as *mut c_void).ok_or_else(|| process_failure(0x1d))?;
        if size < length { Err(process_failure(0x1d)) } else { Ok((base, length)) }
    };
    ports.iter().map(place).collect()
}

impl Compiled {
    /// Symbols in the order of names, whatever the program's order.
    fn of(program: &Program) -> Option<Compiled> {
        let ports = |f: &Function, values: &[ValueId]| {
            let port = |v: &ValueId| Some((f.value(*v).name.clone(), size(&f.value(*v).ty)?));
            values.iter().map(port).collect::<Option<BTreeMap<_, _>>>()
        };
        let (mut input_symbols, mut output_symbols, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        for function in &program.functions {
            let number = |symbols: &mut Vec<String>, ports: BTreeMap<String, usize>| {
                let first = symbols.len() as u64;
                let numbered = ports.values().enumerate().map(|(i, bytes)| (first + i as u64, *bytes)).collect();
                symbols.extend(ports.into_keys());
                numbered
            };
            let inputs = number(&mut input_symbols, ports(function, &function.inputs)?);
            let outputs = number(&mut output_symbols, ports(function, &function.body().outputs)?);
            entries.push(Entry { name: function.name.clone(), inputs, outputs });
        }
        Some(Compiled { input_symbols, output_symbols, entries })
    }

    fn attributes(&self) -> Object {
        let symbols = |ports: &[(u64, usize)]| numbers(ports.iter().map(|(s, _)| *s));
        let procedure = |(id, entry): (usize, &Entry)| {
            dictionary(vec![
                ("ANEFModelInputSymbolIndexArray", symbols(&entry.inputs)),
                ("ANEFModelOutputSymbolIndexArray", symbols(&entry.outputs)),
                ("ANEFModelProcedureID", number_object(id as u64)),
            ])
        };
        let ids = self.entries.iter().enumerate().map(|(i, e)| (e.name.as_str(), number_object(i as u64))).collect();
        let description = dictionary(vec![
            ("ANEFModelProcedures", array(self.entries.iter().enumerate().map(procedure))),
            ("kANEFModelInputSymbolsArrayKey", array(self.input_symbols.iter().map(|n| string(n)))),
            (
                "kANEFModelOutputSymbolsArrayKey",
                array(self.output_symbols.iter().map(|n| string(&format!("{n}@output")))),
            ),
            ("kANEFModelProcedureNameToIDMapKey", dictionary(ids)),
        ]);
        dictionary(vec![("ANEFModelDescription", description)])
    }
}

fn size(ty: &Type) -> Option<usize> {
    ty.bytes()
}

pub(crate) fn register() {
    let _ = (FakeDescriptor::class(), FakeModel::class(), FakeSurfaceObject::class(), FakeRequest::class());
}
