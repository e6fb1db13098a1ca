//! The panels of a screen.

use ferrane::sensors::energy_text;
use ferrane::train::watch::{LogKind, RunView, Series};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};

use super::screen::{RunState, Screen};
use crate::terminal::curves::{self, Curve};
use crate::terminal::{self, count, domain_color, duration, number};

/// Below this size only a line is shown.
const SMALLEST: (u16, u16) = (40, 12);
/// From this width on, numbers are to the right of the curves.
const WIDE: u16 = 90;
/// From this height on, all panels are shown.
const TALL: u16 = 28;

/// From this height on, a narrow screen or one that is not tall has lines of power.
const LINES: u16 = 16;
/// Most lines of a reason why the power is unknown.
const REASON: usize = 5;
/// Lines that the other panels of a column need before a reason gets more than one.
const OTHERS: u16 = 17;
/// Widths of the columns of these lines: the name, the value, the energy, and that of a token.
const COLUMNS: [usize; 4] = [9, 10, 11, 17];

/// Width of the names of numbers.
const NAME: usize = 14;

/// The keys, with what they do and whether they need a run of this process.
const KEYS: [(&str, &str, bool); 9] = [
    ("p or space", "pause, or continue", true),
    ("c", "write a checkpoint of the last update", true),
    ("s", "have the model write a text", true),
    ("+ - 0", "show fewer updates, more, all; also the arrows to the right and left", false),
    ("up, down", "scroll the log; also Page Up, Page Down, Home, End", false),
    ("[ ]", "the text before, the next one", false),
    ("? or h", "this list", false),
    ("q or Ctrl-C", "quit; a run saves a checkpoint first", false),
    ("q twice", "quit at once; a run loses what followed its last checkpoint", true),
];

impl Screen {
    /// Draws the run on the whole frame.
    pub fn draw(&mut self, view: &RunView, frame: &mut Frame<'_>) {
        let area = frame.area();
        self.keep_place(view);
        if terminal::is_too_small(frame, &progress(view), SMALLEST) {
            return;
        }
        let rows = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(rows).areas(area);
        self.head(view, frame, head);
        let (wide, tall) = (area.width >= WIDE, area.height >= TALL);
        self.foot(frame, foot, tall);
        let [upper, lower] =
            Layout::vertical([Constraint::Fill(7), Constraint::Fill(if tall { 3 } else { 0 })]).areas(body);
        if tall {
            let [log, sample] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(lower);
            self.log(view, frame, log);
            self.sample(view, frame, sample);
        }
        let sides =
            if wide { [Constraint::Fill(3), Constraint::Fill(2)] } else { [Constraint::Fill(1), Constraint::Fill(0)] };
        let [left, right] = Layout::horizontal(sides).areas(upper);
        if wide {
            let lines = self.process_lines(view, right, tall);
            let height = if lines.is_empty() && tall { 7 } else { with_border(&lines) };
            let rows = [Constraint::Length(11), Constraint::Fill(1), Constraint::Length(height)];
            let [numbers, times, process] = Layout::vertical(rows).areas(right);
            self.numbers(view, frame, numbers);
            self.times(view, frame, times);
            if !lines.is_empty() {
                draw_process(lines, tall, frame, process);
            } else if tall {
                self.process(view, frame, process);
            }
            self.curves(view, frame, left, tall);
        } else {
            let lines = self.process_lines(view, left, false);
            let height = if left.height < LINES { 6 } else { 7 };
            let rows = [Constraint::Fill(1), Constraint::Length(height), Constraint::Length(with_border(&lines))];
            let [curves, numbers, process] = Layout::vertical(rows).areas(left);
            self.curves(view, frame, curves, tall);
            self.numbers(view, frame, numbers);
            draw_process(lines, false, frame, process);
        }
        if self.help {
            self.list_of_keys(frame, area);
        }
    }

    fn head(&self, view: &RunView, frame: &mut Frame<'_>, area: Rect) {
        let (state, color) = match &self.state {
            RunState::Running => ("training".to_string(), Color::Green),
            RunState::Paused => ("paused".to_string(), Color::Yellow),
            RunState::Stopping => ("stopping after this micro-step".to_string(), Color::Yellow),
            RunState::Reading => ("reading".to_string(), Color::Cyan),
            RunState::Missing(reason) => (reason.clone(), Color::Red),
            RunState::Complete => ("complete".to_string(), Color::Green),
            RunState::Unchanged(time) if time.as_secs() >= 30 => {
                (format!("no new update for {}", duration(time.as_secs_f64())), Color::Yellow)
            }
            RunState::Unchanged(_) => ("training".to_string(), Color::Green),
            RunState::Unknown => ("not complete".to_string(), Color::Cyan),
        };
        let mut line = Line::from(vec![
            Span::styled(format!(" {} ", self.title), Style::new().add_modifier(Modifier::REVERSED)),
            Span::raw(" "),
            Span::styled(state, Style::new().fg(color).add_modifier(Modifier::BOLD)),
            Span::raw(format!("  {}", progress(view))),
        ]);
        if let Some((done, of)) = self.windows.filter(|(_, of)| *of > 1) {
            line.push_span(Span::raw(format!("  window {done}/{of}")).dim());
        }
        if let Some(left) = view.seconds_left().filter(|_| !view.is_complete()) {
            line.push_span(Span::raw(format!("  {} left", duration(left))));
        }
        if view.bad_lines() > 0 {
            line.push_span(Span::raw(format!("  {} lines are no records", view.bad_lines())).red());
        }
        frame.render_widget(line, area);
    }

    /// The keys of what is shown: a screen that is not tall has neither the log nor the samples.
    fn foot(&self, frame: &mut Frame<'_>, area: Rect, tall: bool) {
        let run = if self.controls { "  p pause  c checkpoint  s sample" } else { "" };
        let lists = match (self.controls, tall) {
            (true, true) => "  up/down log",
            (false, true) => "  up/down log  [ ] samples",
            (_, false) => "",
        };
        let keys = match &self.answer {
            Some(answer) => Line::from(format!(" {answer}")).yellow(),
            None => Line::from(format!(" q quit{run}  + - zoom{lists}  ? keys")).dim(),
        };
        frame.render_widget(keys, area);
    }

    fn curves(&self, view: &RunView, frame: &mut Frame<'_>, area: Rect, tall: bool) {
        let (first, last) = self.shown(view);
        let [loss, below] =
            Layout::vertical([Constraint::Fill(5), Constraint::Fill(if tall { 3 } else { 0 })]).areas(area);
        let title = match view.steps() {
            Some((begin, _)) if begin < first => format!(" loss, updates {first} to {last} "),
            _ => " loss ".to_string(),
        };
        let training = Curve { name: "training", color: Color::Cyan, series: &view.loss, unit: 1.0 };
        let validation = Curve { name: "validation", color: Color::Yellow, series: &view.validation, unit: 1.0 };
        // A small chart has no legend.
        let names = [&training, &validation].map(|curve| Span::raw(format!("{} ", curve.name)).fg(curve.color));
        let title = Line::from_iter([Span::raw(title)].into_iter().chain(names));
        curves::draw(frame, loss, title, &[training, validation], first, last);
        if !tall {
            return;
        }
        let [norm, rate] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(below);
        let one = |name, color, series| [Curve { name, color, series, unit: 1.0 }];
        let curve = one("gradient norm", Color::Magenta, &view.gradient_norm);
        curves::draw(frame, norm, " gradient norm ".into(), &curve, first, last);
        let curve = one("learning rate", Color::Blue, &view.learning_rate);
        curves::draw(frame, rate, " learning rate ".into(), &curve, first, last);
    }

    fn numbers(&self, view: &RunView, frame: &mut Frame<'_>, area: Rect) {
        let rows = area.height.saturating_sub(2);
        let room = usize::from(area.width.saturating_sub(2)).saturating_sub(NAME);
        let mut lines: Vec<Line<'_>> = Vec::new();
        let mut row = |name: &'static str, value: String| {
            lines.push(Line::from(vec![Span::raw(format!("{name:<NAME$}")).dim(), Span::raw(value)]));
        };
        if let Some(record) = view.last() {
            let loss = record.loss.map_or("not finite".into(), |loss| format!("{loss:.4}"));
            row("loss", view.mean_loss().map_or(loss.clone(), |mean| format!("{loss}, mean {mean:.4}")));
            if let (Some((_, last)), Some((step, best))) = (view.validation.last(), view.best_validation()) {
                row(
                    "validation",
                    fitting(format!("{last:.4}, best {best:.4}"), &format!(" after update {step}"), room),
                );
            }
            let tokens = record.tokens as f64;
            row("tokens", format!("{}, {} a second", count(tokens), count(record.tokens_per_second)));
            if let Some((_, gflops)) = view.gflops.last() {
                let now = number(gflops);
                row(
                    "GFLOP/s",
                    self.peak.as_ref().map_or(now.clone(), |(name, peak)| {
                        let share = format!("{now}, {:.1} % of {name}", 100.0 * gflops / peak);
                        fitting(share, &format!(", whose peak is {}", number(*peak)), room)
                    }),
                );
            }
            let norm = record.grad_norm.map_or("not finite".into(), number);
            if rows < 7 {
                row("gradient norm", format!("{norm}, learning rate {:.2e}", record.lr));
            } else {
                row("gradient norm", norm);
                row("learning rate", format!("{:.2e}", record.lr));
            }
            row("loss scale", number(record.loss_scale));
            row("skipped", format!("{} updates", view.skipped()));
        } else {
            lines.push("no update yet".into());
        }
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" numbers ")), area);
    }

    fn times(&self, view: &RunView, frame: &mut Frame<'_>, area: Rect) {
        let block = Block::bordered().title(" time of an update ");
        let Some((update, parts)) = view.times() else {
            frame.render_widget(Paragraph::new("the records have no times").block(block), area);
            return;
        };
        let mut parts: Vec<_> = parts.into_iter().filter(|(_, ms)| *ms > 0.0).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        // The name, 12 columns of time, 7 of the share, and a bar.
        let width = usize::from(area.width.saturating_sub(2));
        let column = width.saturating_sub(19).clamp(14, 30);
        let named = |name: &str| match name.chars().count() > column {
            true => name.chars().take(column - 1).chain(['…']).collect(),
            false => format!("{name:<column$}"),
        };
        let mut lines = vec![Line::from(format!("{}{:>9} ms", named("whole update"), number(update))).bold()];
        let room = width.saturating_sub(column + 19);
        for (name, ms) in parts {
            let share = (ms / update.max(1e-9)).min(9.99);
            let bar = "█".repeat(((share.min(1.0) * room as f64).round() as usize).min(room));
            lines.push(Line::from(vec![
                Span::raw(format!("{}{:>9} ms{:>4.0} % ", named(name), number(ms), 100.0 * share)),
                Span::raw(bar).cyan(),
            ]));
        }
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }

    /// A line for each domain of power and for the hottest sensor, or why the power is unknown, and
    /// if there is room, for memory and cores. Empty if the run reads no sensors.
    fn process_lines(&self, view: &RunView, area: Rect, tall: bool) -> Vec<Line<'static>> {
        let Some(last) = view.sensors().filter(|_| area.height >= LINES) else { return Vec::new() };
        let width = usize::from(area.width.saturating_sub(2));
        let steps = self.shown(view);
        let row = |name: &str, value: String, series: &Series, color, rest: &[String]| {
            process_line(name, value, (series, steps), color, rest, width)
        };
        // Where no line has more columns, the history has their room.
        let none = vec![String::new(); if view.power().next().is_some() { COLUMNS.len() - 2 } else { 0 }];
        let mut lines = Vec::new();
        if let Some((_, bytes)) = view.resident.last().filter(|_| tall) {
            lines.push(row("memory", format!("{} MB", number(bytes / 1e6)), &view.resident, Color::Green, &none));
        }
        if let Some((_, cores)) = view.cores.last().filter(|_| tall) {
            lines.push(row("cores", format!("{cores:.2} busy"), &view.cores, Color::Green, &none));
        }
        for (domain, series) in view.power() {
            let now = last.power.iter().find(|power| power.domain == domain);
            let value = now.map_or_else(|| "unknown".to_string(), |power| format!("{} W", number(power.watts)));
            let sum = view.energy().sum(domain);
            let token = sum.and_then(|sum| sum.joules_per_token);
            let rest = [
                sum.map_or_else(String::new, |sum| energy_text(sum.joules)),
                token.map_or_else(String::new, |joules| format!("{} a token", energy_text(joules))),
            ];
            lines.push(row(domain.name(), value, series, domain_color(domain), &rest));
        }
        if let Some(hottest) = last.temperatures.first() {
            let rest: Vec<String> = none.iter().skip(1).cloned().chain([hottest.sensor.clone()]).collect();
            lines.push(row("hottest", format!("{:.1} °C", hottest.celsius), &view.hottest, Color::Red, &rest));
        }
        if last.power.is_empty() {
            let why = view.why_no_power().unwrap_or_else(|| "no record has readings yet".into());
            let reason = wrapped(&format!("unknown: {why}"), width.saturating_sub(COLUMNS[0] + 1));
            let room = usize::from(area.height.saturating_sub(OTHERS + 2)).saturating_sub(lines.len());
            let most = room.clamp(1, REASON);
            let cut = reason.len() > most;
            for (at, mut text) in reason.into_iter().take(most).enumerate() {
                if cut && at + 1 == most {
                    text.push('…');
                }
                let name = if at == 0 { "power" } else { "" };
                lines.push(Line::from(vec![label(name), Span::raw(text).yellow()]));
            }
        }
        lines
    }

    fn process(&self, view: &RunView, frame: &mut Frame<'_>, area: Rect) {
        let (first, last) = self.shown(view);
        let [memory, cores] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
        let now = view.resident.last().map_or(String::new(), |(_, bytes)| format!("{} ", number(bytes / 1e6)));
        let curve = [Curve { name: "memory", color: Color::Green, series: &view.resident, unit: 1e-6 }];
        curves::draw(frame, memory, format!(" memory, MB {now}").into(), &curve, first, last);
        let now = view.cores.last().map_or(String::new(), |(_, cores)| format!("{cores:.2} "));
        let curve = [Curve { name: "cores", color: Color::Green, series: &view.cores, unit: 1.0 }];
        curves::draw(frame, cores, format!(" busy cores {now}").into(), &curve, first, last);
    }

    fn log(&mut self, view: &RunView, frame: &mut Frame<'_>, area: Rect) {
        let height = usize::from(area.height.saturating_sub(2));
        self.scroll = self.scroll.min(view.lines().len().saturating_sub(height));
        let end = view.lines().len() - self.scroll;
        let lines = view.lines().take(end).skip(end.saturating_sub(height)).map(|line| {
            let color = match line.kind {
                LogKind::Note => Color::Reset,
                LogKind::Validation => Color::Yellow,
                LogKind::Sample => Color::Green,
                LogKind::Warning => Color::Red,
            };
            Line::from(line.text.as_str()).style(Style::new().fg(color))
        });
        let title = if self.scroll > 0 { format!(" log, {} lines follow ", self.scroll) } else { " log ".into() };
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(Block::bordered().title(title)), area);
    }

    fn sample(&mut self, view: &RunView, frame: &mut Frame<'_>, area: Rect) {
        self.sample = self.sample.min(view.samples().len().saturating_sub(1));
        let shown = view.samples().len().checked_sub(1 + self.sample).and_then(|at| view.samples().nth(at));
        let (title, text) = match shown {
            Some((step, text)) => (format!(" sample after update {step} "), text.as_str()),
            None if self.controls => (" sample ".into(), "none yet; s requests one, --sample-every N writes them"),
            None => (" sample ".into(), "none; `ferrane train --sample-every N` writes them"),
        };
        let paragraph = Paragraph::new(text).wrap(Wrap { trim: false }).block(Block::bordered().title(title));
        frame.render_widget(paragraph, area);
    }

    fn list_of_keys(&self, frame: &mut Frame<'_>, area: Rect) {
        let keys = KEYS.iter().filter(|(_, _, control)| self.controls || !control);
        let keys: Vec<_> = keys.map(|(key, what, _)| (*key, *what)).collect();
        terminal::list_of_keys(frame, area, &keys);
    }
}

/// A text, with what it may lack if it does not fit.
fn fitting(mut text: String, more: &str, room: usize) -> String {
    if text.chars().count() + more.chars().count() <= room {
        text += more;
    }
    text
}

fn label(name: &str) -> Span<'static> {
    Span::raw(format!(" {name:<width$}", width = COLUMNS[0])).dim()
}

/// The height of a panel with these lines; 0 if there are none.
fn with_border(lines: &[Line<'_>]) -> u16 {
    if lines.is_empty() { 0 } else { lines.len() as u16 + 2 }
}

fn draw_process(lines: Vec<Line<'static>>, tall: bool, frame: &mut Frame<'_>, area: Rect) {
    let title = if tall { " process; power of the whole computer " } else { " power of the whole computer " };
    if !lines.is_empty() {
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
    }
}

/// A name, its last value, and as far as there is room two more columns and a history between them.
fn process_line(
    name: &str,
    value: String,
    (series, (first, last)): (&Series, (u64, u64)),
    color: Color,
    rest: &[String],
    width: usize,
) -> Line<'static> {
    let mut line = Line::from(vec![label(name), Span::raw(format!("{value:<w$}", w = COLUMNS[1])).fg(color)]);
    let mut room = width.saturating_sub(1 + COLUMNS[0] + COLUMNS[1]);
    let mut columns = Vec::new();
    for (text, column) in rest.iter().zip(&COLUMNS[2..]) {
        if room >= *column {
            columns.push(format!(" {text:<w$.w$}", w = column - 1));
            room -= column;
        }
    }
    let bars = bars(series, first, last, room);
    line.push_span(Span::raw(format!("{bars:<room$}")).fg(color));
    line.extend(columns.into_iter().map(Span::raw));
    line
}

/// The values from `first` to `last` as bars of a height from 0, at most `most` of them.
fn bars(series: &Series, first: u64, last: u64, most: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if most == 0 {
        return String::new();
    }
    let points = series.points(first, last, most);
    let highest = points.iter().fold(0.0, |highest: f64, (_, value)| highest.max(*value));
    let bar = |(_, value): &(f64, f64)| {
        let height = if highest > 0.0 { (value / highest).clamp(0.0, 1.0) } else { 0.0 };
        BARS[(height * (BARS.len() - 1) as f64).round() as usize]
    };
    points.iter().map(bar).collect()
}

/// A text in lines of at most `width` characters, broken at spaces where that is possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ') {
        let word: Vec<char> = word.chars().collect();
        for (at, part) in word.chunks(width.max(1)).enumerate() {
            let space = usize::from(length > 0 && at == 0);
            if at > 0 || length + space + part.len() > width {
                lines.push(String::new());
                length = 0;
            } else if space > 0 {
                lines.iter_mut().last().into_iter().for_each(|line| line.push(' '));
                length += 1;
            }
            lines.iter_mut().last().into_iter().for_each(|line| line.extend(part));
            length += part.len();
        }
    }
    lines
}

/// How far the run is.
fn progress(view: &RunView) -> String {
    match (view.last(), view.planned()) {
        (Some(last), Some(planned)) => {
            let share = 100.0 * last.step as f64 / planned.max(1) as f64;
            format!("update {} of {planned}, {share:.0} %", last.step)
        }
        (Some(last), None) => format!("update {}", last.step),
        (None, _) => "no update yet".to_string(),
    }
}
