//! Compiling to a file, with the fake's compiler.

use std::fs;

use ferrane_ane::aot::{CompileJob, Network};
use ferrane_ane_fake::Call;
use ferrane_device::ErrorKind;

use crate::path::{failure, open, text};

#[test]
fn a_program_is_compiled_to_a_file() {
    let (fake, _device) = open();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("model.mil"), text()).unwrap();
    let job = CompileJob {
        network: Network::Mil(at("model.mil")),
        out: folder.path().into(),
        architecture: Some("h15g".into()),
        debug_mask: Some(7),
    };
    assert_eq!(job.compile().unwrap(), at("model.hwx"));
    // The arguments that the compiler received.
    assert_eq!(
        (fs::read(at("model.hwx")).unwrap(), fs::read(at("model.hwx.debug")).unwrap()),
        (b"h15g".to_vec(), b"7".to_vec())
    );

    // Debugging and architecture are optional; a property list is passed on unchanged.
    fs::remove_file(at("model.hwx.debug")).unwrap();
    fs::write(at("net.plist"), "a network").unwrap();
    let plain =
        CompileJob { network: Network::Plist(at("net.plist")), architecture: None, debug_mask: None, ..job.clone() };
    assert_eq!(fs::read(plain.compile().unwrap()).unwrap(), b"host");
    assert!(!at("model.hwx.debug").exists());

    // The compiler returns a failure; reports success but writes nothing, with an old result
    // present; reports a failure to the block.
    fake.fail(Call::CompileFile, "", 3, "");
    let returned = failure(plain.compile());
    assert_eq!(returned.kind(), ErrorKind::Unsupported);
    assert!(returned.message().contains("returned 3"), "{returned}");
    plain.compile().unwrap();
    fake.fail(Call::CompileFile, "", 0, "");
    let silent = failure(plain.compile());
    assert_eq!(silent.kind(), ErrorKind::System);
    assert!(silent.message().contains("wrote nothing"), "{silent}");
    fs::write(at("model.mil"), "no program").unwrap();
    let told = failure(job.compile());
    assert_eq!(told.kind(), ErrorKind::Unsupported);
    assert!(told.message().contains("status 22"), "{told}");
}
