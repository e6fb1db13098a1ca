//! Why ops are not on the engine, in the words of a network's page.

use ferrane_machine::placement::Placement;
use ferrane_mil::Program;
use ferrane_page::NetworkPage;

/// For each op of a program's placement, why it is not on the engine; `None` for one that runs
/// there. The sentence is the one that the page of the network shows.
pub fn placement_reasons(program: &Program, placement: &Placement) -> Vec<Option<String>> {
    let mut page = NetworkPage::new("", program);
    page.placements.push(placement.clone());
    let data = page.json();
    let graphs = data["graphs"].as_array().into_iter().flatten();
    // Of the nodes, those that the placement is about have a segment, in the order of its ops.
    let placed = graphs.filter_map(|g| g["nodes"].as_array()).flatten().filter(|node| node["segment"].is_number());
    let mut reasons: Vec<_> = placed.map(|node| node["why"][1].as_str().map(str::to_string)).collect();
    reasons.resize(placement.ops.len(), None);
    reasons
}

#[cfg(test)]
mod tests {
    use ferrane_machine::Profile;
    use ferrane_machine::placement::{PlaceOptions, Processor, core_ml_profile, place};
    use ferrane_mil::{Builder, DataType, Opset, Type};

    use super::*;

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
        let reasons = placement_reasons(&program, &placement);
        assert_eq!(reasons.len(), placement.ops.len());
        for (op, reason) in placement.ops.iter().zip(&reasons) {
            assert_eq!(reason.is_none(), op.runs_on == Some(Processor::Engine), "{}: {reason:?}", op.name);
            let ineligible = op.ineligible.as_ref().map(|i| &i.message);
            assert!(ineligible.is_none_or(|message| Some(message) == reason.as_ref()), "{}: {reason:?}", op.name);
        }
        assert!(placement.ops.iter().any(|op| op.ineligible.is_none()), "{placement}");
    }
}
