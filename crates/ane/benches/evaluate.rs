//! Measures the overhead of `Request::evaluate` over the bare message that it sends.
//!
//! `cargo bench -p ferrane-ane --bench evaluate`. Runs over the fake framework, whose evaluations
//! return at once. Each dispatch is timed alternately with the bare message, many times; a line has
//! the medians of both and the median of their differences, per evaluation.
#![allow(clippy::print_stdout, reason = "a bench shows its times")]

#[cfg(target_vendor = "apple")]
fn main() {
    println!("the bench runs over the fake framework, which is not for Macs");
}

#[cfg(not(target_vendor = "apple"))]
fn main() {
    bench::run();
}

#[cfg(not(target_vendor = "apple"))]
mod bench {
    use std::hint::black_box;
    use std::time::Instant;

    use ferrane_ane::bind::foundation::{data, list, map, number};
    use ferrane_ane::bind::{Descriptor, InMemoryModel, IoSurface, Request, SurfaceObject, Wrap as _};
    use ferrane_device::{Bindings, CompileOptions, Foreign, ProgramSource, Surface};
    use ferrane_mil::Weights;
    use objc2::msg_send;
    use objc2::runtime::{AnyObject, Bool};

    const TEXT: &str = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    \
        func main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {\n        tensor<fp16, [1, 4, 1, 8]> y = identity(x = x)[name = \
        string(\"y\")];\n    } -> (y);\n}\n";
    const SAMPLES: usize = 101;
    const EVALUATIONS: u32 = 10_000;

    /// The mean time of a call in nanoseconds.
    fn time(mut call: impl FnMut()) -> f64 {
        let start = Instant::now();
        (0..EVALUATIONS).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(EVALUATIONS)
    }

    fn median(mut times: Vec<f64>) -> f64 {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    fn object(surface: &Surface) -> SurfaceObject {
        let Foreign::IoSurface(address) = surface.memory().foreign() else { panic!("not an IOSurface") };
        // SAFETY: `address` is the IOSurface of a live surface, which outlives this borrow.
        SurfaceObject::with(unsafe { &*(address as *const IoSurface) }).unwrap().unwrap()
    }

    pub(crate) fn run() {
        let fake = ferrane_ane_fake::session();
        println!("{:<26} {:>12} {:>12} {:>12}", "one evaluation", "message", "Ferrane", "difference");
        for way in ["standard", "realtime", "process-request", "direct"] {
            let device = ferrane_ane_fake::open(&format!("dispatch={way}")).unwrap();
            let source = ProgramSource::Text { mil: TEXT.as_bytes(), weights: &Weights::new() };
            let executable = device.compile(source, &CompileOptions::default()).unwrap().load().unwrap();
            let [x, y] = ["x", "y"].map(|port| device.surface(&executable.port(port).unwrap().layout).unwrap());
            let ours = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap();

            // The same program, surfaces and request, made by hand; the staged files are the
            // device's.
            let none = map([]).unwrap();
            let descriptor = Descriptor::with_text(&data(TEXT.as_bytes()).unwrap(), &none, None).unwrap().unwrap();
            let model = InMemoryModel::with(&descriptor).unwrap().unwrap();
            model.load(21, &none).unwrap();
            let symbol = list(&[number(0).unwrap()]).unwrap();
            let [inputs, outputs] = [&x, &y].map(|surface| list(&[object(surface)]).unwrap());
            let request = Request::with(&inputs, &symbol, &outputs, &symbol, None, None, &number(0).unwrap());
            let request = request.unwrap().unwrap();
            model.evaluate(21, &none, &request).unwrap();
            let [receiver, options, argument] = [model.object(), none.object(), request.object()].map(|o| o.as_ptr());
            let message = || {
                let mut error: *mut AnyObject = std::ptr::null_mut();
                // SAFETY: receiver and arguments are live objects, and the method has exactly these
                // types.
                let answer: Bool = unsafe {
                    msg_send![&*receiver, evaluateWithQoS: 21u32, options: &*options, request: &*argument, error: &mut error]
                };
                assert!(black_box(answer).as_bool());
            };
            let evaluate = || {
                black_box(ours.evaluate().unwrap());
            };

            fake.instant(true);
            let pairs: Vec<(f64, f64)> = (0..SAMPLES).map(|_| (time(message), time(evaluate))).collect();
            fake.instant(false);
            let of = |part: fn(&(f64, f64)) -> f64| median(pairs.iter().map(part).collect());
            let (bare, whole, difference) = (of(|p| p.0), of(|p| p.1), of(|p| p.1 - p.0));
            println!("{way:<26} {bare:>9.0} ns {whole:>9.0} ns {difference:>9.0} ns");
        }
    }
}
