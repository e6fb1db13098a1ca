//! Reading hostile text takes memory in proportion to its size. A test binary of its own, because
//! it counts every allocation.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrane_mil::{Missing, Options, Strictness, Types, Weights, parse_with};

/// Bytes of memory for each byte of text. The worst are lists of scalars, two bytes each (`1,`),
/// and statements of four (`a();`), of which each is a constant or an op of its own, in a vector
/// that doubles, so that the old one and one of twice its size coexist while it grows:
/// they take 108 and 103 times the text right after it grew. A sixth is left for other targets.
const MULTIPLE: usize = 128;
/// What any text may take: the registry's index, the diagnostics that are kept.
const BASE: usize = 4 << 20;

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn program(body: &str) -> String {
    format!("program(1.3)\n{{\nfunc main<ios18>(tensor<fp16, [1, 2]> x) {{\n{body}\n}} -> (x);\n}}\n")
}

#[test]
fn memory_is_in_proportion_to_the_text() {
    // Vectors double right after a power of two: the worst case.
    let n = (1 << 17) + 1;
    let many = |f: &dyn Fn(usize) -> String| (0..n).map(f).collect::<String>();
    let deep = |n: usize, open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(n), close.repeat(n));
    let list31 = deep(31, "list<", "fp16", ", ?>");
    let wide = format!("tuple<{}fp16>", "fp16, ".repeat(n));
    let texts = [
        ("brackets", "[".repeat(n * 4)),
        ("ops without anything", program(&"a();".repeat(n))),
        ("statements", program(&many(&|i| format!("fp16 v{i}=a();")))),
        ("undefined names", program(&many(&|i| format!("a(x=u{i});")))),
        ("one long list of values", program(&format!("a(x=({}x));", "x,".repeat(n)))),
        ("arguments", program(&format!("a({});", many(&|i| format!("a{i}=x,"))))),
        ("attributes", program(&format!("a()[{}];", many(&|i| format!("a{i}=fp16(1),"))))),
        (
            "numbers",
            program(&format!("tensor<fp64,[{n}]> v=const()[val=tensor<fp64,[{n}]>([{}1])];", "1,".repeat(n - 1))),
        ),
        (
            "packed numbers",
            program(&format!("tensor<uint1,[{n}]> v=const()[val=tensor<uint1,[{n}]>([{}1])];", "1,".repeat(n - 1))),
        ),
        (
            "strings",
            program(&format!(
                "tensor<string,[{n}]> v=const()[val=tensor<string,[{n}]>([{}\"\"])];",
                "\"\",".repeat(n - 1)
            )),
        ),
        ("a list of scalars", program(&format!("a()[v=list<fp16,?>([{}1])];", "1,".repeat(n)))),
        ("a dictionary", program(&format!("a()[v=dict<fp16,fp16>({{{}{{1,1}}}})];", "{1,1},".repeat(n)))),
        // Types that every element repeats.
        ("lists of deep lists", program(&format!("a()[v={list31}([{}[]])];", "[],".repeat(n)))),
        (
            "lists of wide dictionaries",
            program(&format!("a()[v=list<dict<fp16,{wide}>,?>([{}{{}}])];", "{},".repeat(n))),
        ),
        (
            "elements of rank 16",
            program(&format!(
                "a()[v=list<tensor<fp16,[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]>,?>([{}[1]])];",
                "[1],".repeat(n)
            )),
        ),
        // Extents that promise more than there is.
        (
            "a huge constant",
            program("tensor<fp16,[2147483647,2147483647]> v=const()[val=tensor<fp16,[2147483647,2147483647]>([1])];"),
        ),
        (
            "a huge weight",
            program(
                "tensor<fp16,[2147483647]> v=const()[val=tensor<fp16,[2147483647]>(BLOBFILE(path=string(\"w\"),offset=uint64(64)))];",
            ),
        ),
        ("many parts", program("tensor<fp16,[1]> v=split(x=x,num_splits=int32(2147483647),axis=int32(0));")),
        (
            "many repetitions",
            program(&"tensor<fp16,[1]> v=tile(x=x,reps=tensor<int32,[2]>([2147483647,2147483647]));".repeat(100)),
        ),
        // Messages.
        ("long names", program(&format!("a(x={}); ", "y".repeat(5000)).repeat(200))),
        ("values of a wide type", program(&format!("{wide} v=a();\n{}", "fp16 y=relu(x=v);".repeat(500)))),
        ("bad elements", program(&format!("a()[v=tensor<int8,[{n}]>([{}1])];", "999,".repeat(n)))),
        ("functions", format!("program(1.3){{{}}}", many(&|i| format!("func f{i}<ios18>(){{}}->();")))),
        ("nested blocks", program(&"fp16 v=a()(){".repeat(n))),
        ("parameters", format!("program(1.3){{func f<ios18>({}", many(&|i| format!("fp16 v{i},")))),
    ];
    let mut over = Vec::new();
    for (what, text) in &texts {
        for types in [Types::Check, Types::Trust] {
            let options = Options { missing: Missing::Keep, strictness: Strictness::Lenient, types };
            let before = NOW.load(Ordering::Relaxed);
            PEAK.store(before, Ordering::Relaxed);
            let parsed = parse_with(text, &Weights::new(), options);
            let peak = PEAK.load(Ordering::Relaxed) - before;
            drop(parsed);
            if peak > BASE + MULTIPLE * text.len() {
                over.push(format!("{what}: {} bytes of text, {peak} of memory", text.len()));
            }
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}
