//! Compiled programs: the container, the stream of task descriptors, and their text.

use ferrane_diag::Source;
use ferrane_hwx::container::{Bindings, Command, CommandKind};
use ferrane_hwx::registers::{self, Generation};
use ferrane_hwx::{Hwx, describe, task, text};

/// Larger files that a text makes are not examined further: a text of a few letters can ask for
/// hundreds of megabytes, which would only slow the fuzzer down.
const LARGEST: usize = 1 << 20;

/// Any bytes are a container or rejected. A container that is read is written as the same bytes,
/// every view of it can be printed, and its text assembles to the same bytes.
///
/// # Panics
/// If a property does not hold.
pub fn hwx(data: &[u8]) {
    let Ok(hwx) = Hwx::read(data) else { return };
    assert_eq!(hwx.write(), data, "reading and writing changes the file");
    for program in hwx.programs() {
        Bindings::of(&hwx, &program);
    }
    for section in hwx.sections() {
        hwx.relocations(&section);
    }
    hwx.symbols();
    assert_eq!(describe::diff(&hwx, &hwx), [], "a file differs from itself");
    describe::prose(&hwx, describe::Detail { registers: true });
    describe::json(&hwx);
    describe::dot(&hwx);
    describe::svg(&hwx);
    assemble(&hwx);
}

/// Checks that the text of a file assembles to that file.
fn assemble(hwx: &Hwx) {
    let text = text::print(hwx);
    match text::assemble(&text) {
        Ok(made) => assert!(made.write() == hwx.write(), "the text makes another file:\n{text}"),
        Err(problems) => {
            panic!("the text is refused:\n{}\n{text}", problems.render(&Source::new("text", &text), false))
        }
    }
}

/// Any words are a stream of descriptors of any generation, or rejected. Encoding reproduces the
/// decoded words, and the text of a file with this stream assembles to that file.
///
/// The first byte chooses the generation; the next two give the length of the first descriptor, in
/// generations that need it.
///
/// # Panics
/// If a property does not hold.
pub fn hwx_stream(data: &[u8]) {
    let [which, low, high, text @ ..] = data else { return };
    let all = registers::generations();
    let Some(generation) = all.get(usize::from(*which) % all.len()) else { return };
    let first = match u16::from_le_bytes([*low, *high]) {
        0 => None,
        n => Some(usize::from(n)),
    };
    if let Ok(tasks) = task::decode(generation, text, first) {
        for task in &tasks {
            let words: Vec<u8> = task.encode(generation.record_format).iter().flat_map(|w| w.to_le_bytes()).collect();
            assert_eq!(words.len(), 4 * task.len());
            assert_eq!(text.get(task.offset..task.offset + words.len()), Some(&words[..]), "encoding changes a word");
            for address in task.registers().into_keys() {
                assert!(task.register(generation, address).is_some());
                generation.label(address);
            }
        }
    }
    if let Some(hwx) = file(generation, text, first) {
        assemble(&hwx);
        describe::prose(&hwx, describe::Detail { registers: true });
    }
}

/// A file whose only content is this stream.
fn file(generation: &Generation, text: &[u8], first: Option<usize>) -> Option<Hwx> {
    const ADDRESS: u64 = 0x3000_0000;
    let mut segment = Command::new(CommandKind::Segment, 72 + 80)?;
    let mut program = Command::new(CommandKind::Program1, 0x868)?;
    segment.set("nsects", 1)?;
    let offset = 32 + segment.bytes().len() + program.bytes().len();
    for (name, value) in [("addr", ADDRESS), ("size", text.len() as u64), ("offset", offset as u64), ("flags", 0x28)] {
        segment.set_section(0, name, value)?;
    }
    program.set("text_addr", ADDRESS)?;
    program.set("first_task_words_less_one", first.map_or(0, |n| n as u64 - 1))?;
    let commands = vec![segment, program];
    let size = commands.iter().map(|c| c.bytes().len()).sum::<usize>() as u32;
    let hwx = Hwx {
        magic: ferrane_hwx::container::MAGIC,
        cputype: ferrane_hwx::container::CPU,
        subtype: generation.subtype,
        filetype: 2,
        flags: 0x20_0000,
        reserved: 0,
        commands_size: size,
        commands,
        body: text.to_vec(),
    };
    Some(Hwx::read(&hwx.write()).expect("a valid file is read"))
}

/// Any text assembles to a file or is rejected with diagnostics that can be printed. The text of an
/// assembled file assembles to the same file.
///
/// # Panics
/// If a property does not hold.
pub fn hwx_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text::assemble(text) {
        Ok(hwx) if hwx.size() <= LARGEST => assemble(&hwx),
        Ok(_) => {}
        Err(problems) => {
            assert!(problems.has_errors(), "refused without an error");
            let source = Source::new("fuzz.txt", data);
            let _ = (problems.render(&source, true), problems.json(&source));
        }
    }
}
