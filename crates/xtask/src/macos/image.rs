//! What a Mach-O file asks of the system that runs it: load commands, libraries, imported symbols,
//! signature.

use std::collections::BTreeMap;

use object::macho::{self, MachHeader64};
use object::read::macho::{CodeDirectory, LoadCommandVariant, MachHeader, MachOFile64};
use object::{BigEndian, LittleEndian, NameOrOrdinal, Object};
use sha2::{Digest, Sha256};

use crate::workspace::Result;

/// One executable or shared library for arm64.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// The load commands in order: the name of each, then what it names, if anything.
    pub(super) commands: Vec<String>,
    /// The name that a library is looked up by; `None` for an executable.
    pub(super) install_name: Option<String>,
    /// The libraries that are loaded with it, in order.
    pub(super) libraries: Vec<String>,
    /// The imported symbols, by the library that each is taken from; under "" those that are looked
    /// up in every library.
    pub(super) imports: BTreeMap<String, Vec<String>>,
    /// The exported symbols, each with its leading underscore.
    pub(super) exports: Vec<String>,
    /// Each symbol is looked up in its library only.
    pub(super) two_level: bool,
    /// The version of the oldest system that the file declares to run on.
    pub(super) minimum: Option<String>,
    /// The signature, which macOS demands on arm64.
    pub(super) signature: Option<Signature>,
}

/// The code signature, as far as the rules read it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Signature {
    /// Made without a certificate, as linkers do.
    pub(super) ad_hoc: bool,
    /// Every page has the hash that is written for it.
    pub(super) intact: bool,
}

impl Image {
    /// Reads a whole file.
    pub(super) fn parse(data: &[u8]) -> Result<Self> {
        let wrong = |e: object::Error| format!("not a Mach-O file that can be read: {e}");
        let file = MachOFile64::<LittleEndian>::parse(data).map_err(wrong)?;
        let header: &MachHeader64<LittleEndian> = file.macho_header();
        if header.cputype(LittleEndian) != macho::CPU_TYPE_ARM64 {
            return Err("not a file for arm64".to_owned());
        }
        let mut image = Self {
            commands: Vec::new(),
            install_name: None,
            libraries: Vec::new(),
            imports: BTreeMap::new(),
            exports: Vec::new(),
            two_level: header.flags(LittleEndian).contains(macho::MH_TWOLEVEL),
            minimum: None,
            signature: None,
        };
        let mut commands = file.macho_load_commands().map_err(wrong)?;
        while let Some(command) = commands.next().map_err(wrong)? {
            let told = |name| command.string(LittleEndian, name).map(text).map_err(wrong);
            let named = match command.variant().map_err(wrong)? {
                LoadCommandVariant::Segment64(segment, _) => {
                    text(segment.segname.split(|b| *b == 0).next().unwrap_or_default())
                }
                LoadCommandVariant::Dylib(library) => {
                    let name = told(library.dylib.name)?;
                    image.libraries.push(name.clone());
                    name
                }
                LoadCommandVariant::IdDylib(library) => {
                    let name = told(library.dylib.name)?;
                    image.install_name = Some(name.clone());
                    name
                }
                LoadCommandVariant::LoadDylinker(linker) => told(linker.name)?,
                LoadCommandVariant::Rpath(path) => told(path.path)?,
                LoadCommandVariant::BuildVersion(build, _) => {
                    let packed = build.minos.get(LittleEndian).0;
                    let minimum = format!("{}.{}", packed >> 16, packed >> 8 & 0xff);
                    let system = build.platform.get(LittleEndian);
                    image.minimum = (system == macho::PLATFORM_MACOS).then(|| minimum.clone());
                    format!("{}, from {minimum}", system.name().unwrap_or("unknown system"))
                }
                LoadCommandVariant::LinkeditData(linked) if command.cmd() == macho::LC_CODE_SIGNATURE => {
                    let signature = linked.code_signature(LittleEndian, data).map_err(wrong)?;
                    for blob in signature.blobs() {
                        if let Some(directory) = blob.map_err(wrong)?.code_directory().map_err(wrong)? {
                            image.signature = Some(Signature::of(&directory, data));
                        }
                    }
                    String::new()
                }
                _ => String::new(),
            };
            let name = command.cmd().name().map_or_else(|| format!("{:#x}", command.cmd()), str::to_owned);
            image.commands.push(format!("{name} {named}").trim_end().to_owned());
        }
        for import in file.imports().map_err(wrong)? {
            let import = import.map_err(wrong)?;
            let NameOrOrdinal::Name(name) = import.name() else { return Err("an import has no name".to_owned()) };
            image.imports.entry(text(import.library())).or_default().push(text(name));
        }
        for symbols in image.imports.values_mut() {
            symbols.sort_unstable();
            symbols.dedup();
        }
        for export in file.exports().map_err(wrong)? {
            let export = export.map_err(wrong)?;
            if let NameOrOrdinal::Name(name) = export.name() {
                image.exports.push(text(name));
            }
        }
        image.exports.sort_unstable();
        Ok(image)
    }
}

impl Signature {
    fn of(directory: &CodeDirectory<'_>, data: &[u8]) -> Self {
        let header = directory.header();
        let covered = usize::try_from(directory.code_limit()).ok().and_then(|limit| data.get(..limit));
        let page = 1_usize.checked_shl(header.page_size.into()).unwrap_or(0);
        let hashed = |covered: &[u8]| {
            covered.len().div_ceil(page) == header.n_code_slots.get(BigEndian) as usize
                && (0..)
                    .zip(covered.chunks(page))
                    .all(|(slot, page)| directory.code_hash(slot) == Ok(&Sha256::digest(page)))
        };
        Self {
            ad_hoc: header.flags.get(BigEndian).contains(macho::CS_ADHOC),
            intact: header.hash_type == macho::CS_HASHTYPE_SHA256 && page > 1 && covered.is_some_and(hashed),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
