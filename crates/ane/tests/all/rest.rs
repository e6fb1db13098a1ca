//! Classes and calls that the device does not need: each is called once, and its result checked.

use ferrane_ane::bind::foundation::{List, Map, Url, data, list, map, number, text};
use ferrane_ane::bind::{
    Client, Descriptor, DeviceController, InMemoryModel, InputBuffersReady, InstanceParameters, Model, Object,
    OutputSetEnqueue, PerformanceStats, ProcedureData, QosMapper, Request, StatsSurface, SurfacesMapper, VirtualClient,
    Weight,
};
use ferrane_ane_fake::Call;
use ferrane_device::{CompileOptions, ProgramSource};
use ferrane_mil::Weights;

use crate::bindings::object;
use crate::path::{failure, open, text as program};

fn empty() -> (Map, List) {
    (map([]).unwrap(), list::<Object>([]).unwrap())
}

fn model() -> InMemoryModel {
    let descriptor = Descriptor::with_text(&data(program().as_bytes()).unwrap(), &empty().0, None).unwrap().unwrap();
    InMemoryModel::with(&descriptor).unwrap().unwrap()
}

fn request() -> Request {
    let (_, nothing) = empty();
    Request::with(&nothing, &nothing, &nothing, &nothing, None, None, &number(0).unwrap()).unwrap().unwrap()
}

fn silent(result: ferrane_device::Result<()>) {
    assert!(failure(result).message().contains("failed without a reason"));
}

#[test]
fn a_client_refuses_what_it_never_granted() {
    let (fake, _device) = open();
    let (none, nothing) = empty();
    let client = Client::shared().unwrap().unwrap();
    let inner = model().model().unwrap().unwrap();
    for result in [
        client.prepare_chaining_direct(
            &inner,
            &none,
            &ferrane_ane::bind::ChainingRequest::with(&nothing, &nothing, None, None, None, None, None, None, None)
                .unwrap()
                .unwrap(),
            21,
        ),
        client.session_hint(&inner, &text("ANEHint").unwrap(), &none, None),
    ] {
        assert!(matches!(failure(result).raw_code(), Some(15 | 2)));
    }
    let ready = InputBuffersReady::with(0, &nothing, &nothing, 0).unwrap().unwrap();
    let set = OutputSetEnqueue::with(0, 0, 1, false, true).unwrap().unwrap();
    silent(client.buffers_ready_direct(&inner, &ready, &none, 21));
    silent(client.enqueue_sets_direct(&inner, &set, &none, 21));

    client.report_failure(&inner, 3, 0).unwrap();
    assert_eq!(fake.count(Call::ReportFailure), 1);
    assert!(client.connections().unwrap().is_some() && client.loading_connections().unwrap().is_some());
    assert!(client.connection_for(&inner, &none).unwrap().is_none());
    assert!(client.virtual_client().unwrap().is_none() && VirtualClient::shared().unwrap().is_none());

    // An instance needs procedures with weights and symbols, which no model from MIL text has.
    let url = Url::file(&text("/tmp/w.bin").unwrap()).unwrap().unwrap();
    let weight = Weight::with(&text("w").unwrap(), &url).unwrap().unwrap();
    let procedure = ProcedureData::with(&text("main").unwrap(), &list([&weight]).unwrap()).unwrap().unwrap();
    assert!(ProcedureData::with(&text("main").unwrap(), &list([&url]).unwrap()).unwrap().is_none());
    let parameters = |procedures: &List| InstanceParameters::with(&text("second").unwrap(), procedures).unwrap();
    assert!(parameters(&list([&weight]).unwrap()).is_none());
    let parameters = parameters(&list([&procedure]).unwrap()).unwrap();
    for result in [
        client.load_instance(&inner, &none, &parameters, 21),
        client.load_instance_direct(&inner, &none, &parameters, 21),
    ] {
        assert_eq!(failure(result).status(), Some(0x20004));
    }
}

#[test]
fn a_model_says_what_it_has_inside() {
    let (_fake, device) = open();
    let none = empty().0;
    let artifact = device
        .compile(
            ProgramSource::Text { mil: program().as_bytes(), weights: &Weights::new() },
            &CompileOptions::default(),
        )
        .unwrap();
    let model = model();
    let inner = model.model().unwrap().unwrap();
    assert_eq!((inner.program_handle().unwrap(), inner.queue_depth().unwrap()), (0, 0));
    model.compile(21, &none).unwrap();
    model.load(21, &none).unwrap();
    assert_eq!(inner.program_handle().unwrap(), model.program_handle().unwrap());
    assert_eq!(inner.string_id().unwrap(), model.string_id().unwrap());
    assert_eq!((inner.queue_depth().unwrap(), inner.intermediate_buffer().unwrap()), (127, 0));
    assert!(inner.uuid().unwrap().is_some());
    model.set_perf_stats_mask(0xff).unwrap();
    assert_eq!((model.perf_stats_mask().unwrap(), inner.perf_stats_mask().unwrap()), (0xff, 0xff));
    let again = InMemoryModel::with(&model.descriptor().unwrap().unwrap()).unwrap().unwrap();
    assert_eq!(again.identifier().unwrap().unwrap().read().unwrap(), artifact.key());
    assert!(model.url().unwrap().is_some() && model.options_file().unwrap().is_none());
    assert!(model.connection().unwrap().is_some());
    let saved = model.save_files().unwrap().unwrap();
    let folder = saved.cast::<ferrane_ane::bind::foundation::Text>().unwrap().read().unwrap();
    assert!(folder.ends_with(artifact.key()), "{folder}");
    silent(model.map_surfaces(&request(), true));

    let inside = inner.program().unwrap().unwrap();
    let (_, nothing) = empty();
    let ready = InputBuffersReady::with(0, &nothing, &nothing, 0).unwrap().unwrap();
    let set = OutputSetEnqueue::with(0, 0, 1, false, true).unwrap().unwrap();
    silent(inside.buffers_ready(&ready, &inner, &none));
    silent(inside.enqueue_set(&set, &inner, &none));
    let mapper = SurfacesMapper::with(model.program_handle().unwrap()).unwrap().unwrap();
    silent(mapper.map(&inner, &request(), false));
    model.unload(21).unwrap();

    // A model from a directory has none of these.
    let url = Url::file(&text("/tmp/x").unwrap()).unwrap().unwrap();
    let bare = Model::at(&url, &text("key").unwrap()).unwrap().unwrap();
    assert!(bare.program().unwrap().is_none() && bare.uuid().unwrap().is_none());
    assert_eq!((bare.program_handle().unwrap(), bare.string_id().unwrap(), bare.perf_stats_mask().unwrap()), (0, 0, 0));
    assert_eq!((bare.queue_depth().unwrap(), bare.intermediate_buffer().unwrap()), (0, 0));
}

#[test]
fn queues_driver_and_counters() {
    let (_fake, device) = open();
    assert_eq!(QosMapper::usual().unwrap(), 21);
    let all = [QosMapper::background, QosMapper::utility, QosMapper::user_initiated, QosMapper::user_interactive];
    all.iter().for_each(|qos| assert!(qos().unwrap() < 64));
    let real_time = QosMapper::real_time().unwrap();
    assert_eq!(QosMapper::queue(real_time).unwrap(), QosMapper::real_time_queue().unwrap());
    assert_eq!(QosMapper::priority(real_time).unwrap(), QosMapper::real_time_priority().unwrap());
    assert_eq!(QosMapper::of_priority(QosMapper::real_time_priority().unwrap()).unwrap(), real_time);

    assert!(DeviceController::with(0).unwrap().is_none());
    let controller = DeviceController::with(7).unwrap().unwrap();
    assert_eq!((controller.program_handle().unwrap(), controller.is_privileged().unwrap()), (7, false));
    controller.start().unwrap();
    controller.stop().unwrap();
    assert!(failure(controller.stop()).message().contains("stop without start"));

    let executable = crate::path::compile(&device, &program()).unwrap().load().unwrap();
    let surface = device.surface(&executable.port("x").unwrap().layout).unwrap();
    assert_eq!(StatsSurface::with(object(&surface).1, 2).unwrap().unwrap().kind().unwrap(), 2);
    let bytes = data(b"counters").unwrap();
    let stats = PerformanceStats::reconstructed(Some(&bytes), 9, None).unwrap().unwrap();
    assert_eq!(stats.time().unwrap(), 9);
    assert_eq!(PerformanceStats::driver_mask(0x3).unwrap(), 0x5);
}
