//! The fields of load commands, as data: reading, writing and the text form are driven by these
//! lists.

/// A numeric field of a command.
pub(crate) struct NumberField {
    /// The name, in code and in the text form.
    pub name: &'static str,
    /// The byte where it begins in the command.
    pub at: usize,
    /// The width in bytes: 4 or 8.
    pub width: usize,
}

/// A string field of a command.
pub(crate) struct StringField {
    /// The name, in code and in the text form.
    pub name: &'static str,
    /// How the string is located.
    pub place: StringPlace,
}

/// How a string of a command is located.
pub(crate) enum StringPlace {
    /// Sixteen bytes at this byte of the command, padded with zeros.
    Fixed16(usize),
    /// From this byte to the first zero.
    At(usize),
    /// From the offset in the u32 at this byte, to the first zero.
    Offset(usize),
}

/// The kind of a load command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandKind {
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
    /// Any other command; its bytes are kept.
    Other,
}

/// The fields of one kind of command.
pub(crate) struct CommandLayout {
    /// The keyword in the text form.
    pub word: &'static str,
    pub slots: &'static [NumberField],
    pub texts: &'static [StringField],
    /// The smallest size of such a command, in bytes.
    pub least: usize,
}

const fn n4(name: &'static str, at: usize) -> NumberField {
    NumberField { name, at, width: 4 }
}

const fn n8(name: &'static str, at: usize) -> NumberField {
    NumberField { name, at, width: 8 }
}

const fn text(name: &'static str, place: StringPlace) -> StringField {
    StringField { name, place }
}

/// The byte where the state of a thread begins in its command.
pub(crate) const STATE: usize = 16;

/// The byte where the sections of a segment begin.
pub(crate) const SECTIONS: usize = 72;
/// The size of a section entry in bytes.
pub(crate) const SECTION: usize = 80;

/// The number of base addresses of a program, a u64 each.
pub(crate) const BARS: usize = 256;

pub(crate) const SECTION_SLOTS: &[NumberField] = &[
    n8("addr", 32),
    n8("size", 40),
    n4("offset", 48),
    n4("align", 52),
    n4("reloff", 56),
    n4("nreloc", 60),
    n4("flags", 64),
];

impl CommandKind {
    /// Every kind, in declaration order.
    pub const ALL: [CommandKind; 10] = [
        CommandKind::Segment,
        CommandKind::Fvmlib,
        CommandKind::Binding,
        CommandKind::Program1,
        CommandKind::Program4,
        CommandKind::Tensor,
        CommandKind::Ident,
        CommandKind::Note,
        CommandKind::Symtab,
        CommandKind::Other,
    ];

    /// The kind for a command number and, for threads, a flavor.
    pub fn of(cmd: u32, flavor: Option<u32>) -> CommandKind {
        match (cmd, flavor) {
            (0x19, _) => CommandKind::Segment,
            (0x06, _) => CommandKind::Fvmlib,
            (0x40, _) => CommandKind::Binding,
            (0x04, Some(1)) => CommandKind::Program1,
            (0x04, Some(4)) => CommandKind::Program4,
            (0x04, Some(3)) => CommandKind::Tensor,
            (0x08, _) => CommandKind::Ident,
            (0x31, _) => CommandKind::Note,
            (0x02, _) => CommandKind::Symtab,
            _ => CommandKind::Other,
        }
    }

    /// The command number and, for threads, the flavor; `None` for [`CommandKind::Other`].
    pub fn number(self) -> Option<(u32, Option<u32>)> {
        Some(match self {
            CommandKind::Segment => (0x19, None),
            CommandKind::Fvmlib => (0x06, None),
            CommandKind::Binding => (0x40, None),
            CommandKind::Program1 => (0x04, Some(1)),
            CommandKind::Program4 => (0x04, Some(4)),
            CommandKind::Tensor => (0x04, Some(3)),
            CommandKind::Ident => (0x08, None),
            CommandKind::Note => (0x31, None),
            CommandKind::Symtab => (0x02, None),
            CommandKind::Other => return None,
        })
    }

    /// The keyword in the text form.
    pub fn word(self) -> &'static str {
        self.layout().word
    }

    // table
    pub(crate) fn layout(self) -> &'static CommandLayout {
        match self {
            CommandKind::Segment => {
                const {
                    &CommandLayout {
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
                        texts: &[text("name", StringPlace::Fixed16(8))],
                        least: SECTIONS,
                    }
                }
            }
            CommandKind::Fvmlib => {
                const {
                    &CommandLayout {
                        word: "fvmlib",
                        slots: &[n4("minor", 12), n4("vmaddr", 16)],
                        texts: &[text("name", StringPlace::Offset(8))],
                        least: 0x14,
                    }
                }
            }
            CommandKind::Binding => {
                const {
                    &CommandLayout {
                        word: "binding",
                        slots: &[n4("minor", 12), n8("vmaddr", 16)],
                        texts: &[text("name", StringPlace::Offset(8))],
                        least: 0x18,
                    }
                }
            }
            CommandKind::Program1 => {
                const {
                    &CommandLayout {
                        word: "program1",
                        slots: &[
                            n4("count", 12),
                            n8("text_addr", STATE + 0x800),
                            n4("first_task_words_less_one", STATE + 0x808),
                            n4("tasks", STATE + 0x80c),
                        ],
                        texts: &[text("name", StringPlace::Offset(STATE + 0x82c))],
                        least: STATE + 0x850,
                    }
                }
            }
            CommandKind::Program4 => {
                const {
                    &CommandLayout {
                        word: "program4",
                        slots: &[
                            n4("count", 12),
                            n8("text_addr", STATE + 0x800),
                            n4("text_words", STATE + 0x814),
                            n4("tasks", STATE + 0x820),
                            n8("bss_size", STATE + 0x848),
                        ],
                        texts: &[text("name", StringPlace::Offset(STATE + 0x838))],
                        least: STATE + 0x860,
                    }
                }
            }
            CommandKind::Tensor => {
                const {
                    &CommandLayout {
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
                            text("procedure", StringPlace::Offset(STATE + 0x08)),
                            text("symbol", StringPlace::Offset(STATE + 0x10)),
                            text("name", StringPlace::Offset(STATE + 0x6c)),
                        ],
                        least: STATE + 0x78,
                    }
                }
            }
            CommandKind::Ident => {
                const { &CommandLayout { word: "ident", slots: &[], texts: &[text("text", StringPlace::At(8))], least: 8 } }
            }
            CommandKind::Note => {
                const {
                    &CommandLayout {
                        word: "note",
                        slots: &[n8("offset", 24), n8("size", 32)],
                        texts: &[text("owner", StringPlace::Fixed16(8))],
                        least: 40,
                    }
                }
            }
            CommandKind::Symtab => {
                const {
                    &CommandLayout {
                        word: "symtab",
                        slots: &[n4("symoff", 8), n4("nsyms", 12), n4("stroff", 16), n4("strsize", 20)],
                        texts: &[],
                        least: 24,
                    }
                }
            }
            CommandKind::Other => const { &CommandLayout { word: "command", slots: &[], texts: &[], least: 8 } },
        }
    }
}
