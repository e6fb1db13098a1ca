//! docs/apple-runtime.md is what the bindings are. `FERRANE_BLESS=1` writes it.

use std::fmt::Write as _;
use std::path::Path;

use ferrane_ane::bind::table;

const INTRODUCTION: &str = "\
# The private interface of the engine

What `ferrane-ane` calls, and what it does not. Generated: `FERRANE_BLESS=1 cargo test -p ferrane-ane docs`.

None of it has met a Mac. Every call is made in tests over a fake framework, whose classes are declared from the published
descriptions and not from the bindings; on a Mac a class, a method or a type that is not there is an error that names it, since each
method's own type encoding is compared with ours before it is first sent. Exceptions are caught and become errors.

Encodings are those of the Objective-C runtime without offsets: result, receiver (`@`), selector (`:`), arguments. `B` is BOOL, `@` an
object, `I` and `Q` unsigned of 32 and 64 bits, `i` and `q` signed, `c` a byte, `v` nothing, `^` a pointer to.

## Bound

| method | encoding |
|---|---|
";

/// What is known by name and not bound, and why.
const NOT_BOUND: &[(&str, &str)] = &[
    (
        "`-[_ANEInMemoryModel saveModelFiles]`, `mapIOSurfacesWithRequest:cacheInference:error:`, `compilerOptionsFileName`, `sharedConnection`, `setPerfStatsMask:`",
        "not needed: files are staged by the caller, requests map their surfaces themselves, and no published program has got a counter out of the mask",
    ),
    ("`-[_ANEModel …]`, the rest of its 52 methods and 17 properties", "published as a count only"),
    (
        "`+[_ANEPerformanceStats statsWithRequestPerformanceBuffer:statsBufferSize:]`, `statsWithReconstructed:hardwareExecutionNS:aneStatsRawData:`, `driverMaskForANEFMask:`",
        "their argument types are not published, and counters stayed nil wherever they were tried",
    ),
    (
        "`-[_ANEClient loadModelNewInstance…]`, `_ANEModelInstanceParameters`",
        "neither the whole selector nor the class's methods are published",
    ),
    (
        "`-[_ANEClient doPrepareChaining…]` and the other `do…` forms around chaining",
        "the whole selectors are not published",
    ),
    (
        "`-[_ANEClient sessionHintWithModel:hint:options:report:error:]`, `reportEvaluateFailure:failureReason:qIdx:`",
        "no hint is known that is accepted; failures are reported by the framework itself",
    ),
    (
        "`-[_ANEClient connections]`, `connectionsUsedForLoadingModels`, `connectionForLoadingModel:options:`",
        "the connections are the framework's own; nothing is done with them",
    ),
    ("`_ANEVirtualClient`", "the engine of a virtual machine's host; `virtualClient` gives nil on a Mac itself"),
    ("`_ANEQoSMapper`", "its result is the queue's index, for which every published program passes 0"),
    (
        "`_ANEDeviceController`",
        "opens the driver without the framework; what it gives is a struct whose layout is not published",
    ),
    (
        "`-[_ANEProgramForEvaluation processInputBuffers:…]`, `processOutputSet:…`, `+programWithHandle:…`",
        "types not published; chaining goes through the client",
    ),
    (
        "`MLE5Engine`, `MLE5ProgramLibrary`, `MLE5ProgramLibraryOnDeviceAOTCompilationImpl`, `MLProgramE5Container`, `MLE5ExecutionStreamPool`, `MLE5ExecutionStreamOperation`, `MLDelegateModel`",
        "the E5 path is not built: it wants a compiled model of Core ML to borrow a container from",
    ),
    (
        "`e5rt_program_library_create`, `e5rt_execution_stream_create`, `e5rt_async_event_create`, `e5rt_async_event_signal`",
        "C functions of the E5 path, whose arguments are not published",
    ),
    ("private keys of `MLModelConfiguration`", "options of Core ML's own engine, not of this path"),
    ("`ANECCompile`", "the compiler's C function; the framework calls it in its own service"),
    (
        "IOKit selectors of `H11ANEIn`",
        "the driver's interface changes between systems; the framework is the stable one",
    ),
];

#[test]
fn docs() {
    let mut text = String::from(INTRODUCTION);
    for method in table() {
        writeln!(text, "| `{}` | `{}` |", method.name(), method.encoding).unwrap();
    }
    text += "\n## Not bound\n\n| what | why |\n|---|---|\n";
    for (what, why) in NOT_BOUND {
        writeln!(text, "| {what} | {why} |").unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/apple-runtime.md");
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, text, "FERRANE_BLESS=1 writes docs/apple-runtime.md anew");
}
