//! Every file in the workspace's `filetests/`.

use std::path::Path;

#[cfg(not(target_vendor = "apple"))]
use ferrane_device::ErrorKind;
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_machine::Profile;
use ferrane_suite::filetest::{Filetest, Test, bless, discover};

#[test]
fn filetests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests");
    let (mut failures, mut runs) = (Vec::new(), 0);
    let files = discover(&root).unwrap();
    for path in &files {
        if std::env::var_os("FERRANE_BLESS").is_some() {
            let text = std::fs::read_to_string(path).unwrap();
            let blessed = bless(path, &text).unwrap_or_else(|e| panic!("{}:{e}", path.display()));
            if blessed != text {
                std::fs::write(path, blessed).unwrap();
            }
        }
        let tests = Filetest::open(path);
        let outcome = tests.map_err(|e| vec![e]).and_then(|tests| {
            tests.iter().try_for_each(|test| {
                runs += usize::from(test.tests.contains(&Test::Run));
                let name = test.profile.as_deref().unwrap_or(Profile::DEFAULT);
                let profile = Profile::named(name).map_err(|e| vec![format!("{}: {e}", path.display())])?;
                let devices = [Numerics::Fast, Numerics::Exact].map(|numerics| {
                    let mut options = EmulatorOptions::default();
                    (options.numerics, options.profile) = (numerics, profile.clone());
                    ferrane_device::Device::new(Emulator::new(options))
                });
                test.run(&devices, Some(&devices[1]))
            })
        });
        failures.extend(outcome.err().into_iter().flatten());
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(!files.is_empty() && runs > 0, "{} files, {runs} with runs", files.len());
}

/// Every run on the engine's backend, by either path. It must reject what it does not support:
/// states and unknown extents.
#[cfg(not(target_vendor = "apple"))]
#[test]
fn filetests_over_the_fake_engine() {
    for path in ["path=inmem", "path=e5"] {
        filetests_over(path);
    }
}

#[cfg(not(target_vendor = "apple"))]
fn filetests_over(options: &str) {
    let _fake = ferrane_ane_fake::session();
    let device = [ferrane_ane_fake::open(options).unwrap()];
    let mut options = EmulatorOptions::default();
    options.numerics = Numerics::Exact;
    let oracle = ferrane_device::Device::new(Emulator::new(options));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests");
    let (mut failures, mut passed, mut refused) = (Vec::new(), 0, 0);
    for path in discover(&root).unwrap() {
        for test in Filetest::open(&path).unwrap_or_default() {
            if !test.tests.contains(&Test::Run) {
                continue;
            }
            match test.run(&device, Some(&oracle)) {
                Ok(()) => passed += 1,
                Err(told) if told.iter().all(|t| t.contains(ErrorKind::Unsupported.code())) => refused += 1,
                Err(told) => failures.extend(told),
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(passed > 5 * refused, "{}: {passed} passed, {refused} were refused", device[0].name());
}
