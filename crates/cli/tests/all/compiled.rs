//! `ferrane disasm` and `ferrane assemble`.

use crate::place::Place;

/// A compiled program by hand: one task of the convolution engines of an M1.
pub const TEXT: &str = r#"hwx { subtype = h13; size = 0x2000 }
segment { name = "__TEXT"; vmaddr = 0x30000000; vmsize = 0x4000; fileoff = 0x1800; filesize = 0x800
    section "__text" "__TEXT" { addr = 0x30000000; size = 0x300; offset = 0x1800; flags = 0x28 }
}
fvmlib { name = "x"; vmaddr = 0x30004000 }
fvmlib { name = "y@output"; vmaddr = 0x30008000 }
program1 {
    name = "net"; text_addr = 0x30000000; first_task_words_less_one = 51; tasks = 1
    bar 0 = 0x30000000; bar 4 = 0x30008000; bar 5 = 0x30004000
}
tensor { direction = 1; type = 5; n = 1; c = 3; h = 1; w = 1; d = 1; plane_stride = 0x40; row_stride = 0x40; bytes = 0xc0
    procedure = "net"; symbol = "x"; name = "x" }
tensor { direction = 2; type = 5; n = 1; c = 3; h = 1; w = 1; d = 1; plane_stride = 0x40; row_stride = 0x40; bytes = 0xc0
    procedure = "net"; symbol = "y@output"; name = "y@output" }
tasks 0x1800 {
    task {
        Identity.EON = 1
        TileBars { RBase0 = 5; RBE0 = 1; WBase = 4; WBE = 1; ENE = 1 }
        dense 0x0 words 16 { ConvCfg { Kw = 1; Kh = 1; Sx = 1; Sy = 1 } }
        dense 0x13800 words 7 { DMAConfig.En = 1 }
        dense 0x4800 words 2 { SourceCfg.SourceType = 2 }
        dense 0xc800 words 5 { }
        dense 0x17800 words 7 { DMAConfig.En = 1 }
    }
}
"#;

/// With the text and the file that it makes, `net.hwx`.
pub fn place() -> Place {
    let place = Place::new();
    place.write("net.txt", TEXT);
    place.run("assemble net.txt -o net.hwx").ok();
    place
}

#[test]
fn text_makes_the_file_and_the_file_text() {
    let place = place();
    let told = place.run("disasm net.hwx").ok().out;
    assert!(told.contains("compiled program for H13") && told.contains("input  x: fp16[1, 3, 1, 1]"), "{told}");
    assert!(told.contains("x → y@output"), "{told}");
    assert!(place.run("disasm net.hwx --registers").ok().out.contains("Common.ConvCfg = 0x"));
    let text = place.run("disasm net.hwx --text").ok().out;
    place.write("again.txt", &text);
    place.run("assemble again.txt -o again.hwx").ok();
    assert_eq!(place.read("again.hwx"), place.read("net.hwx"));
    // What is written is never a half file, nor over another one unasked.
    place.run("assemble again.txt -o again.hwx").refused(1, &["again.hwx: exists", "--force"]);
    place.run("assemble again.txt -o again.hwx --force").ok();
    let piped = place.shell("$FERRANE disasm net.hwx --text | $FERRANE assemble - -o piped.hwx").ok();
    assert_eq!((piped.err.as_str(), place.read("piped.hwx")), ("", place.read("net.hwx")));
}

#[test]
fn data_and_pictures() {
    let place = place();
    let json = place.run("disasm net.hwx --json").ok().objects().remove(0);
    assert_eq!((&json["generation"], &json["programs"][0]["name"]), (&"h13".into(), &"net".into()));
    assert!(place.run("disasm net.hwx --dot").ok().out.starts_with("digraph"));
    assert_eq!(place.run("disasm net.hwx --svg net.svg").ok().out, "");
    assert!(place.read("net.svg").starts_with(b"<svg"));
    for both in ["--text --json", "--dot --svg x.svg", "--registers --text", "--diff net.hwx --text"] {
        assert_eq!(place.run(&format!("disasm net.hwx {both}")).code, Some(2), "{both}");
    }
}

#[test]
fn what_differs() {
    let place = place();
    place.write("other.txt", TEXT.replace("Kw = 1; Kh = 1", "Kw = 3; Kh = 1"));
    place.run("assemble other.txt -o other.hwx").ok();
    assert_eq!(place.run("disasm net.hwx --diff net.hwx").ok().out, "");
    let differ = place.run("disasm net.hwx --diff other.hwx");
    assert_eq!((differ.code, differ.out.as_str()), (Some(1), "task 0, Common.ConvCfg.Kw: 1 → 3\n"));
    let json = place.run("disasm net.hwx --diff other.hwx --json").objects().remove(0);
    assert_eq!((&json["same"], &json["differences"][0]["right"]), (&false.into(), &"3".into()));
    place.run("disasm net.hwx --diff net.txt").refused(2, &["net.txt: E0701"]);
    place.run("disasm net.hwx --diff gone.hwx").refused(2, &["gone.hwx: no such file"]);
}

#[test]
fn what_is_no_program_is_refused() {
    let place = place();
    place.run("disasm net.txt").refused(1, &["net.txt: E0701", "is it a compiled program"]);
    place.run("disasm gone.hwx").refused(1, &["gone.hwx: no such file"]);
    place.write("cut.hwx", &place.read("net.hwx")[..0x400]);
    place.run("disasm cut.hwx").refused(1, &["cut.hwx: E0701"]);
    place.write("bad.txt", TEXT.replace("ConvCfg {", "ConfCfg {").replace("subtype = h13", "subtype = h99"));
    let told = place.run("assemble bad.txt -o bad.hwx").refused(1, &["E0711", "no generation `h99`", "bad.txt:1"]);
    assert!(!place.path("bad.hwx").exists(), "{}", told.err);
    place.run("assemble net.hwx -o x.hwx").refused(1, &["net.hwx: no text", "disasm --text"]);
    for code in ["E0711", "E0702"] {
        place.run(&format!("explain {code}")).ok();
    }
}
