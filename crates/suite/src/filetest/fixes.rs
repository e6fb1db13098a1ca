//! What a check leads to: the findings that fixes remove, and the op that an audit finds.

use std::collections::BTreeMap;

use ferrane_emulator::audit::{AuditOptions, audit};
use ferrane_emulator::{Emulator, EmulatorOptions, Numerics};
use ferrane_machine::fix::{Fixed, fix};
use ferrane_mil::{Constant, Program};
use ferrane_tensor_io::TensorSource;

use super::Filetest;
use super::expect::call;

/// One `// audit:` line: `main(x=[12, 1]) shows y`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AuditDirective {
    procedure: String,
    inputs: Vec<(String, TensorSource)>,
    /// The name of the first value that deviates from exact under the machine's numerics.
    value: String,
}

impl AuditDirective {
    pub(super) fn parse(text: &str) -> Result<AuditDirective, String> {
        let (procedure, inputs, rest) = call(text)?;
        let value = rest.strip_prefix("shows ").ok_or("expected `procedure(inputs) shows VALUE`")?;
        Ok(AuditDirective { procedure, inputs, value: value.trim().to_string() })
    }
}

impl AuditDirective {
    /// The finding of the audit, for the page of cases.
    pub(super) fn shows(&self) -> String {
        format!("that `{}` deviates under the machine's numerics", self.value)
    }
}

impl Filetest {
    /// The program after every fix that its machine's findings name. `None` without a profile.
    pub fn fix(&self, program: &Program) -> Option<Fixed> {
        let profile = self.machine()?;
        let evaluate = Emulator::new(EmulatorOptions::default());
        Some(fix(program, &profile, &self.options(), &evaluate))
    }

    /// Compares the fixes and the audits with what the header states.
    pub(super) fn consequences(&self) -> Vec<(usize, String)> {
        let mut failures = Vec::new();
        let parsed = self.parsed();
        let Some(program) = parsed.program.as_ref() else { return failures };
        let fixed = self.fixed.as_ref().and_then(|_| self.fix(program));
        if let (Some((line, codes)), Some(fixed)) = (&self.fixed, &fixed) {
            let before = self.findings(program);
            for code in codes {
                let has = |found: &[ferrane_machine::Finding]| found.iter().any(|f| f.code.to_string() == *code);
                match (has(&before), has(&fixed.left)) {
                    (true, false) => {}
                    (false, _) => failures.push((*line, format!("{code} is not reported"))),
                    (_, true) => failures.push((*line, format!("{code} remains after {:?}", fixed.applied))),
                }
            }
        }
        for (line, directive) in &self.audits {
            let first = |program: &Program| self.deviation(program, directive);
            match first(program) {
                Ok(found) if found.as_deref() == Some(directive.value.as_str()) => {}
                Ok(found) => failures.push((*line, format!("the first deviation is {found:?}"))),
                Err(why) => failures.push((*line, why)),
            }
            match fixed.as_ref().map(|f| first(&f.program)) {
                None | Some(Ok(None)) => {}
                Some(Ok(Some(value))) => failures.push((*line, format!("`{value}` deviates after the fixes"))),
                Some(Err(why)) => failures.push((*line, why)),
            }
        }
        failures
    }

    /// The name of the first value that deviates from exact under the machine's numerics.
    fn deviation(&self, program: &Program, directive: &AuditDirective) -> Result<Option<String>, String> {
        let function = program.functions.iter().find(|f| f.name == directive.procedure);
        let function = function.ok_or_else(|| format!("no function `{}`", directive.procedure))?;
        let mut inputs = Vec::new();
        for &port in &function.inputs {
            let value = function.value(port);
            let source = directive.inputs.iter().find(|(n, _)| *n == value.name);
            let (name, source) = source.ok_or_else(|| format!("no values for `{}`", value.name))?;
            let tensor = source.tensor(name, &value.ty).map_err(|e| e.to_string())?;
            let shape = value.ty.shape().ok_or_else(|| format!("`{name}` has unknown extents"))?;
            let dtype = value.ty.dtype().ok_or_else(|| format!("`{name}` is no tensor"))?;
            inputs.push((name.clone(), Constant::raw(dtype, &shape, tensor.bytes())));
        }
        let mut options = AuditOptions::default();
        let profile = self.machine().ok_or("an audit needs a machine")?;
        (options.numerics, options.profile) = (vec![Numerics::Hardware], profile);
        let found = audit(program, &directive.procedure, &inputs, &BTreeMap::new(), &options);
        let found = found.map_err(|e| e.to_string())?;
        Ok(found.first(0).map(|row| row.value.clone()))
    }
}
