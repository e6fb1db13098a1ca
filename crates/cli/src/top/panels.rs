//! The panels of the screen of `ferrane top`.

use ferrane::sensors::{Domain, History, Interval, Load, MeasuredTime, energy_text};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};

use super::screen::TopScreen;
use crate::terminal::curves::{self, Axes, Polyline};
use crate::terminal::{self, domain_color, duration, number};

/// Below this size only a line is shown.
const SMALLEST: (u16, u16) = (40, 12);
/// From this width on, load, states and temperatures are to the right of the curves.
const WIDE: u16 = 90;
/// Least height of a curve.
const CURVE: u16 = 6;
/// Least width of a core's bar with its numbers.
const CORE: u16 = 24;

const KEYS: [(&str, &str); 5] = [
    ("p or space", "let the picture stand still, or continue; readings continue"),
    ("r", "begin mean, peak and energy again"),
    ("+ - 0", "show half of the time, twice as much, five minutes; also the arrows"),
    ("? or h", "this list"),
    ("q or Ctrl-C", "quit"),
];

impl TopScreen {
    /// Draws the history on the whole frame.
    pub fn draw(&self, live: &History, frame: &mut Frame<'_>) {
        let (history, area) = (self.shown(live), frame.area());
        let measured = history.measured();
        if terminal::is_too_small(frame, &summary(history), SMALLEST) {
            return;
        }
        let rows = [Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(rows).areas(area);
        self.head(&measured, frame, head);
        frame.render_widget(Line::from(" q quit  p pause  r reset  + - zoom  ? keys").dim(), foot);
        let wide = area.width >= WIDE;
        let sides = if wide {
            [Constraint::Fill(3), Constraint::Fill(2)]
        } else {
            [Constraint::Fill(1), Constraint::Length(0)]
        };
        let [left, right] = Layout::horizontal(sides).areas(body);
        let table = Domain::ALL.len() as u16 + 3;
        let [power, below] = Layout::vertical([Constraint::Length(table), Constraint::Fill(1)]).areas(left);
        self.power(history, &measured, frame, power);
        if wide {
            self.curves(history, frame, below);
            self.side(history.latest(), frame, right);
        } else {
            let [line, below] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(below);
            frame.render_widget(Line::from(format!(" {}", load_line(history.latest()))), line);
            // Without curves of power there is more to say about why.
            if is_metered(history) || below.height >= 3 * CURVE {
                self.curves(history, frame, below);
            } else {
                unread(history.latest(), frame, below);
            }
        }
        if self.help {
            terminal::list_of_keys(frame, area, &KEYS);
        }
    }

    fn head(&self, measured: &MeasuredTime, frame: &mut Frame<'_>, area: Rect) {
        let (state, color) = if self.is_paused() { ("paused", Color::Yellow) } else { ("live", Color::Green) };
        let mut first = Line::from(vec![
            Span::styled(" ferrane top ", Style::new().add_modifier(Modifier::REVERSED)),
            Span::raw(" "),
            Span::styled(state, Style::new().fg(color).add_modifier(Modifier::BOLD)),
            Span::raw(format!("  {} in intervals of {} s", duration(measured.mean.seconds), self.interval())),
        ]);
        if let Some(metrics) = &self.metrics {
            first.push_span(Span::raw(format!("  {metrics}")));
        }
        let sources = if self.sources.is_empty() { "none" } else { &self.sources };
        let second = Line::from(format!(" {}; sources: {sources}", self.computer)).dim();
        frame.render_widget(Paragraph::new(vec![first, second]), area);
    }

    fn power(&self, history: &History, measured: &MeasuredTime, frame: &mut Frame<'_>, area: Rect) {
        let titles = format!(" {:<8}{:>9}{:>9}{:>9}{:>11}  source", "", "now W", "mean W", "peak W", "energy");
        let mut lines = vec![Line::from(titles).dim()];
        let latest = history.latest();
        for domain in Domain::ALL {
            let name = Span::raw(format!(" {:<8}", domain.name()));
            let name = if domain == Domain::Ane { name.bold() } else { name };
            lines.push(match (latest.and_then(|i| i.power(domain)), measured.mean.power(domain)) {
                (None, None) if latest.is_none() => {
                    let wait = format!("{:>9}  the first interval takes {} s", "", self.interval());
                    Line::from(vec![name, Span::raw(wait).dim()])
                }
                (None, None) => {
                    Line::from(vec![name, format!("{:>9}", "unknown").yellow(), "  no source meters it".dim()])
                }
                (now, mean) => {
                    let watts = |watts: Option<f64>| watts.map_or_else(|| "unknown".into(), number);
                    let (mean_watts, joules) = (mean.map(|m| m.watts), mean.map(|m| energy_text(m.joules)));
                    let numbers = format!("{:>9}{:>9}", watts(mean_watts), watts(measured.peak(domain)));
                    Line::from(vec![
                        name,
                        format!("{:>9}", watts(now.map(|n| n.watts))).fg(domain_color(domain)).bold(),
                        Span::raw(numbers),
                        Span::raw(format!("{:>11}  ", joules.unwrap_or_else(|| "unknown".into()))),
                        now.or(mean).map_or("", |power| power.source).dim(),
                    ])
                }
            });
        }
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" power ")), area);
    }

    /// A curve for each domain that is metered and one for the load, as many as there is room for.
    fn curves(&self, history: &History, frame: &mut Frame<'_>, area: Rect) {
        let end = history.seconds();
        let begin = end - self.span();
        let most = curves::columns(area) / 2;
        let metered = Domain::ALL.into_iter().filter(|domain| history.watts(*domain).next().is_some());
        let mut shown: Vec<(String, Polyline<'_>, f64)> = metered
            .map(|domain| {
                let points = spread(history.watts(domain), begin, end, most);
                let most = points.iter().fold(0.0, |most: f64, (_, watts)| most.max(*watts));
                // An axis that begins at 0 shows what is much and what is little.
                let top = if most > 0.0 { 1.1 * most } else { 1.0 };
                (format!(" {}, W ", domain.name()), Polyline { name: "", color: domain_color(domain), points }, top)
            })
            .collect();
        let cores = history.latest().and_then(|i| i.load.as_ref()).map_or(0, |load| load.cores.len()) as f64;
        if history.busy().next().is_some() {
            let points = spread(history.busy().map(|(at, busy)| (at, busy * cores)), begin, end, most);
            shown.push((" busy cores ".into(), Polyline { name: "", color: Color::Green, points }, cores.max(1.0)));
        }
        let room = usize::from(area.height / CURVE).max(1);
        let columns = if shown.len() > room { 2 } else { 1 };
        shown.truncate(room * columns);
        let rows = shown.len().div_ceil(columns).max(1);
        let across = [(begin, format!("-{}", duration(self.span()))), (end, "now".to_string())];
        let places = Layout::vertical(vec![Constraint::Fill(1); rows]).split(area);
        let places = places.iter().zip(shown.chunks(columns)).flat_map(|(row, shown)| {
            let cells = Layout::horizontal(vec![Constraint::Fill(1); shown.len()]).split(*row);
            cells.iter().copied().zip(shown).collect::<Vec<_>>()
        });
        for (place, (title, line, top)) in places {
            let axes = Axes { across: across.clone(), up: Some([0.0, *top]) };
            curves::draw_lines(frame, place, title.as_str().into(), std::slice::from_ref(line), axes);
        }
    }

    /// Load, memory, states, temperatures and what is unknown, from top to bottom.
    fn side(&self, latest: Option<&Interval>, frame: &mut Frame<'_>, area: Rect) {
        let load = latest.and_then(|interval| interval.load.as_ref());
        let states = latest.map_or_else(Vec::new, |interval| states(interval, area.width));
        let temperatures = latest.map_or(&[][..], |interval| &interval.temperatures);
        let cores = load.map_or(1, |load| load.cores.len());
        let lines = |count: usize| Constraint::Max(count.clamp(1, 40) as u16 + 2);
        let columns = usize::from((area.width.saturating_sub(2) / CORE).max(1));
        let rows = [
            lines(cores.div_ceil(if cores > 8 { columns } else { 1 })),
            Constraint::Max(4),
            lines(states.len()),
            lines(temperatures.len()),
            Constraint::Min(3),
        ];
        let [load_area, memory, states_area, temperatures_area, unread_area] = Layout::vertical(rows).areas(area);
        cores_panel(load, frame, load_area);
        memory_panel(load, frame, memory);
        panel(frame, states_area, " states ", states, "unknown: no source reports any");
        let hot = temperatures.iter().map(|t| Line::from(format!("{:>6.1} °C  {}", t.celsius, t.sensor))).collect();
        panel(frame, temperatures_area, " temperatures ", hot, "unknown: the system reports none");
        unread(latest, frame, unread_area);
    }
}

/// Whether any domain is metered.
fn is_metered(history: &History) -> bool {
    Domain::ALL.into_iter().any(|domain| history.watts(domain).next().is_some())
}

/// Points from `begin` to `end`, at most one for each of `most` equal parts of that time: the mean
/// of its values. The parts keep their place as time passes, so that a curve does not flicker.
fn spread(values: impl Iterator<Item = (f64, f64)>, begin: f64, end: f64, most: usize) -> Vec<(f64, f64)> {
    let part = (end - begin) / most.max(1) as f64;
    let mut points: Vec<(i64, f64, f64, f64)> = Vec::new();
    for (at, value) in values.filter(|(at, _)| *at >= begin) {
        let index = (at / part.max(1e-9)).floor() as i64;
        match points.last_mut() {
            Some((last, time, sum, count)) if *last == index => {
                (*time, *sum, *count) = (*time + at, *sum + value, *count + 1.0);
            }
            _ => points.push((index, at, value, 1.0)),
        }
    }
    points.into_iter().map(|(_, time, sum, count)| (time / count, sum / count)).collect()
}

/// A bar of a share of the room, and the room that is left as spaces.
fn bar(share: f64, room: usize) -> String {
    let full = ((share.clamp(0.0, 1.0) * room as f64).round() as usize).min(room);
    "█".repeat(full) + &" ".repeat(room - full)
}

/// The power of the engine and the load, for a terminal without room.
fn summary(history: &History) -> String {
    let power = history.latest().and_then(|interval| interval.power(Domain::Ane));
    let ane = power.map_or_else(|| "unknown".into(), |power| format!("{} W", number(power.watts)));
    format!("ane {ane}, {}", load_line(history.latest()))
}

fn load_line(latest: Option<&Interval>) -> String {
    match latest.and_then(|interval| interval.load.as_ref()) {
        Some(load) => {
            let (cores, gb) = (load.cores.len(), |bytes: u64| bytes as f64 / 1e9);
            let busy = load.busy() * cores as f64;
            format!(
                "{busy:.2} of {cores} cores busy, {:.1} of {:.1} GB in use",
                gb(load.memory_used),
                gb(load.memory_total)
            )
        }
        None => "load unknown".to_string(),
    }
}

fn panel<'a>(frame: &mut Frame<'_>, area: Rect, title: &str, mut lines: Vec<Line<'a>>, empty: &'a str) {
    let room = usize::from(area.height.saturating_sub(2));
    if lines.is_empty() {
        lines.push(Line::from(empty).dim());
    } else if lines.len() > room && room > 0 {
        let more = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(Line::from(format!("{more} more")).dim());
    }
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

fn cores_panel(load: Option<&Load>, frame: &mut Frame<'_>, area: Rect) {
    let Some(load) = load else {
        panel(frame, area, " cores ", Vec::new(), "unknown");
        return;
    };
    let (room, width) = (usize::from(area.height.saturating_sub(2)).max(1), usize::from(area.width.saturating_sub(2)));
    let columns = load.cores.len().div_ceil(room).min((width / usize::from(CORE)).max(1)).max(1);
    let rows = load.cores.len().div_ceil(columns);
    let bars = (width / columns).saturating_sub(20);
    let lines = (0..rows).map(|row| {
        let mut line = Line::default();
        for (number, core) in load.cores.iter().enumerate().skip(row).step_by(rows) {
            let mhz = core.mhz.map_or_else(|| format!("{:>9}", ""), |mhz| format!("{mhz:>5} MHz"));
            line.push_span(Span::raw(format!("{number:>3} {:>3.0} % ", 100.0 * core.busy)));
            line.push_span(bar(core.busy, bars).green());
            line.push_span(Span::raw(mhz).dim());
            line.push_span(" ");
        }
        line
    });
    let title = format!(" cores, {:.2} of {} busy ", load.busy() * load.cores.len() as f64, load.cores.len());
    panel(frame, area, &title, lines.collect(), "none");
}

fn memory_panel(load: Option<&Load>, frame: &mut Frame<'_>, area: Rect) {
    let lines = load.map_or_else(Vec::new, |load| {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let share = load.memory_used as f64 / load.memory_total.max(1) as f64;
        let text =
            format!("{:>7.2} of {:.2} GB  {:>3.0} % ", gb(load.memory_used), gb(load.memory_total), 100.0 * share);
        let room = usize::from(area.width.saturating_sub(2)).saturating_sub(text.chars().count());
        vec![
            Line::from(vec![Span::raw(text), bar(share, room).green()]),
            Line::from(format!("{:>7.2} GB of swap space in use", gb(load.swap_used))),
        ]
    });
    panel(frame, area, " memory ", lines, "unknown");
}

/// A bar for each state in which a unit spent time.
fn states(interval: &Interval, width: u16) -> Vec<Line<'static>> {
    let room = usize::from(width.saturating_sub(2)).saturating_sub(26);
    let mut lines = Vec::new();
    for shares in &interval.shares {
        let mut unit = shares.unit.as_str();
        let visible = shares.states.iter().filter(|(_, share)| *share >= 0.005);
        for (state, share) in visible {
            lines.push(Line::from(vec![
                Span::raw(format!("{unit:<8.8} {state:<9.9} {:>4.0} % ", 100.0 * share)),
                bar(*share, room).cyan(),
            ]));
            unit = "";
        }
        if !unit.is_empty() {
            lines.push(Line::from(format!("{unit:<8.8} no time was counted")));
        }
    }
    lines
}

/// What cannot be read, with the reasons.
fn unread(latest: Option<&Interval>, frame: &mut Frame<'_>, area: Rect) {
    let lines = latest.map_or_else(Vec::new, |interval| {
        let line =
            |u: &ferrane::sensors::Unread| Line::from(vec![u.what.clone().yellow(), format!(": {}", u.why).into()]);
        interval.unread.iter().map(line).collect()
    });
    let lines = if lines.is_empty() { vec![Line::from("nothing").dim()] } else { lines };
    let paragraph = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(paragraph.block(Block::bordered().title(" not read ")), area);
}
