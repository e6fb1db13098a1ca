//! The cost model compared with published numbers.

use ferrane_machine::cost::published::{ErrorSummary, compare, kernel_rows, records};
use ferrane_testdata::Suite;

/// The largest median error that the model may have.
const BOUND: f64 = 0.15;

#[test]
fn kernel_rows_are_predicted_within_the_bound() {
    let Some(mut suite) = Suite::open("cost", "numbers/published.json") else { return };
    let text = std::fs::read_to_string(suite.folder()).unwrap();
    let summary = ErrorSummary::of(&kernel_rows(&records(&text).unwrap()));
    let held = |error: f64, bound: f64| {
        if error <= bound { Ok(()) } else { Err(format!("median error {:.1} %", 100.0 * error)) }
    };
    suite.case("pooled", held(summary.pooled.median, BOUND));
    for (chip, error) in &summary.chips {
        if error.rows < 10 {
            suite.skip(chip, "fewer than ten rows");
        } else {
            // If replicates differ by more than the bound, no model can meet it.
            suite.case(chip, held(error.median, BOUND.max(error.noise.unwrap_or(0.0))));
        }
    }
    suite.finish();
}

#[test]
fn every_published_record_has_a_prediction_or_a_reason() {
    let Some(mut suite) = Suite::open("cost rows", "numbers/published.json") else { return };
    let text = std::fs::read_to_string(suite.folder()).unwrap();
    let report = compare(&text, &()).unwrap();
    assert_eq!(
        report.rows.iter().map(|r| &r.record).collect::<Vec<_>>(),
        records(&text).unwrap().iter().collect::<Vec<_>>()
    );
    for (i, row) in report.rows.iter().enumerate() {
        let sound = match &row.outcome {
            Ok(p) if p.predicted.is_finite() && p.predicted > 0.0 => Ok(()),
            Ok(p) => Err(format!("predicted {}", p.predicted)),
            Err(why) if why.reason.is_empty() => Err("no reason".to_string()),
            Err(_) => Ok(()),
        };
        suite.case(&i.to_string(), sound);
    }
    suite.finish();
}
