//! The cost model compared with published numbers.

use ferrane_machine::cost::published::{ErrorSummary, compare, kernel_rows, records};
use ferrane_testdata::Suite;
use serde_json::Value;

/// The largest median error that the model may have over the rows of a chip.
const BOUND: f64 = 0.15;
/// The largest median error over all rows.
const POOLED: f64 = 0.07;
/// The largest 90th percentile of the errors against the typical times of the configurations.
const TYPICAL_P90: f64 = 0.25;

#[test]
fn kernel_rows_are_predicted_within_the_bound() {
    let Some(mut suite) = Suite::open("cost", "numbers/published.json") else { return };
    let text = std::fs::read_to_string(suite.folder()).unwrap();
    let summary = ErrorSummary::of(&kernel_rows(&records(&text).unwrap()));
    let held = |error: f64, bound: f64| {
        if error <= bound { Ok(()) } else { Err(format!("error {:.1} %", 100.0 * error)) }
    };
    suite.case("pooled", held(summary.pooled.median, POOLED));
    suite.case("90th percentile", held(summary.pooled.typical_p90, TYPICAL_P90));
    // Single rows are farther from their own configuration's median than that.
    assert!(summary.pooled.spread_p90 > TYPICAL_P90 && summary.pooled.p90 > TYPICAL_P90);
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
    let metric = |record: &Value| record["metric"].as_str().unwrap_or("").trim_start_matches("t_").to_string();
    for (i, row) in report.rows.iter().enumerate() {
        let sound = match &row.outcome {
            // No wait for the gradients is a prediction, too.
            Ok(p) if p.predicted > 0.0 || p.predicted == 0.0 && metric(&row.record) == "cblas_wait" => Ok(()),
            Ok(p) => Err(format!("predicted {}", p.predicted)),
            Err(why) if why.reason.is_empty() => Err("no reason".to_string()),
            Err(_) => Ok(()),
        };
        suite.case(&i.to_string(), sound);
    }
    suite.finish();
}
