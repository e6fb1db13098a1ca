//! Chains, and programs with several procedures.

use std::time::Duration;

use ferrane_ane_fake::{Call, Chaining, session};
use ferrane_device::{Bindings, Device, ErrorKind, Executable, Stats, Surface};
use ferrane_emulator::{Emulator, EmulatorOptions};

use crate::path::{HEAD, compile, failure};

/// Two functions with arithmetic, different shapes and different numbers of ports, whose order by
/// name is not the program's.
fn text() -> String {
    let ty = "tensor<fp16, [1, 4, 1, 8]>";
    format!(
        "{HEAD}{{
    func scale<ios18>({ty} x, {ty} b) {{
        {ty} s = mul(x = x, y = b)[name = string(\"s\")];
        {ty} h = sin(x = s)[name = string(\"h\")];
    }} -> (h);
    func close<ios18>({ty} u) {{
        {ty} e = exp(x = u)[name = string(\"e\")];
        {ty} y = sqrt(x = e)[name = string(\"y\")];
        tensor<fp16, [1, 4, 1, 1]> m = reduce_sum(x = e, axes = tensor<int32, [1]>([3]), keep_dims = bool(true))[name = \
         string(\"m\")];
    }} -> (y, m);
}}
"
    )
}

struct Plan {
    device: Device,
    executable: Executable,
    x: Surface,
    b: Surface,
    h: Surface,
    y: Surface,
    m: Surface,
}

impl Plan {
    fn on(device: Device) -> Plan {
        let executable = compile(&device, &text()).unwrap().load().unwrap();
        let surface = |procedure: &str, port: &str| {
            let procedure = executable.procedure(procedure).unwrap();
            device.surface(&device.fitted(procedure, port).unwrap()).unwrap()
        };
        let (x, b, h) = (surface("scale", "x"), surface("scale", "b"), surface("scale", "h"));
        let (y, m) = (surface("close", "y"), surface("close", "m"));
        let values = |by: f32| (0..32).map(|i| (i as f32 - 13.0) * by).collect::<Vec<_>>();
        x.write_f32(&values(0.37)).unwrap();
        b.write_f32(&values(-0.11)).unwrap();
        Plan { device, executable, x, b, h, y, m }
    }

    fn steps(&self) -> Vec<Bindings> {
        let scale = Bindings::new().procedure("scale").bind("x", &self.x).bind("b", &self.b).bind("h", &self.h);
        vec![scale, Bindings::new().procedure("close").bind("u", &self.h).bind("y", &self.y).bind("m", &self.m)]
    }

    fn clear(&self) {
        for surface in [&self.h, &self.y, &self.m] {
            surface.write().unwrap().bytes_mut().fill(0xff);
        }
    }

    /// Bytes instead of values: bit for bit the same.
    fn outputs(&self) -> [Vec<u8>; 3] {
        [&self.h, &self.y, &self.m].map(|s| {
            let access = s.read().unwrap();
            let rows = (0..).map_while(|i| access.row(i).map(<[u8]>::to_vec));
            rows.flatten().collect()
        })
    }

    fn chain(&self) -> Stats {
        self.clear();
        self.executable.prepare_chain(self.steps()).unwrap().evaluate().unwrap()
    }
}

fn fake(options: &str) -> Plan {
    Plan::on(ferrane_ane_fake::open(options).unwrap())
}

/// The emulator's results, step by step.
fn expected() -> [Vec<u8>; 3] {
    let plan = Plan::on(Device::new(Emulator::new(EmulatorOptions::default())));
    plan.clear();
    for step in plan.steps() {
        plan.executable.prepare(step).unwrap().evaluate().unwrap();
    }
    plan.outputs()
}

#[test]
fn two_procedures_of_a_program_are_the_emulators_to_the_bit() {
    let fake_session = session();
    for described in [true, false] {
        if !described {
            fake_session.without_attributes();
        }
        let plan = fake("");
        let [scale, close] = ["scale", "close"].map(|name| plan.executable.procedure(name).unwrap().clone());
        // Symbols are numbered across procedures: those of the second begin where those of the
        // first end.
        let symbols = |ports: &[ferrane_device::Port]| ports.iter().map(|p| p.symbol).collect::<Vec<_>>();
        assert_eq!((scale.id, symbols(&scale.inputs), symbols(&scale.outputs)), (0, vec![0, 1], vec![0]));
        assert_eq!((close.id, symbols(&close.inputs), symbols(&close.outputs)), (1, vec![2], vec![1, 2]));
        plan.clear();
        for step in plan.steps() {
            plan.executable.prepare(step).unwrap().evaluate().unwrap();
        }
        if described {
            assert_eq!(plan.outputs(), expected());
        }
    }
}

#[test]
fn a_chain_of_the_engine_gives_what_the_steps_give() {
    let fake_session = session();
    fake_session.chaining(Chaining::Works);
    let plan = fake("");
    assert!(plan.chain().chained);
    assert_eq!(plan.outputs(), expected());
    assert!(plan.device.notes().is_empty(), "{:?}", plan.device.notes());
    let calls = [Call::PrepareChaining, Call::EnqueueSets, Call::BuffersReady, Call::Evaluate];
    assert_eq!(calls.map(|c| fake_session.count(c)), [1, 2, 2, 0]);

    // Two chains of one model alternate, and a reload prepares them again.
    let chains = [(); 2].map(|()| plan.executable.prepare_chain(plan.steps()).unwrap());
    for chain in chains.iter().chain(&chains) {
        plan.clear();
        assert!(chain.submit().unwrap().wait().unwrap().chained);
        assert_eq!(plan.outputs(), expected());
    }
    plan.executable.reload().unwrap();
    plan.clear();
    chains[1].evaluate().unwrap();
    assert_eq!(plan.outputs(), expected());
}

#[test]
fn a_chain_that_is_refused_runs_step_by_step_and_says_why() {
    for (chaining, why) in [(Chaining::Refused, "code 15"), (Chaining::Silent, "failed without a reason")] {
        let fake_session = session();
        fake_session.chaining(chaining);
        let plan = fake("");
        assert!(!plan.chain().chained, "{chaining:?}");
        assert_eq!(plan.outputs(), expected(), "{chaining:?}");
        assert_eq!(fake_session.count(Call::Evaluate), 2);
        let notes = plan.device.notes();
        assert!(notes.len() == 1 && notes[0].contains("2 steps") && notes[0].contains(why), "{notes:?}");

        // With `chain=hardware` it is an error with the framework's words.
        let plan = fake("chain=hardware");
        let result = plan.executable.prepare_chain(plan.steps()).and_then(|chain| chain.evaluate());
        let error = failure(result);
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(
            error.kind(),
            if chaining == Chaining::Refused { ErrorKind::Unavailable } else { ErrorKind::System }
        );
        assert_eq!(fake_session.count(Call::Evaluate), 2, "nothing ran");

        // With `chain=off` the front end runs the steps, and the engine's chain is not tried.
        let before = fake_session.count(Call::PrepareChaining);
        let plan = fake("chain=off");
        assert!(!plan.chain().chained);
        assert_eq!(plan.outputs(), expected());
        assert!(plan.device.notes().is_empty());
        assert_eq!(fake_session.count(Call::PrepareChaining), before);
    }
}

#[test]
fn events_between_steps_keep_a_chain_off_the_engine() {
    let fake_session = session();
    fake_session.chaining(Chaining::Works);
    let plan = fake("");
    let events = plan.device.events().unwrap();
    let (go, end) = (events.create().unwrap(), events.create().unwrap());
    let [first, second] = <[Bindings; 2]>::try_from(plan.steps()).ok().unwrap();
    let chain = plan.executable.prepare_chain(vec![first.wait(&go, 1), second.signal(&end, 1)]).unwrap();
    let submission = chain.submit().unwrap();
    assert!(!end.wait(1, Duration::from_millis(20)));
    go.signal(1);
    assert!(!submission.wait().unwrap().chained);
    assert_eq!((end.value(), plan.outputs()), (1, expected()));
    assert!(plan.device.notes()[0].contains("no events between"), "{:?}", plan.device.notes());
}

#[test]
fn an_engine_that_never_ends_a_chain_keeps_its_surfaces() {
    let fake_session = session();
    fake_session.chaining(Chaining::Works);
    fake_session.without_signals();
    let plan = fake("event-timeout=1");
    let chain = plan.executable.prepare_chain(plan.steps()).unwrap();
    let error = failure(chain.evaluate());
    assert!(error.kind() == ErrorKind::Evaluate && error.message().contains("chain=off"), "{error}");
    assert!(plan.y.read().is_err());
    assert_eq!(failure(chain.evaluate()).kind(), ErrorKind::Busy);
}
