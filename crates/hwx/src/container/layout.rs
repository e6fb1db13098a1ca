//! Where the fields of load commands lie, as data: reading, writing and the text form come from these lists.

/// A number in a command.
pub(crate) struct Slot {
    /// Its name, also in text.
    pub name: &'static str,
    /// Its byte in the command.
    pub at: usize,
    /// Its bytes: 4 or 8.
    pub width: usize,
}

/// A string in a command.
pub(crate) struct Text {
    /// Its name, also in text.
    pub name: &'static str,
    /// Where the string is.
    pub place: Place,
}

/// Where a string is.
pub(crate) enum Place {
    /// In sixteen bytes at this byte, padded with zeros.
    Fixed16(usize),
    /// From this byte to the first zero.
    At(usize),
    /// From the offset that stands in the u32 at this byte, to the first zero.
    Offset(usize),
}

/// The kind of a command, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `LC_SEGMENT_64`.
    Segment,
    /// `LC_LOADFVMLIB`: a name and its address (macOS 11 and 12).
    Fvmlib,
    /// 0x40: a name and its address (macOS 14 and later).
    Binding,
    /// `LC_THREAD`, flavor 1: a program of H13.
    Program1,
    /// `LC_THREAD`, flavor 4: a program of H14 and later.
    Program4,
    /// `LC_THREAD`, flavor 3: a tensor.
    Tensor,
    /// `LC_IDENT`: the compiler's banner.
    Ident,
    /// `LC_NOTE`.
    Note,
    /// `LC_SYMTAB`.
    Symtab,
    /// Anything else; its bytes are kept.
    Other,
}

/// The layout of a kind.
pub(crate) struct Layout {
    /// Its name in text.
    pub word: &'static str,
    pub slots: &'static [Slot],
    pub texts: &'static [Text],
    /// The bytes that a command of this kind has at least.
    pub least: usize,
}

const fn n4(name: &'static str, at: usize) -> Slot {
    Slot { name, at, width: 4 }
}

const fn n8(name: &'static str, at: usize) -> Slot {
    Slot { name, at, width: 8 }
}

const fn text(name: &'static str, place: Place) -> Text {
    Text { name, place }
}

/// The state of a thread begins at this byte of its command.
pub(crate) const STATE: usize = 16;

/// A segment's sections begin at this byte.
pub(crate) const SECTIONS: usize = 72;
/// Bytes of a section.
pub(crate) const SECTION: usize = 80;

/// Base addresses of a program: u64 each.
pub(crate) const BARS: usize = 256;

pub(crate) const SECTION_SLOTS: &[Slot] = &[
    n8("addr", 32),
    n8("size", 40),
    n4("offset", 48),
    n4("align", 52),
    n4("reloff", 56),
    n4("nreloc", 60),
    n4("flags", 64),
];

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 10] = [
        Kind::Segment,
        Kind::Fvmlib,
        Kind::Binding,
        Kind::Program1,
        Kind::Program4,
        Kind::Tensor,
        Kind::Ident,
        Kind::Note,
        Kind::Symtab,
        Kind::Other,
    ];

    /// The kind of a command by its number and, for threads, its flavor.
    pub fn of(cmd: u32, flavor: Option<u32>) -> Kind {
        match (cmd, flavor) {
            (0x19, _) => Kind::Segment,
            (0x06, _) => Kind::Fvmlib,
            (0x40, _) => Kind::Binding,
            (0x04, Some(1)) => Kind::Program1,
            (0x04, Some(4)) => Kind::Program4,
            (0x04, Some(3)) => Kind::Tensor,
            (0x08, _) => Kind::Ident,
            (0x31, _) => Kind::Note,
            (0x02, _) => Kind::Symtab,
            _ => Kind::Other,
        }
    }

    /// The command's number and, for threads, its flavor.
    pub fn number(self) -> Option<(u32, Option<u32>)> {
        Some(match self {
            Kind::Segment => (0x19, None),
            Kind::Fvmlib => (0x06, None),
            Kind::Binding => (0x40, None),
            Kind::Program1 => (0x04, Some(1)),
            Kind::Program4 => (0x04, Some(4)),
            Kind::Tensor => (0x04, Some(3)),
            Kind::Ident => (0x08, None),
            Kind::Note => (0x31, None),
            Kind::Symtab => (0x02, None),
            Kind::Other => return None,
        })
    }

    /// Its name in text.
    pub fn word(self) -> &'static str {
        self.layout().word
    }

    pub(crate) fn layout(self) -> &'static Layout {
        match self {
            Kind::Segment => {
                const {
                    &Layout {
                        word: "segment",
                        slots: &[
                            n8("vmaddr", 24),
                            n8("vmsize", 32),
                            n8("fileoff", 40),
                            n8("filesize", 48),
                            n4("maxprot", 56),
                            n4("initprot", 60),
                            n4("nsects", 64),
                            n4("flags", 68),
                        ],
                        texts: &[text("name", Place::Fixed16(8))],
                        least: SECTIONS,
                    }
                }
            }
            Kind::Fvmlib => {
                const {
                    &Layout {
                        word: "fvmlib",
                        slots: &[n4("minor", 12), n4("vmaddr", 16)],
                        texts: &[text("name", Place::Offset(8))],
                        least: 0x14,
                    }
                }
            }
            Kind::Binding => {
                const {
                    &Layout {
                        word: "binding",
                        slots: &[n4("minor", 12), n8("vmaddr", 16)],
                        texts: &[text("name", Place::Offset(8))],
                        least: 0x18,
                    }
                }
            }
            Kind::Program1 => {
                const {
                    &Layout {
                        word: "program1",
                        slots: &[
                            n4("count", 12),
                            n8("text_addr", STATE + 0x800),
                            n4("first_task_words_less_one", STATE + 0x808),
                            n4("tasks", STATE + 0x80c),
                        ],
                        texts: &[text("name", Place::Offset(STATE + 0x82c))],
                        least: STATE + 0x850,
                    }
                }
            }
            Kind::Program4 => {
                const {
                    &Layout {
                        word: "program4",
                        slots: &[
                            n4("count", 12),
                            n8("text_addr", STATE + 0x800),
                            n4("text_words", STATE + 0x814),
                            n4("tasks", STATE + 0x820),
                            n8("bss_size", STATE + 0x848),
                        ],
                        texts: &[text("name", Place::Offset(STATE + 0x838))],
                        least: STATE + 0x860,
                    }
                }
            }
            Kind::Tensor => {
                const {
                    &Layout {
                        word: "tensor",
                        slots: &[
                            n4("count", 12),
                            n4("direction", STATE + 0x04),
                            n4("type", STATE + 0x14),
                            n4("n", STATE + 0x18),
                            n4("c", STATE + 0x1c),
                            n4("h", STATE + 0x20),
                            n4("w", STATE + 0x24),
                            n4("d", STATE + 0x28),
                            n8("batch_stride", STATE + 0x40),
                            n8("plane_stride", STATE + 0x48),
                            n8("row_stride", STATE + 0x50),
                            n8("element_size", STATE + 0x58),
                            n8("bytes", STATE + 0x60),
                            n4("interleave", STATE + 0x68),
                            n8("used", STATE + 0x70),
                        ],
                        texts: &[
                            text("procedure", Place::Offset(STATE + 0x08)),
                            text("symbol", Place::Offset(STATE + 0x10)),
                            text("name", Place::Offset(STATE + 0x6c)),
                        ],
                        least: STATE + 0x78,
                    }
                }
            }
            Kind::Ident => {
                const { &Layout { word: "ident", slots: &[], texts: &[text("text", Place::At(8))], least: 8 } }
            }
            Kind::Note => {
                const {
                    &Layout {
                        word: "note",
                        slots: &[n8("offset", 24), n8("size", 32)],
                        texts: &[text("owner", Place::Fixed16(8))],
                        least: 40,
                    }
                }
            }
            Kind::Symtab => {
                const {
                    &Layout {
                        word: "symtab",
                        slots: &[n4("symoff", 8), n4("nsyms", 12), n4("stroff", 16), n4("strsize", 20)],
                        texts: &[],
                        least: 24,
                    }
                }
            }
            Kind::Other => const { &Layout { word: "command", slots: &[], texts: &[], least: 8 } },
        }
    }
}
