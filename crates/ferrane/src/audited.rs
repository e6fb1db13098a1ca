//! The errors of an audit on the page of a network.

use ferrane_emulator::Numerics;
use ferrane_emulator::audit::{Audit, Cause};
use ferrane_page::NetworkPage;

/// Puts the error of each op by itself on the page of the program that was audited, in ulps of its
/// largest magnitude, infinite where values are lost: under hardware arithmetic if the audit has
/// it, otherwise under its last one.
pub fn put_errors(page: &mut NetworkPage<'_>, audit: &Audit) {
    let hardware = audit.numerics.iter().position(|n| *n == Numerics::Hardware);
    let Some(index) = hardware.or(audit.numerics.len().checked_sub(1)) else { return };
    for row in &audit.rows {
        let Some(reading) = row.readings.get(index) else { continue };
        let error = match (reading.cause, &reading.local) {
            // No number of ulps says that a value is lost.
            (Some(Cause::Overflow | Cause::Saturation | Cause::Special | Cause::Shape), _) => f64::INFINITY,
            (_, Some(local)) => local.peak_ulps,
            (_, None) => continue,
        };
        page.ulps.insert((audit.function.clone(), row.value.clone()), error);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ferrane_emulator::audit::{AuditOptions, audit};
    use ferrane_mil::{Builder, Constant, DataType, Opset, Type};

    use super::*;

    #[test]
    fn an_op_that_overflows_has_the_largest_error() {
        let mut b = Builder::new("main", Opset::IOS18);
        let x = b.input("x", Type::tensor(DataType::Fp16, &[2])).unwrap();
        let square = b.op("square", "square", [("x", x.into())]).unwrap();
        let y = b.op("sqrt", "y", [("x", square.into())]).unwrap();
        let program = b.finish(&[("y", y)]).unwrap();
        // 300² is no fp16 value.
        let x = Constant::raw(DataType::Fp16, &[2], &[0xb0, 0x5c, 0x00, 0x3c]);
        let found = audit(&program, "main", &[("x".into(), x)], &BTreeMap::new(), &AuditOptions::default()).unwrap();
        let mut page = NetworkPage::new("net.mil", &program);
        put_errors(&mut page, &found);
        let error = |name: &str| page.ulps[&("main".to_string(), name.to_string())];
        assert!(error("square").is_infinite() && error("y") <= 1.0, "{:?}", page.ulps);
    }
}
