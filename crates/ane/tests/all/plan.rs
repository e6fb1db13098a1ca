//! Core ML's plan of a model over the fake.

use ferrane_ane::compute_plan;
use ferrane_ane_fake::{install, session};
use ferrane_device::ErrorKind;
use ferrane_machine::Profile;
use ferrane_machine::placement::{
    AllowedUnits, PlaceOptions, PlacementDiff, PlacementOrigin, Processor, place, place_planned,
};
use ferrane_mil::package::{WriteOptions, write_package};
use ferrane_mil::{Builder, DataType, MilError, Opset, Program, Transpose, Type};

/// A product and an activation.
fn program() -> Result<Program, MilError> {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[16, 16]))?;
    let y = b.matmul("y", x, x, Transpose::Neither)?;
    let z = b.relu("z", y)?;
    b.finish(&[("z", z)])
}

#[test]
fn the_plan_of_a_package_takes_the_place_of_a_prediction() {
    let _fake = session();
    install();
    let folder = tempfile::tempdir().unwrap();
    let program = program().unwrap();
    let package = folder.path().join("net.mlpackage");
    write_package(&program, &package, &WriteOptions::default()).unwrap();
    let units = AllowedUnits::CpuAndEngine;
    let plan = compute_plan(&package, "main", units).unwrap();
    let found: Vec<_> = plan.iter().map(|op| (op.op.as_str(), op.name.as_str(), op.preferred)).collect();
    assert_eq!(found, [("matmul", "y", Some(Processor::Engine)), ("relu", "z", Some(Processor::Cpu))]);
    assert_eq!(
        (plan[0].supported.as_slice(), plan[0].weight),
        ([Processor::Cpu, Processor::Engine].as_slice(), Some(0.5))
    );
    let (profile, options) = (Profile::find("m4-macos15-coreml").unwrap(), PlaceOptions::default());
    let planned = place_planned(&program, &plan, &profile, &options);
    assert_eq!(planned.origin, PlacementOrigin::Planned);
    let places: Vec<_> = planned.ops.iter().map(|op| (op.runs_on, op.engine_probability)).collect();
    assert_eq!(places, [(Some(Processor::Engine), Some(1.0)), (Some(Processor::Cpu), Some(0.0))]);
    assert_eq!((planned.segments.len(), planned.transfers.len()), (2, 1));
    // It is a record as any other.
    assert_eq!(ferrane_machine::placement::Placement::read(&planned.write()).unwrap(), planned);
    let predicted = place(&program, &profile, &options);
    let diff = PlacementDiff::between(&planned, &predicted);
    assert!(diff.is_regression(), "so small a product is predicted to stay on the CPU: {diff}");
    // An op that the plan lacks has no known place.
    let part = place_planned(&program, &plan[..1], &profile, &options);
    assert_eq!(part.ops[1].runs_on, None);
    // What Core ML refuses is its own reason.
    let missing = compute_plan(&package, "other", units).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Unsupported, "{missing}");
    let broken = compute_plan(&folder.path().join("none.mlmodelc"), "main", units).unwrap_err();
    assert!(broken.to_string().contains("Unable to load"), "{broken}");
}
