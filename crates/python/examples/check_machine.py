"""Says why a program does not run on an engine, and what to write instead."""

import ferrane

PROGRAM = b"""program(1.3)
{
  func main<ios17>(tensor<fp16, [1, 64, 1, 64]> x) {
    tensor<fp16, [1, 64, 1, 64]> angle = tan(x = x)[name = string("angle")];
  } -> (angle);
}
"""

model = ferrane.load(PROGRAM)
for machine in ("m1-macos15-inmem", "m4-macos15-inmem"):
    findings = model.check(machine)
    print(machine, "runs it" if findings.ok else "does not run it")
    for finding in findings:
        print(" ", finding)
        print("    claims:", ", ".join(finding.claims))
        if finding.rewrite:
            print("    instead:", finding.rewrite)
print(ferrane.explain(model.check().errors[0].code).splitlines()[0])
