//! A training run as a page.

use serde_json::{Value, json};

use crate::html;

const PAGE: &str = include_str!("../assets/run.html");
const STYLE: &str = include_str!("../assets/run.css");
const SCRIPT: &str = include_str!("../assets/run.js");

/// What the page of a training run shows: curves over updates that can be zoomed into, texts by the
/// model, the parts of an update's time, facts, a log. Whatever is empty is left out.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RunPage {
    /// The heading, usually the name of the run.
    pub title: String,
    /// A few words next to it.
    pub subtitle: String,
    /// The curves, those of one panel together.
    pub curves: Vec<Curve>,
    /// Texts by the model, with the number of updates before them.
    pub samples: Vec<(u64, String)>,
    /// Milliseconds of the parts of an update.
    pub times: Vec<(String, f64)>,
    /// Tables of names and values.
    pub facts: Vec<Facts>,
    /// What happened, with the number of updates before it.
    pub log: Vec<PageLine>,
}

/// A curve over updates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The heading of its panel; curves with the same one are drawn together.
    pub panel: String,
    /// Its name in the panel; empty if it is alone.
    pub name: String,
    /// The unit of its values; empty for numbers.
    pub unit: String,
    /// Whether its axis may be logarithmic.
    pub loss: bool,
    /// Updates in ascending order, and finite values.
    pub points: Vec<(f64, f64)>,
}

/// A table of names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The heading, one or two words.
    pub title: String,
    /// Names with their values, which have units where they need them.
    pub rows: Vec<(String, String)>,
}

/// A line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageLine {
    /// Number of updates done.
    pub step: u64,
    /// Whether something went wrong.
    pub warning: bool,
    /// What happened, without a full stop.
    pub text: String,
}

/// A number with six digits: more are not seen, and take half of the page.
fn rounded(x: f64) -> f64 {
    format!("{x:.5e}").parse().unwrap_or(x)
}

impl RunPage {
    /// The data of the page.
    pub fn json(&self) -> Value {
        let curve = |c: &Curve| {
            let points: Vec<[f64; 2]> = c.points.iter().map(|(step, y)| [*step, rounded(*y)]).collect();
            json!({"panel": c.panel, "name": c.name, "unit": c.unit, "loss": c.loss, "points": points})
        };
        let line =
            |l: &PageLine| json!({"step": l.step, "kind": if l.warning { "warning" } else { "note" }, "text": l.text});
        json!({
            "title": self.title,
            "subtitle": self.subtitle,
            "curves": self.curves.iter().map(curve).collect::<Vec<_>>(),
            "samples": self.samples.iter().map(|(step, text)| json!({"step": step, "text": text})).collect::<Vec<_>>(),
            "times": self.times.iter().map(|(name, ms)| json!({"name": name, "ms": rounded(*ms)})).collect::<Vec<_>>(),
            "facts": self.facts.iter().map(|f| json!({"title": f.title, "rows": f.rows})).collect::<Vec<_>>(),
            "log": self.log.iter().map(line).collect::<Vec<_>>(),
        })
    }

    /// The page, complete HTML. It loads nothing, and its policy allows only its own script and
    /// style.
    pub fn html(&self) -> String {
        html::fill(PAGE, STYLE, SCRIPT, &self.title, &self.json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_into_elements() {
        html::check_parts(PAGE, STYLE, &[SCRIPT]);
    }

    #[test]
    fn names_stay_in_their_place() {
        let hostile = "</script><script>alert(1)</script><b title=\"x\">&{{data}}";
        let mut page = RunPage { title: hostile.into(), subtitle: hostile.into(), ..RunPage::default() };
        page.samples.push((1, hostile.into()));
        page.facts.push(Facts { title: hostile.into(), rows: vec![(hostile.into(), hostile.into())] });
        page.log.push(PageLine { step: 1, warning: true, text: hostile.into() });
        let points = vec![(1.0, 1.0 / 3.0), (2.0, 1e-300)];
        page.curves.push(Curve { panel: hostile.into(), points, ..Curve::default() });
        let html = page.html();
        assert_eq!((html.matches("<script").count(), html.matches("</script").count()), (2, 2));
        assert!(!html.contains("<b title"), "a name became an element");
        let data = html.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&data["log"][0]["text"], &data["curves"][0]["points"][0][1]), (&json!(hostile), &json!(0.333333)));
    }
}
