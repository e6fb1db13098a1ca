//! Descriptor, model, and the parts of a loaded model. Selectors and types as in apple-runtime §2,
//! §11, §12.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use ferrane_ane::runtime::throw;
use ferrane_host::sync::lock;
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Bool, NSObject};
use objc2::{ClassType, DefinedClass, Message as _, define_class, msg_send};

use crate::chaining::Prepared;
use crate::client::FakeClient;
use crate::events::{Copied, Mark};
use crate::foundation::{
    FakeDictionary, FakeString, FakeUrl, Object, bytes, dictionary, given, make, number, report, string, text,
};
use crate::program::{Compiled, ENGINE, compile_failure, failure, process_failure};
use crate::request::FakeRequest;
use crate::session::{Call, CallFailure, Chaining, chains, count, describes, enter, raises, spend};

/// States, numbered as by the engine.
const CREATED: u64 = 1;
const COMPILED: u64 = 2;
const LOADED: u64 = 3;
const ERROR: u64 = 5;

/// Text and weight files as the caller passed them.
pub(crate) struct Description {
    mil: Vec<u8>,
    weights: BTreeMap<String, Vec<u8>>,
}

impl Description {
    fn of(mil: Option<&AnyObject>, weights: Option<&AnyObject>) -> Option<Description> {
        count(Call::Descriptor).ok()?;
        // A string instead of data, or a missing dictionary, gives nil.
        let mil = bytes(mil)?.to_vec();
        let given = weights?.downcast_ref::<FakeDictionary>()?;
        let mut files = BTreeMap::new();
        for (name, entry) in given.entries() {
            let entry = entry.downcast_ref::<FakeDictionary>()?;
            number(entry.get("offset").as_deref())?;
            files.insert(name, bytes(entry.get("data").as_deref())?.to_vec());
        }
        Some(Description { mil, weights: files })
    }

    fn hash(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (&self.mil, &self.weights).hash(&mut hash);
        hash.finish()
    }
}

struct Life {
    state: u64,
    compiled: Option<Compiled>,
    /// The mask of requested counters; none is collected.
    counters: u32,
    chain: Option<Prepared>,
}

/// A request that is moved to a thread.
struct Kept(Retained<FakeRequest>);

// SAFETY: a request is immutable except for its handler, which has a lock; the caller keeps its
// surfaces valid.
unsafe impl Send for Kept {}

/// The state that a model shares with the objects inside it.
pub(crate) struct Core {
    description: Arc<Description>,
    life: Mutex<Life>,
}

impl Core {
    fn life(&self) -> MutexGuard<'_, Life> {
        lock(&self.life)
    }

    fn hex(&self) -> String {
        format!("{:016X}", self.description.hash())
    }

    /// The directory in which the caller stages files.
    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(self.hex())
    }

    /// The result of a compile, for the loads of this and of other models.
    fn product(&self) -> Vec<u8> {
        format!("net.plist of {}", self.hex()).into_bytes()
    }

    /// Stages the files, as the caller otherwise does.
    fn save(&self) -> std::io::Result<PathBuf> {
        let folder = self.folder();
        std::fs::create_dir_all(folder.join("weights"))?;
        std::fs::write(folder.join("model.mil"), &self.description.mil)?;
        for (name, data) in &self.description.weights {
            let file = Path::new(name).file_name().unwrap_or_default();
            std::fs::write(folder.join("weights").join(file), data)?;
        }
        Ok(folder)
    }

    fn compile(&self, options: Option<&AnyObject>) -> Result<(), CallFailure> {
        if !is_dictionary(options) {
            return Err(compile_failure("NoOptions"));
        }
        let folder = self.folder();
        let staged = |path: &Path, expected: &[u8]| {
            let found = std::fs::read(path).map_err(|e| compile_failure(&format!("{}: {e}", path.display())))?;
            if found == expected { Ok(()) } else { Err(compile_failure(&format!("{} differs", path.display()))) }
        };
        staged(&folder.join("model.mil"), &self.description.mil)?;
        for (name, data) in &self.description.weights {
            let relative = name.strip_prefix("@model_path/").map(Path::new);
            let plain = relative.filter(|p| p.components().all(|c| matches!(c, Component::Normal(_))));
            let relative = plain.ok_or_else(|| compile_failure(&format!("weight path {name}")))?;
            staged(&folder.join(relative), data)?;
        }
        let compiled = Compiled::of(&self.description.mil, &self.description.weights)?;
        if !spend() {
            return Err(compile_failure(""));
        }
        let written = std::fs::write(folder.join("net.plist"), self.product());
        written.map_err(|e| compile_failure(&e.to_string()))?;
        if !self.description.weights.is_empty() {
            let written = std::fs::write(folder.join("data"), self.hex());
            written.map_err(|e| compile_failure(&e.to_string()))?;
        }
        let mut life = self.life();
        life.compiled = Some(compiled);
        life.state = COMPILED;
        Ok(())
    }

    fn load(&self, options: Option<&AnyObject>) -> Result<(), CallFailure> {
        let mut life = self.life();
        let failed = || failure(ENGINE, 6, "program load failure status 0x20004");
        // A new model loads the result of an earlier one if the folder still has it.
        let found = std::fs::read(self.folder().join("net.plist")).is_ok_and(|found| found == self.product());
        if !is_dictionary(options) || !found || life.state == LOADED {
            life.state = if life.state == LOADED { LOADED } else { ERROR };
            return Err(failed());
        }
        if life.compiled.is_none() {
            life.compiled = Some(Compiled::of(&self.description.mil, &self.description.weights)?);
        }
        life.state = LOADED;
        Ok(())
    }

    fn unload(&self) -> Result<(), CallFailure> {
        let mut life = self.life();
        if life.state != LOADED {
            return Err(failure(ENGINE, 6, "the model is not loaded"));
        }
        life.state = CREATED;
        life.chain = None;
        Ok(())
    }

    /// Runs a request of any dispatch. A request with events is only submitted.
    fn evaluate(self: &Arc<Core>, options: Option<&AnyObject>, request: Option<&AnyObject>) -> Result<(), CallFailure> {
        let found = request.and_then(|r| r.downcast_ref::<FakeRequest>());
        let Some((request, events)) = found.and_then(|r| Some((r, r.ivars().events.as_ref()?))) else {
            return self.evaluate_now(options, request);
        };
        if !self.is_loaded() || !is_dictionary(options) {
            return Err(process_failure(0x16));
        }
        let ended = lock(&request.ivars().ended);
        // The real framework calls nil, which ends the process.
        let Some(ended) = ended.as_ref().and_then(Copied::again) else {
            throw("SIGSEGV", "a request with shared events and without a completion handler");
        };
        let (marks, kept) = (events.marks(), Kept(request.retain()));
        let core = self.clone();
        std::thread::spawn(move || {
            let kept = kept;
            let released = marks.waits.iter().all(Mark::wait);
            let options = dictionary(Vec::new());
            if released && core.evaluate_now(Some(&options), Some(&kept.0)).is_ok() && raises() {
                marks.signals.iter().for_each(|mark| mark.raise(mark.value));
            }
            // Dropped first, because the handler may count live objects.
            drop((kept, core, marks, options));
            ended.call();
        });
        Ok(())
    }

    fn evaluate_now(&self, options: Option<&AnyObject>, request: Option<&AnyObject>) -> Result<(), CallFailure> {
        let life = self.life();
        let compiled = life.compiled.as_ref().filter(|_| life.state == LOADED).ok_or_else(|| process_failure(0x16))?;
        let request = request.and_then(|r| r.downcast_ref::<FakeRequest>());
        let (true, Some(request)) = (is_dictionary(options), request) else { return Err(process_failure(0x16)) };
        let bound = request.ivars();
        compiled.evaluate(bound.procedure, &bound.inputs, &bound.outputs)
    }

    /// Prepares a chain. `own` is true for a client other than the shared one.
    pub(crate) fn prepare_chain(&self, own: bool, request: Option<&AnyObject>) -> Result<(), CallFailure> {
        let refused = || failure(ENGINE, 15, "ANEProgramChainingPrepare() Failed: Program chaining prepare error");
        let mut life = self.life();
        let takes = own && life.state == LOADED && chains() != Chaining::Refused;
        life.chain = Some(Prepared::of(request).filter(|_| takes).ok_or_else(refused)?);
        Ok(())
    }

    /// Returns false silently for a set that is not part of a prepared chain.
    pub(crate) fn enqueue_set(&self, set: Option<&AnyObject>) -> bool {
        chains() == Chaining::Works && self.life().chain.as_mut().is_some_and(|chain| chain.enqueue(set))
    }

    /// Runs the steps that are ready.
    pub(crate) fn buffers_ready(&self, inputs: Option<&AnyObject>) -> bool {
        let Life { state, compiled: Some(compiled), chain: Some(chain), .. } = &mut *self.life() else { return false };
        let Some(run) = chain.ready(inputs).filter(|_| *state == LOADED) else { return false };
        let ran = compiled.evaluate(run.procedure, &run.inputs, &run.outputs).is_ok();
        if ran && raises() {
            run.raise();
        }
        ran
    }

    fn attributes(&self) -> Option<Object> {
        if !describes() {
            return None;
        }
        let life = self.life();
        life.compiled.as_ref().filter(|_| life.state == LOADED).map(Compiled::attributes)
    }

    fn is_loaded(&self) -> bool {
        self.life().state == LOADED
    }

    fn handle(&self) -> u64 {
        if self.is_loaded() { self.description.hash() | 1 } else { 0 }
    }
}

/// Runs a request of any dispatch.
pub(crate) fn evaluate(
    call: Call,
    core: impl FnOnce() -> Result<Arc<Core>, CallFailure>,
    options: Option<&AnyObject>,
    request: Option<&AnyObject>,
    error: *mut *mut AnyObject,
) -> Bool {
    let inside = enter();
    if inside.instant {
        return Bool::YES;
    }
    answer(count(call).and_then(|()| core()?.evaluate(options, request)), error)
}

pub(crate) fn is_dictionary(object: Option<&AnyObject>) -> bool {
    object.is_some_and(|o| o.downcast_ref::<FakeDictionary>().is_some())
}

/// The result of a BOOL method with an `NSError **`.
pub(crate) fn answer(result: Result<(), CallFailure>, error: *mut *mut AnyObject) -> Bool {
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
    #[ivars = Arc<Description>]
    struct FakeDescriptor;

    impl FakeDescriptor {
        #[unsafe(method_id(modelWithMILText:weights:optionsPlist:))]
        fn with_text(
            mil: Option<&AnyObject>,
            weights: Option<&AnyObject>,
            _options: Option<&AnyObject>,
        ) -> Option<Retained<FakeDescriptor>> {
            given(|| {
                let description = Description::of(mil, weights)?;
                Some(make!(FakeDescriptor, Arc::new(description)))
            })
        }

        #[unsafe(method_id(initWithNetworkText:weights:optionsPlist:isMILModel:))]
        fn init_with(
            this: objc2::rc::Allocated<Self>,
            mil: Option<&AnyObject>,
            weights: Option<&AnyObject>,
            _options: Option<&AnyObject>,
            is_mil: Bool,
        ) -> Option<Retained<Self>> {
            given(|| {
                let description = Description::of(mil, weights).filter(|_| is_mil.as_bool())?;
                let this = this.set_ivars(Arc::new(description));
                // SAFETY: `init` of NSObject returns the object that `alloc` made.
                Some(unsafe { msg_send![super(this), init] })
            })
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEInMemoryModel"]
    #[ivars = Arc<Core>]
    struct FakeModel;

    impl FakeModel {
        #[unsafe(method_id(inMemoryModelWithDescriptor:))]
        fn with_descriptor(descriptor: Option<&AnyObject>) -> Option<Retained<FakeModel>> {
            given(|| {
                let core = core_of(descriptor)?;
                Some(make!(FakeModel, core))
            })
        }

        #[unsafe(method_id(initWithDesctiptor:))]
        fn init_with(this: objc2::rc::Allocated<Self>, descriptor: Option<&AnyObject>) -> Option<Retained<Self>> {
            given(|| {
                let this = this.set_ivars(core_of(descriptor)?);
                // SAFETY: `init` of NSObject returns the object that `alloc` made.
                Some(unsafe { msg_send![super(this), init] })
            })
        }

        #[unsafe(method_id(hexStringIdentifier))]
        fn hex(&self) -> Retained<FakeString> {
            string(&self.ivars().hex())
        }

        #[unsafe(method(compileWithQoS:options:error:))]
        fn compile(&self, _qos: u32, options: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
            answer(count(Call::Compile).and_then(|()| self.ivars().compile(options)), error)
        }

        #[unsafe(method(loadWithQoS:options:error:))]
        fn load(&self, _qos: u32, options: Option<&AnyObject>, error: *mut *mut AnyObject) -> Bool {
            answer(count(Call::Load).and_then(|()| self.ivars().load(options)), error)
        }

        #[unsafe(method(evaluateWithQoS:options:request:error:))]
        fn evaluate(
            &self,
            _qos: u32,
            options: Option<&AnyObject>,
            request: Option<&AnyObject>,
            error: *mut *mut AnyObject,
        ) -> Bool {
            evaluate(Call::Evaluate, || Ok(self.ivars().clone()), options, request, error)
        }

        #[unsafe(method(unloadWithQoS:error:))]
        fn unload(&self, _qos: u32, error: *mut *mut AnyObject) -> Bool {
            answer(count(Call::Unload).and_then(|()| self.ivars().unload()), error)
        }

        #[unsafe(method(state))]
        fn state(&self) -> u64 {
            self.ivars().life().state
        }

        #[unsafe(method_id(modelAttributes))]
        fn attributes(&self) -> Option<Object> {
            self.ivars().attributes()
        }

        #[unsafe(method_id(model))]
        fn model(&self) -> Option<Retained<FakeInner>> {
            Some(make!(FakeInner, Some(self.ivars().clone())))
        }

        #[unsafe(method_id(program))]
        fn program(&self) -> Option<Retained<FakeProgram>> {
            self.ivars().is_loaded().then(|| make!(FakeProgram, self.ivars().clone()))
        }

        #[unsafe(method(programHandle))]
        fn program_handle(&self) -> u64 {
            self.ivars().handle()
        }

        #[unsafe(method(intermediateBufferHandle))]
        fn intermediate_buffer(&self) -> u64 {
            0
        }

        #[unsafe(method(queueDepth))]
        fn queue_depth(&self) -> i8 {
            127
        }

        #[unsafe(method(perfStatsMask))]
        fn perf_stats_mask(&self) -> u32 {
            self.ivars().life().counters
        }

        #[unsafe(method(string_id))]
        fn string_id(&self) -> u64 {
            self.ivars().description.hash()
        }

        #[unsafe(method(isMILModel))]
        fn is_mil(&self) -> Bool {
            Bool::YES
        }

        #[unsafe(method(compiledModelExists))]
        fn is_compiled(&self) -> Bool {
            Bool::new(self.ivars().life().compiled.is_some())
        }

        #[unsafe(method(purgeCompiledModel))]
        fn purge(&self) {
            // Files that the caller staged belong to the caller.
            let _ = std::fs::remove_file(self.ivars().folder().join("net.plist"));
        }

        #[unsafe(method(setPerfStatsMask:))]
        fn set_perf_stats_mask(&self, mask: u32) {
            self.ivars().life().counters = mask;
        }

        #[unsafe(method_id(descriptor))]
        fn descriptor(&self) -> Option<Retained<FakeDescriptor>> {
            Some(make!(FakeDescriptor, self.ivars().description.clone()))
        }

        #[unsafe(method_id(modelURL))]
        fn url(&self) -> Option<Retained<FakeUrl>> {
            let folder = self.ivars().folder();
            folder.exists().then(|| make!(FakeUrl, folder.display().to_string()))
        }

        #[unsafe(method_id(compilerOptionsFileName))]
        fn options_file(&self) -> Option<Retained<FakeString>> {
            // There are no options.
            None
        }

        #[unsafe(method_id(sharedConnection))]
        fn connection(&self) -> Option<Retained<FakeClient>> {
            Some(make!(FakeClient, false))
        }

        #[unsafe(method_id(saveModelFiles))]
        fn save_files(&self) -> Option<Retained<FakeString>> {
            self.ivars().save().ok().map(|folder| string(&folder.display().to_string()))
        }

        #[unsafe(method(mapIOSurfacesWithRequest:cacheInference:error:))]
        fn map_surfaces(&self, _request: Option<&AnyObject>, _cached: Bool, _error: *mut *mut AnyObject) -> Bool {
            Bool::NO
        }
    }
);

fn core_of(descriptor: Option<&AnyObject>) -> Option<Arc<Core>> {
    let description = descriptor?.downcast_ref::<FakeDescriptor>()?.ivars().clone();
    Some(Arc::new(Core {
        description,
        life: Mutex::new(Life { state: CREATED, compiled: None, counters: 0, chain: None }),
    }))
}

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEModel"]
    #[ivars = Option<Arc<Core>>]
    pub(crate) struct FakeInner;

    impl FakeInner {
        #[unsafe(method_id(modelAtURL:key:))]
        fn at(url: Option<&AnyObject>, key: Option<&AnyObject>) -> Option<Retained<FakeInner>> {
            given(|| {
                url?;
                text(key)?;
                Some(make!(FakeInner, None))
            })
        }

        #[unsafe(method(state))]
        fn state(&self) -> u64 {
            self.ivars().as_ref().map_or(CREATED, |core| core.life().state)
        }

        #[unsafe(method_id(modelAttributes))]
        fn attributes(&self) -> Option<Object> {
            self.ivars().as_ref().and_then(|core| core.attributes())
        }

        #[unsafe(method_id(program))]
        fn program(&self) -> Option<Retained<FakeProgram>> {
            given(|| {
                let core = self.ivars().as_ref().filter(|core| core.is_loaded())?;
                Some(make!(FakeProgram, core.clone()))
            })
        }

        #[unsafe(method(programHandle))]
        fn program_handle(&self) -> u64 {
            self.ivars().as_ref().map_or(0, |core| core.handle())
        }

        #[unsafe(method(intermediateBufferHandle))]
        fn intermediate_buffer(&self) -> u64 {
            0
        }

        #[unsafe(method(queueDepth))]
        fn queue_depth(&self) -> i8 {
            // 127 for a loaded model, 0 otherwise.
            if self.ivars().as_ref().is_some_and(|core| core.is_loaded()) { 127 } else { 0 }
        }

        #[unsafe(method(perfStatsMask))]
        fn perf_stats_mask(&self) -> u32 {
            self.ivars().as_ref().map_or(0, |core| core.life().counters)
        }

        #[unsafe(method(string_id))]
        fn string_id(&self) -> u64 {
            self.ivars().as_ref().map_or(0, |core| core.description.hash())
        }

        #[unsafe(method_id(getUUID))]
        fn uuid(&self) -> Option<Retained<FakeString>> {
            self.ivars().as_ref().map(|core| string(&core.hex()))
        }
    }
);

define_class!(
    #[unsafe(super(NSObject))]
    #[name = "_ANEProgramForEvaluation"]
    #[ivars = Arc<Core>]
    struct FakeProgram;

    impl FakeProgram {
        #[unsafe(method(processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:))]
        fn process(
            &self,
            request: Option<&AnyObject>,
            _model: Option<&AnyObject>,
            _qos: u32,
            _queue: u64,
            _string_id: u64,
            options: Option<&AnyObject>,
            status: *mut u32,
            error: *mut *mut AnyObject,
        ) -> Bool {
            if !status.is_null() {
                // SAFETY: by the method's contract, `status` is writable.
                unsafe { *status = 0 };
            }
            evaluate(Call::ProcessRequest, || Ok(self.ivars().clone()), options, request, error)
        }

        #[unsafe(method(processInputBuffers:model:options:error:))]
        fn buffers_ready(
            &self,
            inputs: Option<&AnyObject>,
            _model: Option<&AnyObject>,
            _options: Option<&AnyObject>,
            _error: *mut *mut AnyObject,
        ) -> Bool {
            Bool::new(self.ivars().buffers_ready(inputs))
        }

        #[unsafe(method(processOutputSet:model:options:error:))]
        fn enqueue_set(
            &self,
            set: Option<&AnyObject>,
            _model: Option<&AnyObject>,
            _options: Option<&AnyObject>,
            _error: *mut *mut AnyObject,
        ) -> Bool {
            Bool::new(self.ivars().enqueue_set(set))
        }
    }
);

pub(crate) fn register() {
    let _ = (FakeDescriptor::class(), FakeModel::class(), FakeInner::class(), FakeProgram::class());
}
