//! Resources of evaluations: heap, bytes, objects and directories; and many evaluations at once.

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;
use std::ffi::c_void;
use std::thread;

use ferrane_ane::runtime::live;
use ferrane_ane_fake::{Call, is_inside, session, surface::base_address};
use ferrane_device::{Bindings, ErrorKind, Executable, Foreign, Request, Submission, Surface};

use crate::path::{HEAD, bindings, compile, failure, text};

const EVALUATIONS: usize = 10_000;

const WAYS: [(&str, Call); 4] = [
    ("dispatch=standard", Call::Evaluate),
    ("dispatch=realtime", Call::EvaluateRealTime),
    ("dispatch=process-request", Call::ProcessRequest),
    ("dispatch=direct", Call::EvaluateDirect),
];

/// The system allocator, counting this thread's allocations outside of the fake's evaluations.
/// Those of the runtime are counted.
struct Counting;

thread_local!(static TAKEN: Cell<usize> = const { Cell::new(0) });

fn taken() -> usize {
    TAKEN.get()
}

fn count() {
    if !is_inside() {
        TAKEN.set(TAKEN.get() + 1);
    }
}

// SAFETY: every call is forwarded unchanged to the system allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count();
        // SAFETY: `block` comes from the caller of `alloc`, whose contract is the system
        // allocator's.
        unsafe { System.alloc(block) }
    }

    unsafe fn alloc_zeroed(&self, block: Block) -> *mut u8 {
        count();
        // SAFETY: `block` comes from the caller of `alloc_zeroed`, whose contract is the system
        // allocator's.
        unsafe { System.alloc_zeroed(block) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, block: Block, size: usize) -> *mut u8 {
        count();
        // SAFETY: `pointer` was allocated with `block` by the system allocator.
        unsafe { System.realloc(pointer, block, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, block: Block) {
        // SAFETY: `pointer` was allocated with `block` by the system allocator.
        unsafe { System.dealloc(pointer, block) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

#[test]
fn ten_thousand_evaluations_allocate_nothing_and_leave_nothing() {
    let fake = session();
    for (way, call) in WAYS {
        let device = ferrane_ane_fake::open(way).unwrap();
        // The first program of a dispatch registers classes.
        drop(compile(&device, &text()).unwrap().load().unwrap());
        let at_rest = live();
        let artifact = compile(&device, &text()).unwrap();
        let folder = std::env::temp_dir().join(artifact.key());
        let executable = artifact.load().unwrap();
        let (bound, [x, a, y, b]) = bindings(&device, &executable);
        let request = executable.prepare(bound).unwrap();
        // The first evaluation looks up the method and allocates room for its guards.
        request.evaluate().unwrap();
        x.write_f32(&[1.5; 32]).unwrap();
        let (objects, before) = (live(), taken());
        for _ in 0..EVALUATIONS {
            request.evaluate().unwrap();
        }
        assert_eq!(taken() - before, 0, "{way}");
        assert_eq!(live(), objects, "{way}");
        assert_eq!(y.read_f32().unwrap(), [1.5; 32], "{way}");
        assert!(taken() > before, "reading into a new list is counted");

        // Failures and submissions leave no object either.
        for _ in 0..100 {
            fake.fail(call, "com.apple.appleneuralengine", 8, "Failed with status=0x1d : statusType=0x9");
            assert_eq!(failure(request.evaluate()).status(), Some(0x1d), "{way}");
            fake.fail(call, "com.apple.appleneuralengine", 8, "Failed with status=0x1d : statusType=0x9");
            assert_eq!(failure(request.submit().unwrap().wait()).status(), Some(0x1d), "{way}");
            request.submit().unwrap().wait().unwrap();
        }
        assert_eq!(live(), objects, "{way}");
        assert!(folder.exists());
        drop((request, executable, artifact, [x, a, y, b]));
        assert_eq!(live(), at_rest, "{way}");
        assert!(!folder.exists(), "{way}: {}", folder.display());
    }
}

/// The program `y = x`, with surfaces of many pages.
fn wide() -> String {
    const TYPE: &str = "tensor<fp16, [1, 64, 1, 512]>";
    format!(
        "{HEAD}{{\n    func main<ios18>({TYPE} x) {{\n        {TYPE} y = identity(x = x)[name = string(\"y\")];\n    }} -> (y);\n}}\n"
    )
}

/// The whole pages inside a surface's memory.
fn pages(surface: &Surface) -> (*mut c_void, usize) {
    const PAGE: usize = 4096;
    let access = surface.read().unwrap();
    let Foreign::IoSurface(address) = surface.memory().foreign() else { panic!("not an IOSurface") };
    // A caller's guard accesses the surface's own memory.
    // SAFETY: `address` is a surface of the fake.
    assert_eq!(access.bytes().as_ptr(), unsafe { base_address(address as *mut c_void) }.cast_const().cast());
    let begin = (access.bytes().as_ptr() as usize).next_multiple_of(PAGE);
    let end = (access.bytes().as_ptr() as usize + access.bytes().len()) / PAGE * PAGE;
    assert!(end - begin >= 8 * PAGE);
    (begin as *mut c_void, end - begin)
}

fn protect((begin, length): (*mut c_void, usize), access: i32) {
    // SAFETY: whole pages inside one surface; the test restores their protection before other code
    // accesses them.
    assert_eq!(unsafe { libc::mprotect(begin, length, access) }, 0);
}

/// The pages of the surfaces are inaccessible while the evaluations run, and the fake's evaluations
/// do nothing, so a copy of a byte by Ferrane would crash.
#[test]
fn ten_thousand_evaluations_touch_no_byte_of_a_surface() {
    let fake = session();
    for (way, _) in WAYS {
        let device = ferrane_ane_fake::open(way).unwrap();
        let executable = compile(&device, &wide()).unwrap().load().unwrap();
        let [x, y] = ["x", "y"].map(|port| device.surface(&executable.port(port).unwrap().layout).unwrap());
        let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap();
        let memory = [pages(&x), pages(&y)];
        fake.instant(true);
        memory.iter().for_each(|pages| protect(*pages, libc::PROT_NONE));
        for _ in 0..EVALUATIONS {
            request.evaluate().unwrap();
        }
        for _ in 0..EVALUATIONS / 10 {
            request.submit().unwrap().wait().unwrap();
        }
        memory.iter().for_each(|pages| protect(*pages, libc::PROT_READ | libc::PROT_WRITE));
        fake.instant(false);
        x.write_f32(&[2.0; 64 * 512]).unwrap();
        request.evaluate().unwrap();
        assert_eq!(y.read_f32().unwrap(), [2.0; 64 * 512], "{way}");
    }
}

/// A program of its own for each thread.
fn own(thread: usize) -> String {
    const TYPE: &str = "tensor<fp16, [1, 4, 1, 8]>";
    format!(
        "{HEAD}{{\n    func main<ios18>({TYPE} x) {{\n        {TYPE} y = identity(x = x)[name = string(\"y{thread}\")];\n    }} -> \
         (y);\n}}\n"
    )
}

/// A device with its own queue, program, and requests with their own surfaces.
struct Machine {
    number: usize,
    executable: Executable,
    requests: Vec<(Request, Surface, Surface)>,
}

impl Machine {
    fn new(number: usize) -> Machine {
        let device = ferrane_ane_fake::open("").unwrap();
        let executable = compile(&device, &own(number)).unwrap().load().unwrap();
        let request = |_| {
            let [x, y] = ["x", "y"].map(|port| device.surface(&executable.port(port).unwrap().layout).unwrap());
            (executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap(), x, y)
        };
        // One more than the queue accepts.
        let requests = (0..=device.profile().queue_depth.value).map(request).collect();
        Machine { number, executable, requests }
    }

    /// The result of the `i`-th request; fp16 has every integer up to 2048.
    fn values(&self, round: usize, i: usize) -> [f32; 32] {
        [(self.number * 128 + i + round) as f32; 32]
    }

    /// Submits as many as the queue accepts, and one more.
    fn submit(&self, round: usize) -> Vec<Submission> {
        for (i, (_, x, _)) in self.requests.iter().enumerate() {
            x.write_f32(&self.values(round, i)).unwrap();
        }
        let (last, first) = self.requests.split_last().unwrap();
        let submissions = first.iter().map(|(request, ..)| request.submit().unwrap()).collect();
        assert_eq!(failure(last.0.submit()).kind(), ErrorKind::QueueFull);
        assert_eq!(failure(self.executable.unload()).kind(), ErrorKind::Busy);
        submissions
    }

    fn wait(&self, round: usize, submissions: Vec<Submission>) {
        for (i, submission) in submissions.into_iter().enumerate() {
            submission.wait().unwrap();
            assert_eq!(self.requests[i].2.read_f32().unwrap(), self.values(round, i));
        }
    }
}

/// Runs `work` for each item on its own thread.
fn parallel<T: Send, R: Send>(each: impl IntoIterator<Item = T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = each.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Also run under helgrind (scripts/helgrind.sh).
#[test]
fn eight_threads_have_127_requests_each_in_flight() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 3;
    let fake = session();
    let machines = parallel(0..THREADS, Machine::new);
    assert!(machines.iter().all(|m| m.requests.len() == 128));
    for round in 0..ROUNDS {
        // Nothing ends before everything is in flight.
        fake.hold();
        let flights = parallel(&machines, |machine| machine.submit(round));
        fake.release();
        parallel(machines.iter().zip(flights), |(machine, submissions)| machine.wait(round, submissions));
    }
    parallel(machines, |machine| machine.executable.unload().unwrap());
    assert_eq!(fake.count(Call::Evaluate), THREADS * 127 * ROUNDS);
}

/// Reads the output of a request in flight without its surface's guard. helgrind must report it
/// (scripts/helgrind.sh).
#[test]
#[ignore = "a race on purpose"]
fn a_race_on_purpose() {
    let _fake = session();
    let machine = Machine::new(0);
    let (request, _, y) = &machine.requests[0];
    let size = y.layout().allocation;
    let Foreign::IoSurface(address) = y.memory().foreign() else { panic!("not an IOSurface") };
    let submission = request.submit().unwrap();
    // SAFETY: none; this is a data race on purpose: the fake writes these bytes meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(base_address(address as *mut c_void).cast::<u8>(), size) };
    let sum: u32 = bytes.iter().map(|b| u32::from(*b)).sum();
    submission.wait().unwrap();
    assert!(sum < 256 * size as u32);
}
