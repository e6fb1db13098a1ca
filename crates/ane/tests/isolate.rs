//! The engine in a child process, over the fake: everything works as without it, and a child that
//! is killed or hangs is only an error. A binary with its own `main`, because the child is this
//! program started again.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::path::PathBuf;
    use std::process::{Command, ExitCode};
    use std::thread;
    use std::time::{Duration, Instant};

    use ferrane_ane::isolate::serve;
    use ferrane_device::{Bindings, CompileOptions, Device, ErrorKind, Executable, ProgramSource, Request, Surface};
    use ferrane_mil::Weights;
    use ferrane_suite::cases::{Promise, Rounding, run};

    /// The variable with the path of a file; while the file exists, evaluations of new children
    /// hang.
    const HANG: &str = "FERRANE_TEST_HANG";

    const TEXT: &str = "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    func \
        main<ios18>(tensor<fp16, [1, 4, 1, 8]> x) {\n        tensor<fp16, [1, 4, 1, 8]> y = relu(x = x)[name = \
        string(\"y\")];\n    } -> (y);\n}\n";

    pub fn main() -> ExitCode {
        ferrane_ane_fake::install();
        let hang = std::env::var_os(HANG).map(PathBuf::from);
        if let Some(hang) = hang {
            if hang.exists() {
                let fake = ferrane_ane_fake::session();
                fake.hold();
                std::mem::forget(fake);
            }
            return serve().expect("only children have the variable");
        }
        // A program that does not serve is not started again.
        let refused = ferrane_ane::open("isolate=on").map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(serve().is_none());
        let hang = std::env::temp_dir().join(format!("ferrane-isolate-{}", std::process::id()));
        // SAFETY: the process has only one thread so far.
        unsafe { std::env::set_var(HANG, &hang) };

        the_suite_runs_in_a_child();
        a_killed_child_is_an_error_and_the_next_one_is_fresh(&hang);
        a_hanging_child_is_ended(&hang);
        assert_eq!(children(), Vec::<u32>::new(), "children are left");
        ExitCode::SUCCESS
    }

    /// The processes whose parent is this one.
    fn children() -> Vec<u32> {
        let parent = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
        };
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| parent(*pid) == Some(std::process::id())).collect()
    }

    struct Loaded {
        executable: Executable,
        request: Request,
        x: Surface,
        y: Surface,
    }

    fn load(device: &Device) -> Loaded {
        let source = ProgramSource::Text { mil: TEXT.as_bytes(), weights: &Weights::new() };
        let executable = device.compile(source, &CompileOptions::labeled("test")).unwrap().load().unwrap();
        let [x, y] = ["x", "y"].map(|port| device.surface(&executable.port(port).unwrap().layout).unwrap());
        let request = executable.prepare(Bindings::new().bind("x", &x).bind("y", &y)).unwrap();
        x.write_f32(&[1.5; 32]).unwrap();
        Loaded { executable, request, x, y }
    }

    fn the_suite_runs_in_a_child() {
        let device = ferrane_ane::open("isolate=on&dispatch=direct").unwrap();
        assert_eq!(device.name(), "ane (fake) (direct) in a process of its own");
        let (count, failures) = run(&device, Rounding::Half, &[Promise::Contract, Promise::Numerics]);
        assert!(count > 10 && failures.is_empty(), "{count}: {failures:?}");
        // Errors are the same as without the child.
        let (odd, none) = (TEXT.replace("relu", "rule"), Weights::new());
        let compile = |device: &Device| {
            let source = ProgramSource::Text { mil: odd.as_bytes(), weights: &none };
            device.compile(source, &CompileOptions::labeled("odd")).map(drop).unwrap_err()
        };
        let (found, expected) = (compile(&device), compile(&ferrane_ane::open("").unwrap()));
        assert_eq!(found.to_string(), expected.to_string());
        // A child that ends normally leaves nothing staged.
        let artifact = device.compile(
            ProgramSource::Text { mil: TEXT.as_bytes(), weights: &Weights::new() },
            &CompileOptions::default(),
        );
        let artifact = artifact.unwrap();
        let folder = std::env::temp_dir().join(artifact.key());
        assert!(folder.exists());
        drop((artifact, device));
        assert!(!folder.exists() && children().is_empty());
    }

    fn a_killed_child_is_an_error_and_the_next_one_is_fresh(hang: &PathBuf) {
        fs::write(hang, b"").unwrap();
        let device = ferrane_ane::open("isolate=on").unwrap();
        let Loaded { executable, request, x, y } = load(&device);
        fs::remove_file(hang).unwrap();
        let [child] = children()[..] else { panic!("{:?}", children()) };
        let submission = request.submit().unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(!submission.is_done(), "it hangs in the child");
        assert!(Command::new("kill").args(["-KILL", &child.to_string()]).status().unwrap().success());
        let error = submission.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Crashed, "{error}");
        assert!(error.message().contains("before it had answered (signal: 9 (SIGKILL))"), "{error}");
        assert!(error.remedy().contains("new process"));
        // Programs in it are lost until they are loaded again.
        assert_eq!(request.evaluate().unwrap_err().kind(), ErrorKind::Crashed);
        let other = load(&device);
        other.request.evaluate().unwrap();
        assert_eq!(other.y.read_f32().unwrap(), [1.5; 32]);
        assert_eq!(request.evaluate().unwrap_err().kind(), ErrorKind::Crashed);
        executable.reload().unwrap();
        x.write_f32(&[2.5; 32]).unwrap();
        request.evaluate().unwrap();
        assert_eq!(y.read_f32().unwrap(), [2.5; 32]);
        assert_eq!(children().len(), 1, "both are in the same child");
    }

    fn a_hanging_child_is_ended(hang: &PathBuf) {
        fs::write(hang, b"").unwrap();
        // Long enough for a child to start on a busy machine.
        let device = ferrane_ane::open("isolate=10").unwrap();
        let Loaded { request, y, .. } = load(&device);
        fs::remove_file(hang).unwrap();
        let begun = Instant::now();
        let error = request.evaluate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Crashed, "{error}");
        assert!(error.message().contains("gave no answer for 10 s"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        assert!(children().is_empty(), "it is ended");
        // Its surfaces are released, and a new program goes to a new child.
        y.write_f32(&[0.0; 32]).unwrap();
        load(&device).request.evaluate().unwrap();
    }
}
