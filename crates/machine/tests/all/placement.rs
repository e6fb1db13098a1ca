//! The model of placement against the published placements, computed from the data.

use std::fs;
use std::path::Path;

use ferrane_machine::Profile;
use ferrane_machine::placement::{
    AllowedUnits, FirstLoad, Framework, PlaceOptions, Placement, PlacementDiff, PlacementEvaluation, PreferenceModel,
    Processor, PublishedPlacements, core_ml_profile, place, published_loads,
};
use ferrane_mil::{Builder, Constant, DataType, Opset, Program, Transpose, Type};

fn evaluation() -> PlacementEvaluation {
    let cases = PublishedPlacements::built_in().unwrap().prepare().unwrap();
    PlacementEvaluation::of(&cases, PreferenceModel::core_ml().unwrap())
}

#[test]
fn held_out_placements_are_met() {
    let evaluation = evaluation();
    let (held_out, alone) = (evaluation.held_out(), evaluation.held_out_eligible());
    assert!(held_out.cases >= 60 && evaluation.after_fit().cases >= 20, "{held_out:?}");
    for errors in [held_out, evaluation.after_fit()] {
        assert!(errors.right >= 0.93, "{errors:?}");
        assert!(errors.models >= 0.90, "{errors:?}");
        assert!(errors.likely_right >= 0.80, "{errors:?}");
    }
    // The preference has to add something to eligibility.
    assert!(held_out.models > alone.models && held_out.brier < alone.brier, "{held_out:?} {alone:?}");
}

#[test]
fn the_page_has_the_numbers_of_the_data() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/placement.md");
    let Ok(page) = fs::read_to_string(page) else {
        eprintln!("docs/placement.md is not here; nothing compared");
        return;
    };
    let evaluation = evaluation();
    assert!(page.contains(&evaluation.summary()), "run the example fit_placement with --write");
    assert!(page.contains(&evaluation.cases()), "run the example fit_placement with --write");
}

#[test]
fn no_source_is_on_both_sides_and_every_source_is_used() {
    let all = PublishedPlacements::built_in().unwrap();
    for source in &all.sources {
        assert!(all.cases.iter().any(|c| c.source == source.name), "{} has no case", source.name);
        assert_eq!(all.sources.iter().filter(|s| s.name == source.name).count(), 1, "{}", source.name);
    }
    let mut ids: Vec<&str> = all.cases.iter().map(|c| c.id.as_str()).collect();
    ids.sort_unstable();
    ids.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
}

#[test]
fn first_loads_are_predicted_within_their_range() {
    let left_out = FirstLoad::left_out();
    assert_eq!(left_out.len(), published_loads().len());
    let within = left_out.iter().filter(|(l, p)| (p.range[0]..=p.range[1]).contains(&l.seconds)).count();
    assert!(within * 10 >= left_out.len() * 7, "{within} of {}", left_out.len());
    assert!(FirstLoad::of(0).is_none() && FirstLoad::of(u64::MAX).is_none());
}

/// Two products of this width with a top-k between them.
fn cut(width: usize) -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp16, &[width, width])).unwrap();
    let y = b.matmul("y", x, x, Transpose::Neither).unwrap();
    let k = Constant::int32(width as i32);
    let top = b.ops("topk", "top", [("x", y.into()), ("k", k.into()), ("axis", Constant::int32(-1).into())]).unwrap();
    let z = b.matmul("z", top[0], x, Transpose::Neither).unwrap();
    b.finish(&[("z", z)]).unwrap()
}

fn placed(program: &Program, options: &PlaceOptions) -> Placement {
    place(program, &Profile::named("m4-macos15-coreml").unwrap(), options)
}

#[test]
fn a_cut_is_three_segments_and_its_removal_one() {
    let placement = placed(&cut(1024), &PlaceOptions::default());
    let runs: Vec<_> = placement.segments.iter().map(|s| s.runs_on).collect();
    assert_eq!(runs, [Some(Processor::Engine), Some(Processor::Cpu), Some(Processor::Engine)], "{placement}");
    let crossing: Vec<_> = placement.transfers.iter().map(|t| (t.from, t.to, t.bytes)).collect();
    assert_eq!(crossing, [(0, 1, 2 << 20), (1, 2, 2 << 20)]);
    assert!(placement.transfers.iter().all(|t| t.us.is_some_and(|us| us > 200.0)));
    let change = placement.change.as_ref().unwrap();
    assert_eq!(
        (change.replace.as_slice(), change.segments, change.transfers),
        (&["top_0".to_string()][..], [3, 1], [2, 0])
    );
    assert_eq!(placement.ops[0].ineligible, None);
    assert!(placement.ops[1].ineligible.as_ref().unwrap().message.contains("topk"));
    // What is too small for the way there stays where it is, and nothing would change that.
    let small = placed(&cut(16), &PlaceOptions::default());
    assert_eq!((small.on_engine(), small.segments.len()), (0, 1), "{small}");
    assert_eq!(small.change, None);
}

#[test]
fn what_no_source_says_is_not_known() {
    let options = PlaceOptions { framework: Framework::CoreAi, ..PlaceOptions::default() };
    let placement = placed(&cut(1024), &options);
    assert_eq!((placement.ops[0].runs_on, placement.ops[0].engine_probability), (None, None));
    // The engine cannot run it whichever framework asks.
    assert_eq!(placement.is_mostly_on_engine(), None);
    let all = PlaceOptions { units: AllowedUnits::All, ..PlaceOptions::default() };
    assert_eq!(placed(&cut(1024), &all).ops[1].runs_on, Some(Processor::CpuOrGpu));
    let absent = PlaceOptions { function: Some("absent".to_string()), ..PlaceOptions::default() };
    assert!(placed(&cut(16), &absent).ops.is_empty());
}

#[test]
fn a_record_is_read_back_and_compared() {
    let (good, bad) = (placed(&cut(1024), &PlaceOptions::default()), placed(&cut(16), &PlaceOptions::default()));
    let read = Placement::read(&good.write()).unwrap();
    assert_eq!(read.ops.len(), good.ops.len());
    assert!(!PlacementDiff::between(&good, &read).is_regression());
    let diff = PlacementDiff::between(&good, &bad);
    assert!(diff.is_regression());
    assert_eq!(diff.left.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["y", "z"]);
    let back = PlacementDiff::between(&bad, &good);
    assert_eq!((back.returned.len(), back.left.len()), (2, 0));
    for wrong in ["", "[]", "{}", &good.write().replacen("\"version\": 1", "\"version\": 9", 1)] {
        assert!(Placement::read(wrong).is_err(), "{wrong}");
    }
    let outside = good.write().replacen("\"segment\": 0", "\"segment\": 99", 1);
    assert!(Placement::read(&outside).unwrap_err().to_string().contains("segment"));
}

#[test]
fn an_op_off_the_engine_has_a_reason() {
    let mut b = Builder::new("main", Opset::IOS18);
    let x = b.input("x", Type::tensor(DataType::Fp32, &[1, 8])).unwrap();
    let wide = b.op("relu", "wide", [("x", x.into())]).unwrap();
    let half = b.cast("half", wide, DataType::Fp16).unwrap();
    let y = b.op("relu", "y", [("x", half.into())]).unwrap();
    let program = b.finish(&[("y", y)]).unwrap();
    let profile = core_ml_profile(&Profile::find("m4").unwrap()).unwrap();
    let placement = place(&program, &profile, &PlaceOptions::default());
    for op in &placement.ops {
        let reason = op.reason().map(|(_, sentence)| sentence);
        assert_eq!(reason.is_none(), op.runs_on == Some(Processor::Engine), "{}: {reason:?}", op.name);
        let ineligible = op.ineligible.as_ref().map(|i| i.message.as_str());
        assert!(ineligible.is_none_or(|message| Some(message) == reason), "{}: {reason:?}", op.name);
    }
    assert!(placement.ops.iter().any(|op| op.ineligible.is_none()), "{placement}");
}
