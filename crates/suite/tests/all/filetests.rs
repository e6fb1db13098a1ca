//! Every file under `filetests/` of the workspace.

use std::path::Path;

use ferrane_emulator::{Emulator, Numerics, Options};
use ferrane_suite::filetest::{Filetest, Test, bless, discover};
use ferrane_target::Profile;

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
                    let mut options = Options::default();
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
