//! docs/ane-bindings.md and data/bound.txt follow from the bindings. `FERRANE_BLESS=1` writes them.

use std::fmt::Write as _;
use std::path::Path;

use ferrane_ane::bind::{Receiver, table};
use ferrane_ane::classes::bound;

const INTRODUCTION: &str = "\
# The private interface of the engine

What `ferrane-ane` calls, and what it does not. Generated: `FERRANE_BLESS=1 cargo test -p ferrane-ane docs`.

None of it has met a Mac. Every call is made in tests over a fake framework, whose classes are declared from the published
descriptions and not from the bindings; on a Mac a class, a method or a type that is not there is an error that names it, since each
method's own type encoding is compared with ours before it is first sent. Exceptions are caught and become errors.

Encodings are those of the Objective-C runtime without offsets: result, receiver (`@`), selector (`:`), arguments. `B` is BOOL, `@` an
object, `I` and `Q` unsigned of 32 and 64 bits, `i` and `q` signed, `c` a byte, `v` nothing, `^` a pointer to.

`+[MLModel …]` and the other classes with public headers are Core ML's and Foundation's. The E5 path (`ane?path=e5`) follows a published
recipe whose types are those of published class listings. It is open where `@model_path` of a text leads that Core ML is given by itself
(here the weights are next to the text), and whether a model of the program's ports alone is container enough for every program. The
handle that `createProgramLibraryHandleWithRespecialization:error:` gives is never freed: no function that does is published.

Shared events and chains: published measurements on an M1 Max found that the engine waits for events of a request and raises them,
that such a request is evaluated asynchronously, and that one without a completion handler ends the process; so every request with
events has one (`ane?fences=…`). No published program has run a chain of MIL text to its end, so a chain that is refused runs step by
step, and the device's notes say why (`ane?chain=…`).

## Plans

`ferrane place --plan` and `ferrane::engine::compute_plan` ask Core ML where it would run each op of a model (`MLComputePlan`, public
since macOS 14.4). The class of a device says which processor it is.

## Compiling to a file

`ferrane compile --aot` and `ferrane::engine::aot` call `ANECCompile`, a C function of ANECompiler.framework, in this process; on the
other paths the framework calls it in its own service. It is opened and looked up by name when it is first wanted. It was called over
a fake only and has never met a Mac. Nothing at run time describes the types of a C function: they come from published callers,
`int ANECCompile(NSDictionary *, NSDictionary *, void (^)(unsigned, NSDictionary *))`, and if a system has others, the process may crash.

The first dictionary has `InputNetworks`, a list of one dictionary, `OutputFilePath` and `OutputFileName`; that one has
`NetworkSourceFileName` and `NetworkSourcePath` for MIL text, `NetworkPlistName` and `NetworkPlistPath` for a `net.plist`. Folders end in
a slash. The second one has `TargetArchitecture` and, with a debug mask, `CompileANEProgramForDebugging` and `DebugMask`. A compiler was
seen to take the host's architecture where it does not know a name, so an unknown name is refused before. A status other than 0 from
the function or to the block is a failure, and so is a success without a file.

## Sensors

`ferrane::sensors` reads energy, states and temperatures of a Mac with C functions that no header of Apple's has. They are looked up by
name when the sensors are opened. Types are those of public callers, since nothing at run time describes a C function: macmon 0.10 and
[SiliconScope](https://github.com/kennss/SiliconScope) for IOReport, macmon and sysinfo 0.38 for IOHID. If a system has others, the
process may crash. They were called over a fake only.

| library | function | what for |
|---|---|---|
| `libIOReport.dylib` | `IOReportCopyAllChannels` | the list of channels |
| | `IOReportCreateSubscription` | a subscription to those that are read |
| | `IOReportCreateSamples`, `IOReportCreateSamplesDelta` | the counters now, and since the first sample |
| | `IOReportChannelGetGroup`, `IOReportChannelGetSubGroup`, `IOReportChannelGetChannelName` | the names of a channel |
| | `IOReportChannelGetUnitLabel`, `IOReportChannelGetFormat` | what its number is |
| | `IOReportSimpleGetIntegerValue` | an energy counter |
| | `IOReportStateGetCount`, `IOReportStateGetNameForIndex`, `IOReportStateGetResidency` | the time in each state |
| `IOKit.framework` | `IOHIDEventSystemClientCreate`, `IOHIDEventSystemClientSetMatching`, `IOHIDEventSystemClientCopyServices` | the temperature sensors |
| | `IOHIDServiceClientCopyProperty`, `IOHIDServiceClientCopyEvent`, `IOHIDEventGetFloatValue` | the name of a sensor and its temperature |

A system without one of them loses the readings of that library; each reading lists them as unread, with the reason. Crates that offer
the same are not linked. macmon, and sysinfo with its feature `component`, bind these functions when a program starts: where one is
missing, the program does not start, and no fake can replace them in a test.

The channels are those that public programs read: `Energy Model` and `PMP` / `Energy Counters` for energy, and `CPU Stats`, `GPU Stats`,
`SoC Stats`, `PMP`, `ANE` and `H11ANE` for states (`crates/ane/src/sensors/channels.rs` has their names and sources). A channel that a
machine lacks is no error. On macOS 27 the counters of the CPU and the engine in `Energy Model` may stand still for programs without
Apple's entitlement ([mactop, pull request 76](https://github.com/metaspartan/mactop/pull/76)).

## Bound

| method | encoding |
|---|---|
";

/// Known names that are not bound, with the reason.
pub const NOT_BOUND: &[(&str, &str)] = &[
    ("`-[_ANEModel …]`, the rest of its 52 methods and 17 properties", "published as names only, and not needed"),
    (
        "`+[_ANEPerformanceStats statsWithRequestPerformanceBuffer:statsBufferSize:]`",
        "published dumps do not agree on the type of the buffer, and a wrong one is written through",
    ),
    (
        "`-[_ANEDeviceController device]`",
        "a struct of three pointers of the driver's own, which nothing outside of the framework can use",
    ),
    (
        "`-[_ANEVirtualClient …]`, all but the shared one",
        "the way out of a virtual machine; `sharedConnection` gives nil on a Mac itself",
    ),
    ("`ANEMemoryMappingParamsStruct`", "the driver's 128 slots for surfaces, filled by the mapper itself"),
    (
        "`-[MLE5Engine …]`, `-[MLE5ExecutionStream …]`, `-[MLE5ExecutionStreamOperation …]` and the pools, the rest of their methods",
        "Core ML's inside: what is made with it by hand runs as a silent no-op, and `predictionFromFeatures:options:error:` does all of it",
    ),
    ("`MLDelegateModel`", "what `MLModel` answers as; the E5 path makes engines of its own"),
    (
        "`e5rt_program_library_create`, `e5rt_execution_stream_create`, `e5rt_async_event_create`, `e5rt_async_event_signal`",
        "C functions whose arguments are not published: they are looked for by name (`bind::e5::functions`) and never called",
    ),
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
    held("../../docs/ane-bindings.md", &text);

    // The same as data, for comparisons without a runtime.
    let mut rows = String::new();
    for method in table() {
        let sign = if method.receiver == Receiver::Class { '+' } else { '-' };
        let (class, selector) = (method.class.to_string_lossy(), method.selector.to_string_lossy());
        writeln!(rows, "{class} {sign}{selector} {}", method.encoding).unwrap();
    }
    held("data/bound.txt", &rows);
    if std::env::var_os("FERRANE_BLESS").is_some() {
        // The built-in data are those from before the write.
        return;
    }
    assert_eq!(bound().len(), table().len());
    for (row, method) in bound().iter().zip(table()) {
        assert_eq!((row.words(), row.types), (method.name(), method.encoding));
    }
}

fn held(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(found, text, "FERRANE_BLESS=1 cargo test -p ferrane-ane docs writes {path} again");
}
