//! The folder of a compiled program: `model.mil`, `weights/`, `net.plist`, and `data` if there are
//! weights (apple-runtime §2).
//!
//! `net.plist` names the program and its ports as the engine's model attributes do (apple-runtime
//! §11); `data` holds the payloads of the weights in the order of the store, each at a multiple of
//! 64 bytes. A kept folder whose `net.plist` and `data` match the program proves an earlier
//! compile, so a restarted process continues where the budget of another ended.

use std::fmt::Write as _;
use std::path::Path;

use ferrane_device::staging::Staged;
use ferrane_device::{Port, Procedure, Result};
use ferrane_diag::escape_xml;
use ferrane_mil::weights::Bytes;
use ferrane_mil::{Program, WeightId, Weights, parse, print};

use super::words;

/// Alignment of payloads in `data`, in bytes.
const PAYLOAD_ALIGNMENT: usize = 64;

/// The files of one program.
pub(crate) struct Files {
    pub staged: Staged,
    /// The weight files as they were compiled.
    pub weights: Vec<(String, Bytes)>,
}

/// The files that a compile adds to a folder.
pub(super) struct Products {
    attributes: String,
    data: Vec<u8>,
}

impl Products {
    pub(super) fn new(key: &str, program: &Program, procedures: &[Procedure]) -> Products {
        Products { attributes: attributes(key, procedures), data: payloads(&program.weights) }
    }
}

impl Files {
    /// Whether the folder has the files of an earlier compile of the program.
    pub(super) fn hold(&self, products: &Products) -> Result<bool> {
        let holds = |name: &str, bytes: &[u8]| Ok(self.staged.read(name)?.is_some_and(|found| found == bytes));
        Ok(holds("net.plist", products.attributes.as_bytes())?
            && (products.data.is_empty() || holds("data", &products.data)?))
    }

    /// Writes the files of a compile.
    pub(super) fn add(&self, products: &Products) -> Result<()> {
        if !products.data.is_empty() {
            self.staged.write("data", &products.data)?;
        }
        // This file comes last: a folder that has it is complete.
        self.staged.write("net.plist", products.attributes.as_bytes())
    }

    /// Path of the folder.
    pub(super) fn folder(&self) -> &Path {
        self.staged.folder()
    }

    /// The program with the current weight files; `None` if they are unchanged.
    ///
    /// # Errors
    /// A file is missing or does not hold the program's weights: status 0x20004.
    pub(super) fn changed(&self, program: &Program) -> Result<Option<Program>> {
        let failed =
            |path: &str, why: String| words::load(words::LOAD, &format!("{}: {path}: {why}", self.folder().display()));
        let (mut weights, mut changed) = (Weights::new(), false);
        for (path, before) in &self.weights {
            let name = path.strip_prefix("@model_path/").unwrap_or(path);
            let now = self.staged.read(name).map_err(|e| failed(name, e.to_string()))?;
            let now = now.ok_or_else(|| failed(name, "the file is gone".into()))?;
            changed |= now[..] != before[..];
            weights.open_file(path, now);
        }
        if !changed {
            return Ok(None);
        }
        let read = parse(print(program), &weights);
        read.map(Some).map_err(|e| failed("weights", e.to_string()))
    }
}

/// The payloads of all weights.
fn payloads(weights: &Weights) -> Vec<u8> {
    let mut data = Vec::new();
    for bytes in (0..weights.len()).filter_map(|id| weights.bytes(WeightId(id as u32))) {
        data.resize(data.len().next_multiple_of(PAYLOAD_ALIGNMENT), 0);
        data.extend_from_slice(bytes);
    }
    data
}

/// A property list of the program's ports.
fn attributes(key: &str, procedures: &[Procedure]) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n",
    );
    let numbers = |text: &mut String, key: &str, numbers: &mut dyn Iterator<Item = u32>| {
        let items: String = numbers.map(|n| format!("<integer>{n}</integer>")).collect();
        let _ = writeln!(text, "<key>{key}</key><array>{items}</array>");
    };
    let _ = writeln!(text, "<key>hexStringIdentifier</key><string>{}</string>", escape_xml(key));
    let _ = writeln!(text, "<key>ANEFModelProcedures</key>\n<array>");
    for procedure in procedures {
        let _ =
            writeln!(text, "<dict>\n<key>ANEFModelProcedureName</key><string>{}</string>", escape_xml(&procedure.name));
        let _ = writeln!(text, "<key>ANEFModelProcedureID</key><integer>{}</integer>", procedure.id);
        numbers(&mut text, "ANEFModelInputSymbolIndexArray", &mut procedure.inputs.iter().map(|p| p.symbol));
        numbers(&mut text, "ANEFModelOutputSymbolIndexArray", &mut procedure.outputs.iter().map(|p| p.symbol));
        for (list, ports) in [("LiveInputList", &procedure.inputs), ("LiveOutputList", &procedure.outputs)] {
            let ports: String = ports.iter().map(live).collect();
            let _ = writeln!(text, "<key>{list}</key>\n<array>\n{ports}</array>");
        }
        text += "</dict>\n";
    }
    text + "</array>\n</dict>\n</plist>\n"
}

/// One port: name, type, extents and strides.
fn live(port: &Port) -> String {
    let layout = &port.layout;
    let list = |numbers: &[usize]| numbers.iter().map(|n| format!("<integer>{n}</integer>")).collect::<String>();
    format!(
        "<dict><key>Name</key><string>{}</string><key>Type</key><string>{}</string><key>Shape</key><array>{}</array>\
         <key>Strides</key><array>{}</array></dict>\n",
        escape_xml(&port.name),
        layout.dtype,
        list(&layout.shape),
        list(&layout.strides)
    )
}
