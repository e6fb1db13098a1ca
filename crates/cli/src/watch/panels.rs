//! The panels of a screen.

use ferrane::train::watch::{LogKind, RunView};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};

use super::screen::{RunState, Screen};
use crate::terminal::curves::{self, Curve};
use crate::terminal::{self, count, duration, number};

/// Below this size only a line is shown.
const SMALLEST: (u16, u16) = (40, 12);
/// From this width on, numbers are to the right of the curves.
const WIDE: u16 = 90;
/// From this height on, all panels are shown.
const TALL: u16 = 28;

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
        if terminal::is_too_small(frame, &progress(view), SMALLEST) {
            return;
        }
        let rows = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(rows).areas(area);
        self.head(view, frame, head);
        self.foot(frame, foot);
        let (wide, tall) = (area.width >= WIDE, area.height >= TALL);
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
            let rows = [Constraint::Length(11), Constraint::Fill(1), Constraint::Length(if tall { 7 } else { 0 })];
            let [numbers, times, process] = Layout::vertical(rows).areas(right);
            self.numbers(view, frame, numbers);
            self.times(view, frame, times);
            if tall {
                self.process(view, frame, process);
            }
            self.curves(view, frame, left, tall);
        } else {
            let [curves, numbers] = Layout::vertical([Constraint::Fill(1), Constraint::Length(6)]).areas(left);
            self.curves(view, frame, curves, tall);
            self.numbers(view, frame, numbers);
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

    fn foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let keys = match &self.answer {
            Some(answer) => Line::from(format!(" {answer}")).yellow(),
            None if self.controls => {
                Line::from(" q quit  p pause  c checkpoint  s sample  + - zoom  up/down log  ? keys").dim()
            }
            None => Line::from(" q quit  + - zoom  up/down log  [ ] samples  ? keys").dim(),
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
        curves::draw(frame, loss, title.into(), &[training, validation], first, last);
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
        let mut lines: Vec<Line<'_>> = Vec::new();
        let mut row = |name: &'static str, value: String| {
            lines.push(Line::from(vec![Span::raw(format!("{name:<14}")).dim(), Span::raw(value)]));
        };
        if let Some(record) = view.last() {
            let loss = record.loss.map_or("not finite".into(), |loss| format!("{loss:.4}"));
            row("loss", view.mean_loss().map_or(loss.clone(), |mean| format!("{loss}, mean of the last {mean:.4}")));
            if let (Some((_, last)), Some((step, best))) = (view.validation.last(), view.best_validation()) {
                row("validation", format!("{last:.4}, best {best:.4} after update {step}"));
            }
            let tokens = record.tokens as f64;
            row("tokens", format!("{}, {} a second", count(tokens), count(record.tokens_per_second)));
            if let Some((_, gflops)) = view.gflops.last() {
                let share = self.peak.as_ref().map_or(String::new(), |(name, peak)| {
                    format!(", {:.1} % of the peak of {name}, {}", 100.0 * gflops / peak, number(*peak))
                });
                row("GFLOP/s", format!("{}{share}", number(gflops)));
            }
            let norm = record.grad_norm.map_or("not finite".into(), number);
            row("gradient norm", norm);
            row("learning rate", format!("{:.2e}", record.lr));
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
        let mut lines = vec![Line::from(format!("{:<30}{:>9} ms", "whole update", number(update))).bold()];
        let room = usize::from(area.width.saturating_sub(2 + 49));
        for (name, ms) in parts {
            let share = (ms / update.max(1e-9)).min(9.99);
            let bar = "█".repeat(((share.min(1.0) * room as f64).round() as usize).min(room));
            lines.push(Line::from(vec![
                Span::raw(format!("{name:<30}{:>9} ms{:>4.0} % ", number(ms), 100.0 * share)),
                Span::raw(bar).cyan(),
            ]));
        }
        frame.render_widget(Paragraph::new(lines).block(block), area);
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
