//! Every bound class and method, over the fake's own declarations.

use std::collections::HashSet;

use ferrane_ane::bind::foundation::{List, Map, Url, data, list, map, number, text};
use ferrane_ane::bind::{
    Buffer, ChainingRequest, Client, Descriptor, DeviceInfo, Ended, Handler, HandlerBlock, Held, InMemoryModel,
    InputBuffersReady, IoSurface, Model, Object, OutputSetEnqueue, OutputSets, PerformanceStats, Request, SharedEvent,
    SharedEvents, SignalEvent, SurfaceObject, SurfacesMapper, WaitEvent, Weight, Wrap as _, table,
};
use ferrane_device::{Error, ErrorKind, Foreign, Result, Surface};

use crate::path::{compile, failure, open, text as program};

#[test]
fn every_method_is_there_with_the_types_it_is_sent_with() {
    let (_fake, _device) = open();
    let mut names = HashSet::new();
    for method in table() {
        method.check().unwrap_or_else(|e| panic!("{e}"));
        assert!(names.insert(method.name()), "{} twice", method.name());
    }
    assert!(names.len() > 80, "{}", names.len());
}

fn raised<T>(result: Result<T>, part: &str) {
    let error: Error = failure(result);
    assert_eq!(error.kind(), ErrorKind::System);
    assert!(error.message().contains("raised NSInvalidArgumentException") && error.message().contains(part), "{error}");
}

pub fn object(surface: &Surface) -> (SurfaceObject, &IoSurface) {
    let Foreign::IoSurface(address) = surface.memory().foreign() else { panic!("not an IOSurface") };
    // SAFETY: `address` is the IOSurface of a live surface, which outlives this borrow.
    let raw = unsafe { &*(address as *const IoSurface) };
    (SurfaceObject::with(raw).unwrap().unwrap(), raw)
}

fn empty() -> (Map, List) {
    (map([]).unwrap(), list::<Object>([]).unwrap())
}

#[test]
fn a_model_goes_through_its_states() {
    let (_fake, device) = open();
    let (none, _) = empty();
    let mil = data(program().as_bytes()).unwrap();
    let descriptor = Descriptor::with_text(&mil, &none, None).unwrap().unwrap();
    let model = InMemoryModel::with(&descriptor).unwrap().unwrap();
    assert_eq!((model.state().unwrap(), model.program_handle().unwrap(), model.is_compiled().unwrap()), (1, 0, false));
    assert!(model.program().unwrap().is_none() && model.attributes().unwrap().is_none());
    // Nothing is staged, so nothing compiles; nothing is compiled, so nothing loads.
    let refused = failure(model.compile(21, &none));
    assert_eq!((refused.kind(), refused.raw_code()), (ErrorKind::Unsupported, Some(1)));
    assert_eq!(failure(model.load(21, &none)).status(), Some(0x20004));
    assert_eq!(model.state().unwrap(), 5);
    assert_eq!(failure(model.unload(21)).raw_code(), Some(6));

    // The device stages the same text under the same identifier as long as the artifact lives.
    let artifact = device
        .compile(
            ferrane_device::ProgramSource::Text { mil: program().as_bytes(), weights: &ferrane_mil::Weights::new() },
            &ferrane_device::CompileOptions::default(),
        )
        .unwrap();
    assert_eq!(artifact.key(), model.identifier().unwrap().unwrap().read().unwrap());
    model.compile(21, &none).unwrap();
    assert_eq!((model.state().unwrap(), model.is_compiled().unwrap(), model.is_mil().unwrap()), (2, true, true));
    model.load(21, &none).unwrap();
    assert_eq!((model.state().unwrap(), model.model().unwrap().unwrap().state().unwrap()), (3, 3));
    assert!(model.program().unwrap().is_some() && model.program_handle().unwrap() != 0);
    assert!(model.model().unwrap().unwrap().attributes().unwrap().is_some());
    assert_eq!((model.queue_depth().unwrap(), model.intermediate_buffer().unwrap()), (127, 0));
    assert_eq!(model.perf_stats_mask().unwrap(), 0);
    assert_ne!(model.string_id().unwrap(), 0);
    model.unload(21).unwrap();
    assert_eq!(model.state().unwrap(), 1);
    model.purge().unwrap();
    assert_eq!(failure(model.load(21, &none)).status(), Some(0x20004), "purged");

    // The other constructors give the same objects.
    let again = Descriptor::new(&mil, &none, None, true).unwrap().unwrap();
    let again = InMemoryModel::new(&again).unwrap().unwrap();
    assert_eq!(again.identifier().unwrap().unwrap().read().unwrap(), artifact.key());
    // Text instead of data gives nil.
    let wrong = text("program").unwrap().object().clone();
    assert_eq!(failure(wrong.cast::<ferrane_ane::bind::foundation::Data>()).kind(), ErrorKind::System);
}

#[test]
fn clients_take_the_model_inside() {
    let (_fake, device) = open();
    let (none, _) = empty();
    let executable = compile(&device, &program()).unwrap().load().unwrap();
    drop(executable);
    let client = Client::shared().unwrap().unwrap();
    let direct = Client::restricted(true).unwrap().unwrap();
    assert!(!client.begin_real_time().unwrap() && !client.end_real_time().unwrap());
    assert!(!client.echo(&text("x").unwrap()).unwrap());

    // A model from a directory has no Espresso network in it.
    let url = Url::file(&text("/tmp/x").unwrap()).unwrap().unwrap();
    let model = Model::at(&url, &text("key").unwrap()).unwrap().unwrap();
    assert_eq!(model.state().unwrap(), 1);
    let espresso = |result: Result<()>| {
        let error = failure(result);
        assert_eq!((error.raw_code(), error.kind()), (Some(-1), ErrorKind::Load), "{error}");
    };
    espresso(client.compile(&model, &none, 21));
    espresso(client.load(&model, &none, 21));
    espresso(client.unload(&model, &none, 21));
    espresso(direct.load_direct(&model, &none, 21));
    espresso(direct.unload_direct(&model, &none, 21));
    espresso(client.load_real_time(&model, &none, 21));
    espresso(client.unload_real_time(&model, &none, 21));
    assert!(!client.is_compiled(&model).unwrap() && !client.is_compiled_hash(&text("x").unwrap()).unwrap());
    client.purge(&model).unwrap();
    client.purge_hash(&text("x").unwrap()).unwrap();

    // An in-memory model instead of it lacks a method that clients call.
    let mil = data(program().as_bytes()).unwrap();
    let descriptor = Descriptor::with_text(&mil, &none, None).unwrap().unwrap();
    let model = InMemoryModel::with(&descriptor).unwrap().unwrap();
    let wrong = Model::wrap(model.object().clone());
    raised(client.is_compiled(&wrong), "getUUID");
    let (_, nothing) = empty();
    let request = Request::with(&nothing, &nothing, &nothing, &nothing, None, None, &number(0).unwrap());
    let request = request.unwrap().unwrap();
    raised(client.evaluate(&wrong, &none, &request, 21), "getUUID");
    let inner = model.model().unwrap().unwrap();
    assert_eq!(failure(client.evaluate(&inner, &none, &request, 21)).status(), Some(0x16), "not loaded");
}

struct Silence;

impl Handler for Silence {
    fn ended(&self, _: Ended) {}
}

#[test]
fn chaining_has_its_rules() {
    let (_fake, device) = open();
    let (none, nothing) = empty();
    let executable = compile(&device, &program()).unwrap().load().unwrap();
    let surface = device.surface(&executable.port("x").unwrap().layout).unwrap();
    let (object, raw) = object(&surface);
    let buffer = Buffer::with(&object, &number(0).unwrap(), 0).unwrap().unwrap();
    assert!(Buffer::with(&object, &number(0).unwrap(), 7).unwrap().is_none());
    let buffers = list([&buffer]).unwrap();
    let sets = list([&OutputSets::with(raw, &buffers).unwrap().unwrap()]).unwrap();
    let chain = |loop_input: Option<&Object>, procedure: Option<&Object>| {
        ChainingRequest::with(&buffers, &sets, loop_input, None, procedure, None, None, None, None)
    };
    let whole = chain(None, None).unwrap().unwrap();
    assert!(whole.validate().unwrap());
    let bare = ChainingRequest::with(&nothing, &nothing, None, None, None, None, None, None, None).unwrap().unwrap();
    assert!(!bare.validate().unwrap());
    raised(chain(Some(number(0).unwrap().object()), None), "count");
    raised(chain(None, Some(nothing.object())), "unsignedIntegerValue");

    let client = Client::shared().unwrap().unwrap();
    let mil = data(program().as_bytes()).unwrap();
    let model = InMemoryModel::with(&Descriptor::with_text(&mil, &none, None).unwrap().unwrap()).unwrap().unwrap();
    let inner = model.model().unwrap().unwrap();
    let error = failure(client.prepare_chaining(&inner, &none, &whole, 21));
    assert_eq!((error.raw_code(), error.kind()), (Some(15), ErrorKind::Unavailable));
    let ready = InputBuffersReady::with(0, &nothing, &nothing, 0).unwrap().unwrap();
    let set = OutputSetEnqueue::with(0, 0, 1, false, true).unwrap().unwrap();
    for silent in [client.buffers_ready(&inner, &ready, &none, 21), client.enqueue_sets(&inner, &set, &none, 21)] {
        assert!(failure(silent).message().contains("failed without a reason"));
    }

    let event = SharedEvent::new().unwrap().unwrap();
    event.set(4).unwrap();
    assert_eq!((event.value().unwrap(), event.wait(4, 1).unwrap(), event.wait(5, 1).unwrap()), (4, true, false));
    assert!(WaitEvent::with(1, buffer.object()).unwrap().is_none(), "no event");
    let event = event.object();
    let signals = list([&SignalEvent::with(1, 0, 2, event).unwrap().unwrap()]).unwrap();
    assert!(SignalEvent::with(1, 0, 3, event).unwrap().is_none());
    let waits = list([&WaitEvent::with(1, event).unwrap().unwrap()]).unwrap();
    let events = SharedEvents::with(&signals, &waits).unwrap().unwrap();
    // A request with events but no handler ends the process; here it is an exception.
    let index = list([&number(0).unwrap()]).unwrap();
    let objects = list([&object]).unwrap();
    let zero = number(0).unwrap();
    let request =
        Request::with_events(&objects, &index, &objects, &index, None, None, &zero, &events).unwrap().unwrap();
    let mil = program();
    let source = ferrane_device::ProgramSource::Text { mil: mil.as_bytes(), weights: &ferrane_mil::Weights::new() };
    let staged = device.compile(source, &ferrane_device::CompileOptions::default()).unwrap();
    model.compile(21, &none).unwrap();
    model.load(21, &none).unwrap();
    let error = failure(model.evaluate(21, &none, &request));
    assert!(error.message().contains("completion handler"), "{error}");
    request.on_end(&HandlerBlock::new(&Held::new(Silence))).unwrap();
    drop(staged);
}

#[test]
fn the_machine_and_its_counters() {
    let (_fake, _device) = open();
    assert_eq!(DeviceInfo::sub_type().unwrap().unwrap().read().unwrap(), "h16");
    assert!(SurfacesMapper::with(7).unwrap().is_some() && SurfacesMapper::with(0).unwrap().is_none());
    let url = Url::file(&text("/tmp/x").unwrap()).unwrap().unwrap();
    assert!(Weight::with(&text("w").unwrap(), &url).unwrap().is_some());
    let stats = PerformanceStats::with_time(117_000).unwrap().unwrap();
    assert_eq!(stats.time().unwrap(), 117_000);
    assert!(stats.counters().unwrap().is_none() && stats.raw().unwrap().is_none());
    // An index past the end of a list raises an exception.
    let error = failure(empty().1.at(3));
    assert!(error.message().contains("-[NSArray objectAtIndex:] raised NSRangeException"), "{error}");
    assert!(data(b"").is_ok() && text("a\0b").is_err());
}
