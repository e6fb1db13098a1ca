//! Writes the page of a program: `cargo run -p ferrane-page --example page -- net.mlpackage m4
//! out.html`. `ferrane check --html` does the same for files of every kind.

use std::error::Error;

use ferrane_machine::Profile;
use ferrane_machine::placement::PlaceOptions;
use ferrane_mil::package::{Care, open_checked};
use ferrane_page::NetworkPage;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, machine, out] = arguments.as_slice() else { return Err("give PROGRAM MACHINE OUT.html".into()) };
    let opened = open_checked(file, Care::Text)?;
    let program = opened.program.ok_or_else(|| opened.diagnostics.render(&opened.source, false))?;
    let mut page = NetworkPage::new(file, &program);
    page.diagnostics = Some(&opened.diagnostics);
    page.examine(&Profile::find(machine)?, &Default::default(), &PlaceOptions::default());
    std::fs::write(out, page.html())?;
    Ok(())
}
