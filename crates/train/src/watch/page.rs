//! A run as an HTML page.

use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use ferrane_llm::run_folder::{STATE, step_name, steps};
use ferrane_page::{Curve, Facts, PageLine, RunPage};
use serde_json::Value;

use super::{LogKind, RunView, Series, Tail};
use crate::metrics::METRICS;

/// Points of a curve, which is what the page can zoom into.
const POINTS: usize = 2000;
/// A longer `state.json` is not read: the vocabulary is most of it.
const STATE_BYTES: u64 = 64 << 20;
/// Characters of a setting's value.
const CHARACTERS: usize = 300;

/// The page of a run: its folder, or a `metrics.jsonl`. The settings are those of the newest
/// checkpoint; without one that can be read, the page has none.
///
/// # Errors
/// As [`Tail::read`].
pub fn run_page(run: &Path) -> io::Result<RunPage> {
    let folder = if run.is_dir() { run } else { run.parent().unwrap_or(Path::new("")) };
    let file = if run.is_dir() { run.join(METRICS) } else { run.to_path_buf() };
    let (mut tail, mut view) = (Tail::new(file), RunView::new());
    while tail.read(&mut view)? {}
    let mut page = view.page(&run.display().to_string());
    page.facts.extend(settings(folder));
    Ok(page)
}

impl RunView {
    /// The page of the run as of now.
    pub fn page(&self, title: &str) -> RunPage {
        let (first, last) = self.steps().unwrap_or_default();
        let curve = |panel: &str, name: &str, unit: &str, series: &Series, scale: f64| Curve {
            panel: panel.into(),
            name: name.into(),
            unit: unit.into(),
            loss: panel == "Loss",
            points: series.points(first, last, POINTS).into_iter().map(|(step, y)| (step, y * scale)).collect(),
        };
        let curves = [
            curve("Loss", "training", "", &self.loss, 1.0),
            curve("Loss", "validation", "", &self.validation, 1.0),
            curve("Gradient norm", "", "", &self.gradient_norm, 1.0),
            curve("Learning rate", "", "", &self.learning_rate, 1.0),
            curve("Tokens per second", "", "", &self.speed, 1.0),
            curve("Forward and backward passes", "", "GFLOP/s", &self.gflops, 1.0),
            curve("Busy cores", "", "", &self.cores, 1.0),
            curve("Resident memory", "", "MB", &self.resident, 1e-6),
        ];
        let power = self.power().map(|(domain, series)| curve("Power", domain.name(), "W", series, 1.0));
        let heat = curve("Highest temperature", "", "°C", &self.hottest, 1.0);
        let curves = curves.into_iter().chain(power).chain([heat]);
        let line = |line: &super::LogLine| PageLine {
            step: line.step,
            warning: line.kind == LogKind::Warning,
            text: line.text.clone(),
        };
        let mut page = RunPage::default();
        page.title = title.into();
        page.subtitle = match (self.steps(), self.planned()) {
            (None, _) => "no records yet".into(),
            (Some((_, step)), Some(planned)) => format!("update {step} of {planned}"),
            (Some((_, step)), None) => format!("update {step}"),
        };
        page.curves = curves.filter(|curve| !curve.points.is_empty()).collect();
        page.samples = self.samples().cloned().collect();
        page.times = self.times().map_or_else(Vec::new, |(whole, parts)| {
            let parts = parts.into_iter().filter(|(_, ms)| *ms > 0.0).map(|(name, ms)| (name.to_string(), ms));
            [("whole update".to_string(), whole)].into_iter().chain(parts).collect()
        });
        page.facts = vec![Facts { title: "Run".into(), rows: self.facts() }];
        let energy: Vec<_> = self.energy().sums().map(|sum| (sum.domain.name().to_string(), sum.to_string())).collect();
        page.facts.extend((!energy.is_empty()).then(|| Facts { title: "Energy".into(), rows: energy }));
        page.log = self.lines().map(line).collect();
        page
    }

    /// Names and values of what the records say about the whole run.
    fn facts(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut add = |name: &str, value: Option<String>| rows.extend(value.map(|value| (name.to_string(), value)));
        let last = self.last();
        let (here, ever) = (self.samples().len() as u64, self.samples_ever());
        add("samples", (ever > here).then(|| format!("{ever}, of which the last {here} are on this page")));
        add("updates", Some(self.records().to_string()));
        add("skipped updates", Some(self.skipped().to_string()).filter(|count| count != "0"));
        add("lines that are no records", Some(self.bad_lines().to_string()).filter(|count| count != "0"));
        add("tokens", last.map(|record| record.tokens.to_string()));
        add("mean training loss of the last updates", self.mean_loss().map(|loss| format!("{loss:.4}")));
        let (validation, best) = (self.validation.last(), self.best_validation());
        add("last validation loss", validation.map(|(step, loss)| format!("{loss:.4} after update {step}")));
        add("best validation loss", best.map(|(step, loss)| format!("{loss:.4} after update {step}")));
        add("loss scale", last.map(|record| record.loss_scale.to_string()));
        add("highest temperature", self.highest_temperature().map(|t| format!("{:.1} °C, {}", t.celsius, t.sensor)));
        let unknown = self.why_no_power().filter(|_| self.energy().sums().next().is_none());
        add("energy", unknown.map(|why| format!("unknown: {why}")));
        add("written by", Some(format!("Ferrane {}", env!("CARGO_PKG_VERSION"))));
        rows
    }
}

/// The step of the newest checkpoint of a run, and its state; `None` if it cannot be read.
pub(super) fn stored(folder: &Path) -> Option<(u64, Value)> {
    let step = steps(folder).ok()?.pop()?;
    let mut text = String::new();
    let file = fs::File::open(folder.join(step_name(step)).join(STATE)).ok()?;
    file.take(STATE_BYTES).read_to_string(&mut text).ok()?;
    Some((step, serde_json::from_str(&text).ok()?))
}

/// The settings in the newest checkpoint of a run.
fn settings(folder: &Path) -> Option<Facts> {
    let (step, state) = stored(folder)?;
    let mut rows = vec![("checkpoint".to_string(), step_name(step))];
    let seconds = state["seconds"].as_f64().map(|seconds| format!("{seconds:.1} s"));
    rows.extend(seconds.map(|seconds| ("time until it".to_string(), seconds)));
    for (name, value) in state["options"].as_object()? {
        if !value.is_null() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            rows.push((name.clone(), text.chars().take(CHARACTERS).collect()));
        }
    }
    Some(Facts { title: "Settings".into(), rows })
}

/// Why there is no page, as a clause.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no metrics.jsonl".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{PowerRecord, ProcessRecord, Record, SensorRecord};
    use ferrane_sensors::{Domain, Temperature, Unread};

    #[test]
    fn a_page_has_what_the_records_and_the_checkpoint_have() {
        let folder = tempfile::tempdir().unwrap();
        assert!(run_page(folder.path()).is_err());
        let record = |step: u64| Record {
            step,
            loss: Some(3.0 / step as f64),
            valid_loss: step.is_multiple_of(10).then_some(2.0),
            tokens: 16 * step,
            sample: (step == 20).then(|| "Once upon a time".to_string()),
            ..Record::default()
        };
        let lines: Vec<String> = (1..=30).map(|step| serde_json::to_string(&record(step)).unwrap()).collect();
        fs::write(folder.path().join(METRICS), lines.join("\n") + "\n").unwrap();
        let page = run_page(folder.path()).unwrap();
        let lengths: Vec<_> = page.curves.iter().map(|curve| (curve.panel.as_str(), curve.points.len())).collect();
        assert_eq!(lengths[..2], [("Loss", 30), ("Loss", 3)]);
        assert_eq!((page.samples.len(), page.facts.len()), (1, 1));
        let checkpoint = folder.path().join(step_name(30));
        fs::create_dir(&checkpoint).unwrap();
        for (state, tables) in [("{", 1), ("{\"options\": {\"accum\": 4, \"out\": \"run\", \"data\": null}}", 2)] {
            fs::write(checkpoint.join(STATE), state).unwrap();
            assert_eq!(run_page(&folder.path().join(METRICS)).unwrap().facts.len(), tables);
        }
        let facts = run_page(folder.path()).unwrap().facts;
        let row = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(facts[1].rows, [row("checkpoint", "step-000030"), row("accum", "4"), row("out", "run")]);
        assert!(facts[0].rows.contains(&row("tokens", "480")), "{:?}", facts[0]);
        // A page has the last samples, and says how many there were.
        let mut view = RunView::new();
        (1..=60).for_each(|step| view.sample(step, &format!("text {step}")));
        let facts = view.facts();
        assert!(facts.contains(&row("samples", "60, of which the last 50 are on this page")), "{facts:?}");
    }

    #[test]
    fn a_page_has_the_energy_or_why_it_is_unknown() {
        let read = |step: u64, sensors: SensorRecord| Record {
            step,
            process: Some(ProcessRecord { sensors: Some(sensors), ..ProcessRecord::default() }),
            ..Record::default()
        };
        let rows = |page: &RunPage| page.facts.iter().flat_map(|facts| facts.rows.clone()).collect::<Vec<_>>();
        let mut view = RunView::new();
        view.push(Record { step: 1, ..Record::default() });
        assert!(!rows(&view.page("a")).iter().any(|(name, _)| name == "energy"), "older files say nothing");
        let unread = Some(vec![Unread { what: "energy of the processor".into(), why: "no RAPL".into() }]);
        view.push(read(2, SensorRecord { unread, ..SensorRecord::default() }));
        let page = view.page("a");
        let unknown = ("energy".to_string(), "unknown: energy of the processor: no RAPL".to_string());
        assert!(rows(&page).contains(&unknown) && page.facts.len() == 1, "{page:?}");
        assert!(page.curves.iter().all(|curve| !["Power", "Highest temperature"].contains(&curve.panel.as_str())));
        let power = |domain, watts: f64| PowerRecord { domain, source: "RAPL".into(), watts, joules: 2.0 * watts };
        let power = vec![power(Domain::Package, 35.0), power(Domain::Dram, 2.5)];
        let temperatures = vec![Temperature { sensor: "Tctl".into(), celsius: 61.25 }];
        view.push(read(3, SensorRecord { seconds: 2.0, tokens: 0, power, temperatures, unread: None }));
        let page = view.page("a");
        let panels: Vec<_> =
            page.curves.iter().map(|c| (c.panel.as_str(), c.name.as_str(), c.points.clone())).collect();
        assert!(panels.contains(&("Power", "package", vec![(3.0, 35.0)])), "{panels:?}");
        assert!(panels.contains(&("Power", "dram", vec![(3.0, 2.5)])), "{panels:?}");
        assert!(panels.contains(&("Highest temperature", "", vec![(3.0, 61.25)])), "{panels:?}");
        assert_eq!(page.facts[1].title, "Energy");
        let row = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(page.facts[1].rows[1], row("package", "70.0 J in 2.0 s, 35.00 W on average, from RAPL"));
        assert!(rows(&page).contains(&row("highest temperature", "61.2 °C, Tctl")), "{page:?}");
        assert!(!rows(&page).iter().any(|(name, _)| name == "energy"), "{page:?}");
    }
}
