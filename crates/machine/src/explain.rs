//! The long explanation of a code: meaning, cause and remedy.
//!
//! Codes of rules are explained by their [`Rule`]; codes of readers have no rule and are explained
//! in the tables here. Every code of the project has an entry: a test searches the sources for
//! codes.

use std::fmt::Write as _;

use ferrane_diag::Code;

use crate::claims;
use crate::rules::{self, Rule};

/// The explanation of a code.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// The code that it explains.
    pub code: Code,
    /// The subject, in a few words.
    pub title: &'static str,
    /// The explanation in full sentences.
    pub text: &'static str,
    /// The rule, for codes about a machine.
    pub rule: Option<&'static Rule>,
}

/// Codes of the text reader, the op registry and the weights (`ferrane-mil`).
const LANGUAGE: &[(u16, &str, &str)] = &[
    (
        101,
        "bytes that are not text",
        "MIL text is UTF-8. Bytes that are not, or characters that no token begins with, cannot be read. A compiled model or a protobuf message under the name of a text is the usual reason.",
    ),
    (
        102,
        "unexpected token",
        "The grammar expects something else here: a name, a comma, a bracket. The message says what. The grammar is in the documentation of `ferrane_mil::text`.",
    ),
    (
        103,
        "program header",
        "A text begins with `program(MAJOR.MINOR)`: `program(1.0)` in the verbose dialect, `program(1.3)` in the shorthand.",
    ),
    (
        104,
        "nesting or size",
        "The text, a literal or the nesting of blocks exceeds the reader's limits: two gigabytes of text, 64 nested blocks. Weights belong in blob files.",
    ),
    (105, "string", "A string must end on the line on which it begins, and `\\` escapes only what the format escapes."),
    (106, "argument without its name", "Arguments of ops are `name = value`; MIL has no arguments by position."),
    (
        107,
        "literal without its type",
        "A literal is `type(value)`: `fp16(0.5)`, `tensor<int32, [2]>([1, 1])`, or `tensor<fp16, []>(0.5)` in the verbose dialect.",
    ),
    (
        108,
        "number",
        "The number does not fit its type, or is not a number: floats are decimal or hexadecimal, integers must lie in the range of their type.",
    ),
    (
        109,
        "another format",
        "The file is not MIL text: a model message, a blob file, coremltools' printed form, ONNX. The message says what it looks like and what reads it.",
    ),
    (
        110,
        "header, opset and spelling that do not match",
        "`program(1.0)` goes with the verbose dialect and opsets up to ios17, `program(1.3)` with the shorthand. The reader accepts it; the engine's compiler refuses it.",
    ),
    (111, "opset", "The tag after the function's name is not a known opset; its ops are kept unchecked."),
    (201, "name", "A name must be an identifier and unique in its function."),
    (202, "undefined value", "A value must be defined before it is used, in this block or in an enclosing one."),
    (
        203,
        "type",
        "The type is not allowed here: an unknown element type, extents that are too large, or a literal of another type.",
    ),
    (
        204,
        "unknown op",
        "The registry has no such op in this opset. Text with it is read and printed; it cannot be checked further or run. A later opset may have it.",
    ),
    (
        205,
        "unknown argument",
        "The op has no such argument in this opset. Its signature is in docs/ops.md and in the note.",
    ),
    (206, "missing argument", "The op needs this argument, and it has no default."),
    (207, "argument given twice", "Each argument of an op may be given only once."),
    (
        208,
        "argument of a wrong type",
        "The signature takes other element types or ranks for this argument. Element types are never converted silently: `cast` does it.",
    ),
    (
        209,
        "argument that must be a constant",
        "The compiler needs the value of this argument: an inline literal or the result of a `const`.",
    ),
    (
        210,
        "shapes that do not match",
        "The extents of the arguments violate the op's rule: broadcasting, inner extents of a product, axes out of range.",
    ),
    (211, "declared result", "The text declares another type for a result than the op gives for these arguments."),
    (212, "constant", "The bytes of a constant disagree with its type, or its weight is missing."),
    (
        213,
        "opset that cannot express it",
        "A function cannot be converted to the older opset: it uses an op, an argument or a type that was introduced later.",
    ),
    (
        290,
        "invariant of the program",
        "The program in memory is not well formed: a value used before its definition, two values with the same name, an op in two blocks. Texts and packages cannot contain this; a program built by hand can.",
    ),
    (
        301,
        "missing blob file",
        "The text names a blob file that was not opened. Paths begin with `@model_path/`, the folder of the text. `ferrane check --no-weights` does not need them.",
    ),
    (
        302,
        "blob record",
        "There is no record for this constant at the offset: the offset is that of the metadata (64 for the first), not of the data, and the record's type and size must be the constant's.",
    ),
    (
        303,
        "odd blob record",
        "The record can be read, but its own size, offset, count or type is wrong. Strict readers refuse it (macOS 15), lenient ones take it.",
    ),
];

/// Codes of compiled programs (`ferrane-hwx`).
const COMPILED: &[(u16, &str, &str)] = &[
    (
        701,
        "not a compiled program",
        "The file is not a file of the engine's compiler, or only a part of one: the magic number (0xbeefface, or 0xfeedfacf with cputype 0x80), or the size of the load commands is wrong.",
    ),
    (
        702,
        "load command",
        "A load command is shorter than its kind requires, or its number of sections, length of the state or offset of a name reaches beyond it. Unknown commands are kept and never examined.",
    ),
    (
        703,
        "range of the file",
        "A section, its relocations, the symbols, their names or a note does not lie in the file after the load commands, or two of them overlap.",
    ),
    (
        704,
        "descriptors",
        "The task descriptors of a section cannot be followed: a length or a pointer leads out of the section or backwards, or a record is longer than its descriptor. The descriptor encoding of the generation may be unknown.",
    ),
    (
        705,
        "weights of a compiled program",
        "Weights or a function table disagree with the shape, or with the lanes that the registers of a task describe: a wrong length, a range beyond the end of the buffer, or a form whose order is not established (groups, palettes, sparse weights).",
    ),
    (
        710,
        "text of a compiled program: grammar",
        "A statement is words, then `=` and a value or a block, one on a line. The grammar is in the documentation of `ferrane_hwx::text`; what `disasm` writes is an example.",
    ),
    (
        711,
        "text of a compiled program: name",
        "No statement, field, register or value has this name here. Registers have the names of docs/hwx-registers.md, those of the block that the record begins in; all others are set by their addresses.",
    ),
    (
        712,
        "text of a compiled program: value",
        "The number does not fit into its field, or its field does not fit into the command or record. Addresses and strides are not shifted, so their lower bits must be zero.",
    ),
    (
        713,
        "text of a compiled program: offset",
        "Contents overlap each other or the load commands, or lie beyond the size in the header. An edit does not move offsets in the file or change sizes of sections: adjust those of the contents after it as well.",
    ),
    (
        720,
        "program that cannot be built",
        "The program cannot be built: its operation cannot take its tensors, a number does not fit into its register (15 bits for width and height, 17 for channels, 5 for a kernel, 2 for a stride), or its encoding is not established, as for tiles of large tensors.",
    ),
    (
        721,
        "program for the Linux driver",
        "The driver runs programs of H13 (A14, M1) with fixed buffer indices: the payload, memory between tasks, then outputs and inputs, at most 28. The format cannot express a program of another engine, tensors with a depth, or tasks that name an unbound buffer.",
    ),
    (
        722,
        "file of the Linux driver",
        "The sizes in an `.anec` header contradict each other: the payload is the descriptors, rounded up to 16 bytes, and the constants, and begins at 0x1000 (`anecc`) or 0x800 (`libane`).",
    ),
    (
        730,
        "FlatBuffer",
        "The first four bytes of a FlatBuffer are the offset of its root table, and a table refers to its vtable, which has the offset of each field. One of the two offsets leads out of the file or does not fit.",
    ),
    (
        731,
        "part of a bundle or of a compiled model",
        "A string, blob or list of `coremldata.bin`, `net.plist` or a file of Espresso reaches beyond the file, or the file is of another kind or version.",
    ),
];

/// Codes of ONNX models (`ferrane-onnx`).
const ONNX: &[(u16, &str, &str)] = &[
    (
        801,
        "not an ONNX model",
        "The bytes are not the protobuf message of a model, or the model has no graph. A file that Git LFS keeps elsewhere, a download that stopped, or another format under this name is the usual reason.",
    ),
    (
        802,
        "invalid ONNX model",
        "The model contradicts itself: a name is defined twice or nowhere, a node depends on its own result, a tensor has a wrong number of bytes, or an operator gets operands that do not fit. `onnx.checker.check_model(model, full_check=True)` finds most of these.",
    ),
    (
        803,
        "version of an ONNX model",
        "The format or the opset is newer or older than those that are known. `onnx.version_converter` moves a model to another opset.",
    ),
    (
        804,
        "file of an ONNX model",
        "The model, or a file of external data that it names, cannot be read. External data lie in the folder of the model, under the names that they had when it was saved.",
    ),
    (
        805,
        "open extent of an ONNX model",
        "A program has fixed extents. Each named extent of an input gets its number from `--shape batch=1,seq=128`, or from `Options::dimensions`; an extent without a name is `INPUT.AXIS`.",
    ),
    (
        806,
        "node that MIL cannot express",
        "MIL has no op for the operator, no short composition of ops computes it, or it has a form that they do not cover. The message says which. docs/onnx.md lists the operators.",
    ),
    (
        807,
        "value of an ONNX model that must be known",
        "MIL needs the value when the program is made: axes, shapes, sizes, numbers of repetitions. It must be an initializer, computed from initializers and extents, or an input with a fixed value (`Options::values`). `onnxsim` or a newer exporter often folds it.",
    ),
];

/// Codes of Core AI models (`ferrane-coreai`).
const COREAI: &[(u16, &str, &str)] = &[
    (
        901,
        "not the program of a Core AI model",
        "The bytes are not MLIR bytecode, which begins with 4d 4c ef 52, or bytecode of another version than 6, which coreai-core 1.0.0b3 writes. The program of an `.aimodel` is its file `main.mlirb`.",
    ),
    (
        902,
        "cut Core AI model",
        "The file ends before what it announces: a section, a list or a resource is longer than what is left. A download or a copy that stopped is the usual cause; `main.hash` holds the SHA-256 of the whole file.",
    ),
    (
        903,
        "malformed Core AI model",
        "A part of the bytecode violates its format: a section that is not expected, padding that is not 0xcb, bytes that are left over, regions that nest too deep or define a wrong number of values.",
    ),
    (
        904,
        "dangling index of a Core AI model",
        "An index is beyond the end of its table: of strings, dialects, names of operations, attributes, types, properties, values or blocks.",
    ),
    (
        905,
        "folder of a Core AI model",
        "An `.aimodel` is a folder with `main.mlirb`, `main.hash` and `metadata.json`. One of them is missing, cannot be read or written, or is not what its name says.",
    ),
    (
        906,
        "hash of a Core AI model",
        "`main.hash` holds the SHA-256 of `main.mlirb` as 32 bytes, and it does not match the program. Apple's tools write both; a tool that changes `main.mlirb` must write `main.hash` again.",
    ),
    (
        907,
        "open extent of a Core AI model",
        "A program has fixed extents. Each extent that the file leaves open gets its number from `--shape x=1x128` or `--shape x.0=1`, or from `ConversionOptions::dimensions`; its name is `INPUT.AXIS`.",
    ),
    (
        908,
        "operation that MIL cannot express",
        "MIL has no op for the operation, no short composition of ops computes it, and the file has no expansion of it that MIL can express. The message says which operation, and which line of the source wrote it. docs/coreai.md lists the operations.",
    ),
    (
        909,
        "value of a Core AI model that must be known",
        "MIL needs the value when the program is made: axes, shapes, sizes. It must be a constant, or computed from constants and extents.",
    ),
    (
        910,
        "operation that contradicts itself",
        "An operation of the model gets operands that do not fit it, or returns a tensor of another type than it states. A file that coreai-core verified has none; the file was changed, or its version is not known.",
    ),
    (
        911,
        "op that Core AI cannot express",
        "Core AI has no operation for the op, no short composition of operations computes it, or it gets operands of a form that the operations do not take. The message names the op and the reason. docs/coreai.md lists the ops without a counterpart; `ferrane convert` can write the program as a package instead.",
    ),
];

/// Every explanation, sorted by code.
pub fn all() -> Vec<Explanation> {
    let told = |&(code, title, text): &(u16, &'static str, &'static str)| Explanation {
        code: Code(code),
        title,
        text,
        rule: None,
    };
    let explained = |rule: &'static Rule| Explanation {
        code: rule.code,
        title: rule.title,
        text: rule.explanation,
        rule: Some(rule),
    };
    // The codes of rules have two ranges, with those of other crates between them.
    let (first, continued): (Vec<_>, Vec<_>) = rules::all().iter().map(explained).partition(|e| e.code.0 < 1000);
    LANGUAGE
        .iter()
        .map(told)
        .chain(first)
        .chain(COMPILED.iter().map(told))
        .chain(ONNX.iter().map(told))
        .chain(COREAI.iter().map(told))
        .chain(continued)
        .collect()
}

/// The explanation of a code, which may be spelled `E0421`, `e421` or `421`.
pub fn find(code: &str) -> Option<Explanation> {
    let digits = code.trim().trim_start_matches(['e', 'E']);
    let number: u16 = digits.parse().ok().filter(|_| digits.len() <= 4)?;
    all().into_iter().find(|e| e.code == Code(number))
}

/// The name by which docs/errors.md and addresses refer to a code: `e0421`. It stays when the title
/// changes.
pub fn anchor(code: Code) -> String {
    code.to_string().to_lowercase()
}

/// The address of the explanation of a code: its page of the book at the homepage of the project,
/// or its section in the repository; `None` if the manifest of this crate names neither.
pub fn address(code: Code) -> Option<String> {
    address_in(env!("CARGO_PKG_HOMEPAGE"), env!("CARGO_PKG_REPOSITORY"), code)
}

fn address_in(homepage: &str, repository: &str, code: Code) -> Option<String> {
    let (homepage, repository) = (homepage.trim_end_matches('/'), repository.trim_end_matches('/'));
    if !homepage.is_empty() {
        return Some(format!("{homepage}/codes/{code}.html"));
    }
    (!repository.is_empty()).then(|| format!("{repository}/blob/HEAD/docs/errors.md#{}", anchor(code)))
}

impl Explanation {
    /// The explanation as text for a terminal.
    pub fn text(&self) -> String {
        let mut out = format!("{}: {}\n\n{}\n", self.code, self.title, folded(self.text));
        if let Some(rule) = self.rule {
            let _ = write!(out, "\nWhat happens: {} ({}).\n", rule.effect, rule.severity);
            if !rule.rewrite.is_empty() {
                let _ = writeln!(out, "Instead: {}.", rule.rewrite);
            }
            let _ = write!(out, "\nClaims:\n");
            for claim in rule.claims.iter().filter_map(|id| claims::find(id)) {
                let stated = &claim.stated;
                let _ = writeln!(
                    out,
                    "  {}  {} ({}, {}, {}; {})",
                    claim.id, claim.statement, stated.chip, stated.os, stated.path, claim.source
                );
            }
        }
        out
    }
}

/// Wraps words into lines of at most 100 characters.
fn folded(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > 100 {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += width;
    }
    out
}

const INTRODUCTION: &str = "\
# Codes

Every diagnostic code of Ferrane, with the explanation that `ferrane explain` prints. Generated: `FERRANE_BLESS=1 cargo test -p ferrane-machine errors_doc`.

01xx are about the text, 02xx about names and types, 03xx about weights: they hold on every machine. 04xx and 10xx are about a machine, which `ferrane check --machine` names: what happens there, the claims that say so (docs/claims.md), and how to avoid it. 07xx are about compiled programs.
";

/// All explanations as a page of documentation.
pub fn page() -> String {
    let mut out = INTRODUCTION.to_string();
    for e in all() {
        let _ = write!(out, "\n<a id=\"{}\"></a>\n\n## {}: {}\n\n{}\n", anchor(e.code), e.code, e.title, e.text);
        if let Some(rule) = e.rule {
            let _ = write!(out, "\n- **{}**: {}\n", rule.severity, rule.effect);
            if !rule.rewrite.is_empty() {
                let _ = writeln!(out, "- **instead**: {}", rule.rewrite);
            }
            let _ = writeln!(out, "- **claims**: {}", rule.claims.join(", "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_homepage_or_a_repository() {
        assert_eq!(address_in("", "", Code(421)), None);
        let address = Some("https://example.org/a/b/blob/HEAD/docs/errors.md#e0421".to_string());
        assert_eq!(address_in("", "https://example.org/a/b/", Code(421)), address);
        let address = Some("https://example.net/codes/E0421.html".to_string());
        assert_eq!(address_in("https://example.net/", "https://example.org/a/b/", Code(421)), address);
    }

    #[test]
    fn codes_are_unique_and_found_by_any_spelling() {
        let all = all();
        for pair in all.windows(2) {
            assert!(pair[0].code < pair[1].code, "{} and {}", pair[0].code, pair[1].code);
        }
        for spelling in ["E0421", "e0421", "421", " E421 "] {
            assert_eq!(find(spelling).unwrap().code, Code(421), "{spelling}");
        }
        for wrong in ["", "E", "E9999", "99999", "axis"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
        assert!(find("421").unwrap().text().contains("C024"));
    }

    #[test]
    fn lines_are_folded() {
        assert_eq!(folded("a  b\nc"), "a b c");
        assert!(folded(&"word ".repeat(50)).lines().all(|l| l.len() <= 100));
    }
}
