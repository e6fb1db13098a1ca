//! Networks, training runs and measurements as HTML pages, each in one file.
//!
//! A network's page is for the question why a model is not on the Neural Engine.
//! [`NetworkPage`] collects what is known about a program: findings, placements, predicted costs,
//! errors of an audit. [`NetworkPage::html`] writes a page that shows it on the graph of the
//! program, and next to it what stands in the way, grouped by cause, and what to change first.
//! [`NetworkPage::json`] is the data that it shows. [`RunPage`] is a training run, with its curves;
//! [`PlotPage`] shows measurements of one or several sources as plots and tables.
//! A page loads nothing, and its policy (`Content-Security-Policy`) allows only its own script and
//! style, by their hashes.
//!
//! ```
//! use ferrane_machine::Profile;
//! use ferrane_machine::placement::PlaceOptions;
//! use ferrane_mil::{Builder, DataType, Opset, Type};
//! use ferrane_page::NetworkPage;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut b = Builder::new("main", Opset::IOS18);
//! let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 64, 1, 64]))?;
//! let y = b.op("tan", "y", [("x", x.into())])?;
//! let program = b.finish(&[("y", y)])?;
//!
//! let mut page = NetworkPage::new("net.mil", &program);
//! let profile = Profile::find("m4-macos15-coreml")?;
//! page.examine(&profile, &Default::default(), &PlaceOptions::default());
//! assert!(page.html().starts_with("<!DOCTYPE html>"));
//! assert_eq!(page.json()["summary"]["off_engine"], 1);
//! # Ok(())
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | `graph` | blocks as graphs |
//! | `layout` | where their nodes are drawn |
//! | `data` | nodes, findings and totals as JSON |
//! | `causes` | what stands in the way, and what to change first |
//! | `run` | training runs |
//! | `plots` | measurements |
//! | `html` | the page around the data; its parts are the folder `assets` |
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod causes;
mod data;
mod graph;
mod html;
mod layout;
mod literal;
mod plots;
mod run;

pub use plots::{Plot, PlotAxis, PlotCell, PlotPage, PlotPoint, PlotSeries, PlotTable, SeriesKind};
pub use run::{Curve, Facts, PageLine, RunPage};

use std::collections::HashMap;

use ferrane_diag::{Diagnostics, Source};
use ferrane_machine::cost::{Cost, CostModel, predict_function};
use ferrane_machine::placement::{PlaceOptions, Placement, core_ml_profile, place};
use ferrane_machine::{CheckOptions, Finding, Profile, check};
use ferrane_mil::Program;

/// Functions that are placed and whose cost is predicted; a program with more is generated.
const FUNCTIONS: usize = 32;
/// Findings per rule that a page shows.
const FINDINGS: usize = 1 << 16;

/// What a page shows. Whatever is empty is left out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetworkPage<'a> {
    /// The heading, usually the name of the file.
    pub title: String,
    /// The program whose functions and nested blocks are drawn.
    pub program: &'a Program,
    /// The text that the program was read from.
    pub source: Option<&'a Source>,
    /// What the reader of the program reported.
    pub diagnostics: Option<&'a Diagnostics>,
    /// The profile of the findings, such as `m4-macos15-inmem`.
    pub machine: Option<String>,
    /// What the machine does with the program.
    pub findings: Vec<Finding>,
    /// Where the ops of functions run, at most one for each function.
    pub placements: Vec<Placement>,
    /// The predicted costs of functions, by name, or the reason why there is none.
    pub costs: HashMap<String, Result<Cost, String>>,
    /// The error of values in ulps of their largest magnitude, as an audit measured it, by the
    /// names of function and value.
    pub ulps: HashMap<(String, String), f64>,
    /// The module or the line of the source that an op was made from, by the names of function and
    /// first result.
    pub origins: HashMap<(String, String), String>,
}

impl<'a> NetworkPage<'a> {
    /// The page of a program of which nothing but its text is known.
    pub fn new(title: impl Into<String>, program: &'a Program) -> NetworkPage<'a> {
        NetworkPage {
            title: title.into(),
            program,
            source: None,
            diagnostics: None,
            machine: None,
            findings: Vec::new(),
            placements: Vec::new(),
            costs: HashMap::new(),
            ulps: HashMap::new(),
            origins: HashMap::new(),
        }
    }

    /// Checks the program for a machine, places its functions on the Core ML path of that machine,
    /// if there is one, and predicts their cost.
    pub fn examine(&mut self, profile: &Profile, checks: &CheckOptions<'_>, options: &PlaceOptions) {
        let checks = CheckOptions { limit: Some(FINDINGS), ..checks.clone() };
        self.machine = Some(profile.subject.name.clone());
        self.findings = check(self.program, profile, &checks);
        let functions = || self.program.functions.iter().take(FUNCTIONS);
        if let Ok(profile) = core_ml_profile(profile) {
            let one = |name: &String| PlaceOptions { function: Some(name.clone()), ..options.clone() };
            self.placements = functions().map(|f| place(self.program, &profile, &one(&f.name))).collect();
        }
        let cost = |f| {
            let model = CostModel::for_profile(profile).map_err(|e| e.to_string())?;
            predict_function(f, &model).map_err(|e| e.to_string())
        };
        self.costs = functions().map(|f| (f.name.clone(), cost(f))).collect();
    }
}
