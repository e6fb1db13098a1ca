//! The claims contain every record of the published list with its attributes. Statements are worded
//! by us and are not compared.

use ferrane_machine::claims::{self, Claim};
use ferrane_testdata::Suite;
use serde_json::Value;

fn compare(claim: &Claim, record: &Value) -> Result<(), String> {
    let effect = claim.effect.to_string();
    let evidence = claim.evidence.to_string();
    let stated = &claim.stated;
    let pairs = [
        ("subject", &claim.subject),
        ("path", &stated.path),
        ("chip", &stated.chip),
        ("os", &stated.os),
        ("source", &claim.source),
        ("evidence", &evidence),
        ("severity", &effect),
    ];
    let differs = |(field, ours): &(&str, &String)| record[*field].as_str() != Some(ours.as_str());
    match pairs.iter().find(|pair| differs(pair)) {
        Some((field, ours)) => Err(format!("{field} is `{ours}` here and {} there", record[*field])),
        None => Ok(()),
    }
}

/// A machine that a source names must be among the claim's machines. Words that name no single
/// machine are ignored.
fn machine(claim: &Claim, record: &Value) -> Result<(), String> {
    let stated = record["chip"].as_str().unwrap_or_default();
    for word in stated.split([',', '(']).map(str::trim) {
        let name = word.to_lowercase().replace(' ', "-");
        let Some(chip) = ferrane_machine::profile::chips().iter().find(|c| c.name == name) else { continue };
        let applies = &claim.applies;
        if !applies.chips.contains(&chip.name) && !applies.families.contains(&chip.family) {
            return Err(format!("`{word}` is none of {:?} {:?}", applies.families, applies.chips));
        }
    }
    Ok(())
}

#[test]
fn every_published_record_is_represented() {
    let Some(mut suite) = Suite::open("claims", "claims.json") else { return };
    let text = std::fs::read(suite.folder()).expect("claims.json");
    let records: Vec<Value> = serde_json::from_slice(&text).expect("an array of records");
    for record in &records {
        let id = record["id"].as_str().unwrap_or_default();
        let result = match claims::find(id) {
            Some(claim) => compare(claim, record).and_then(|()| machine(claim, record)),
            None => Err(format!("is not represented: {} ({})", record["claim"], record["subject"])),
        };
        suite.case(id, result);
    }
    suite.finish();
}
