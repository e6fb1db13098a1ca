//! `ferrane train`: builds the options from the command line and shows the events of the run.

mod dashboard;
mod restart;
mod show;
mod world;

use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferrane::llm::layout::Shape;
use ferrane::llm::sample::{Sampler, Sampling};
use ferrane::machine::cost::{CostModel, StepCost};
use ferrane::sensors;
use ferrane::train::checkpoint;
use ferrane::train::metrics::{EventFile, RunMetrics};
use ferrane::train::ranks::{Link, Ranks};
use ferrane::train::run::{self, Control, Event};
use ferrane::train::session::{Session, SessionError, SessionOptions, StoredRun};
use ferrane_host::memory::peak_resident;

use crate::args::{Reading, Train, Vocabulary};
use crate::error::{Error, Result};
use crate::{cost, files, model, out, scrape, terminal, timeline_file, watch};
use dashboard::Dashboard;
use show::Show;

/// Number of tokens of the sample text after a run.
const SAMPLE: usize = 160;

/// Begins or resumes a run, trains, and prints the results.
pub fn run(args: Train) -> Result<()> {
    world::join(|ranks| train(args, ranks))
}

/// Trains as one of some ranks, of which the first one shows the run.
fn train(args: Train, ranks: Ranks) -> Result<()> {
    let (size, is_first) = (ranks.size(), ranks.is_first());
    if args.dry_run && size > 1 {
        return Err(Error::new("--dry-run measures one process; leave out the launcher"));
    }
    let mut ranks = Some(ranks);
    let stored = match args.resume {
        true => Some(StoredRun::open_with(&args.out, ranks.take().unwrap_or_default())?),
        false => None,
    };
    let options = options(&args, stored.as_ref().map(StoredRun::options));
    if options.lora.is_some() && args.vocabulary == Some(Vocabulary::Compact) {
        return Err(Error::new("--vocabulary compact: adapters are trained over the whole vocabulary; leave it out"));
    }
    // Mistakes in the numbers are reported before any work is done.
    options.run.check()?;
    if let Some(stored) = &stored {
        stored.check(&options)?;
    }
    let machine = args.machine.as_deref().map(|name| Ok::<_, Error>((name, cost::model(name)?))).transpose()?;
    let device = model::device(&options.device)?;
    let timeline = args.timeline.as_deref().filter(|_| is_first).map(timeline_file::open).transpose()?;
    let listener = args.showing.prometheus.as_deref().filter(|_| is_first).map(scrape::listen).transpose()?;
    let dashboard = args.showing.dashboard && is_first;
    let stop = stop_flag(dashboard)?;
    let mut show = Show::new(args.json, &options, device.as_ref(), stop.clone()).of_ranks(size, is_first);
    if args.dry_run {
        return dry_run(options, device.as_ref(), &stop, machine.as_ref(), (&args.ranks, &args.link), &mut show);
    }
    let step = stored.as_ref().map(StoredRun::step);
    let mut listen = |event: &Event| show.event(event);
    let session = match stored {
        Some(stored) => stored.resume(options.clone(), device.as_ref(), &mut listen),
        None => Session::begin_with(ranks.take().unwrap_or_default(), options.clone(), device.as_ref(), &mut listen),
    };
    let mut session = match session {
        Ok(session) => session,
        Err(error) if size > 1 => return Err(failed(error, &args.out, step)),
        Err(error) => return restart::after(failed(error, &args.out, step), &args, step, &mut show),
    };
    let predicted =
        machine.map(|(name, model)| predicted(session.shape(), session.active_ids(), name, &model)).transpose()?;
    if let Some((_, timeline)) = &timeline {
        session = session.with_timeline(timeline);
    }
    if is_first {
        session = with_event_files(session, &args)?.with_sensors(sensors::open());
    }
    let metrics = RunMetrics::new().with_sensors(session.sensor_history());
    session = session.with_sink(Box::new(metrics.clone()));
    let server = listener.map(|listener| scrape::serve(listener, move || metrics.text())).transpose()?;
    if let Some(server) = server.as_ref().filter(|_| !dashboard) {
        show.note(format_args!("metrics {}", scrape::url(server)));
    }
    let result = match dashboard {
        true => {
            let control = Control::default();
            session = session.with_control(&control);
            let peak = args.machine.as_deref().map(watch::peak).transpose()?;
            let mut dashboard = Dashboard::open(&args.out, &control, &stop, peak)?;
            let result = session.run(&mut |event| dashboard.event(event), &stop);
            dashboard.close()?.iter().for_each(|event| show.event(event));
            result
        }
        false => session.run(&mut |event| show.event(event), &stop),
    };
    show.finish();
    // The address is free again before the run continues in another process.
    drop(server);
    if let Some((file, timeline)) = timeline {
        timeline_file::write(file, &timeline)?;
    }
    let summary = match result {
        Ok(summary) => summary,
        Err(error) => {
            let step = Some(session.state().step);
            drop(session);
            if size > 1 {
                return Err(failed(error, &args.out, step));
            }
            return restart::after(failed(error, &args.out, step), &args, step, &mut show);
        }
    };
    show.failure()?;
    if !is_first {
        return Ok(());
    }
    if !summary.stopped && !args.json {
        let sample = sample(&session, options.run.seed, &stop, &mut show)?;
        show.end(&summary, &args.out, sample.as_deref())?;
    }
    if args.memory {
        show.memory(&session.memory(peak_resident()))?;
    }
    if let Some((machine, step)) = &predicted {
        show.predicted(machine, step, summary.efficiency.micro_step_ms())?;
    }
    Ok(())
}

/// The flag that Ctrl-C sets, with and without the dashboard.
fn stop_flag(dashboard: bool) -> Result<Arc<AtomicBool>> {
    match dashboard {
        true if !std::io::stdout().is_terminal() => Err(Error::new(
            "--dashboard: standard output is not a terminal; leave it out, and `ferrane watch --once` shows the run",
        )),
        true => terminal::stop_on_signal(),
        false => files::stop_on_ctrl_c("micro-step"),
    }
}

/// Adds the files of `--tensorboard`.
fn with_event_files(session: Session, args: &Train) -> Result<Session> {
    let Some(folder) = &args.showing.tensorboard else { return Ok(session) };
    let folder = folder.clone().unwrap_or_else(|| args.out.join("tensorboard"));
    let events = EventFile::create(&folder).map_err(|e| files::failed(&folder, format_args!("--tensorboard: {e}")))?;
    Ok(session.with_sink(Box::new(events)))
}

/// Measures what a run would take, and prints it.
fn dry_run(
    options: SessionOptions,
    device: Option<&ferrane::Device>,
    stop: &AtomicBool,
    machine: Option<&(&str, CostModel)>,
    ranks: (&[usize], &Link),
    show: &mut Show,
) -> Result<()> {
    let windows = options.run.windows();
    if ranks.0.contains(&0) {
        return Err(Error::new("--ranks 0: a run has at least one rank"));
    }
    if let Some(many) = ranks.0.iter().find(|count| **count > windows) {
        return Err(Error::new(format!(
            "--ranks {many}: an update has {windows} windows, one for each rank at least; raise --accum"
        )));
    }
    let json = show.is_json();
    let mut listen = |event: &Event| match event {
        Event::Encoding { .. } | Event::Warning { .. } => show.event(event),
        Event::Prepared { .. } | Event::Compiled { .. } if !json => show.event(event),
        Event::Started { .. } if !json => show.note("measuring some micro-steps, a validation and a checkpoint"),
        _ => {}
    };
    let Some(dry) = Session::dry_run(options, device, &mut listen, stop)? else {
        return Err(Error::new("stopped before anything was measured; nothing was written"));
    };
    show.finish();
    show.dry_run(&dry)?;
    if let Some((name, model)) = machine {
        let (name, step) = predicted(&dry.shape, dry.active, name, model)?;
        show.predicted(name, &step, dry.micro_step_ms)?;
    }
    ranks.0.iter().filter_map(|count| dry.on_ranks(*count, ranks.1)).try_for_each(|found| show.on_ranks(&found))
}

/// Predicts the time of a micro-step on a machine.
fn predicted<'a>(shape: &Shape, active: usize, name: &'a str, model: &CostModel) -> Result<(&'a str, StepCost)> {
    let step = cost::step(shape, active, model)?;
    Ok((name, step.ok_or_else(|| Error::new(format!("--machine {name}: its profile has no data about the CPU")))?))
}

/// Adds the default of each option to its help.
pub fn describe(mut command: clap::Command) -> clap::Command {
    let value = |options: SessionOptions| serde_json::to_value(options).unwrap_or_default();
    let (embedded, own) = (value(SessionOptions::embedded()), value(SessionOptions::default()));
    let ids: Vec<String> = command.get_arguments().map(|a| a.get_id().to_string()).collect();
    for id in ids {
        let shown = |options: &serde_json::Value| match options.get(&id) {
            Some(serde_json::Value::String(word)) if id != "out" => Some(word.clone()),
            Some(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let text = match (shown(&embedded), shown(&own)) {
            (Some(embedded), Some(own)) if embedded == own => format!("[default: {own}]"),
            (Some(embedded), Some(own)) => format!("[default: {own}; without --data {embedded}]"),
            _ => continue,
        };
        command = command.mut_arg(&id, |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            // An argument that other commands have too states its default itself.
            if help.contains("[default") { arg } else { arg.help(format!("{help} {text}")) }
        });
    }
    command
}

/// Adds to an error which checkpoint is intact and how to resume. `step` is that of the newest
/// checkpoint.
fn failed(error: SessionError, out: &Path, step: Option<u64>) -> Error {
    let full = matches!(&error, SessionError::Run(run::Error::Checkpoint(checkpoint::Error::Io { .. })));
    let error = Error::from(error);
    let resume = format!("{} train --resume --out {}", model::program(), out::quoted(&out.to_string_lossy()));
    if full {
        return Error::new(format!(
            "the checkpoint could not be written: {error}\n  The previous checkpoint is intact. Free some space, then run: {resume}"
        ));
    }
    match step {
        Some(step) if error.device().is_some() => {
            error.hint(&format!("All {step} updates are saved; to resume: {resume}"))
        }
        None if error.device().is_some() => error.hint("Nothing was trained yet; the same command begins again."),
        _ => error,
    }
}

/// The options, in order of precedence: command line, the resumed run, defaults.
fn options(args: &Train, before: Option<&SessionOptions>) -> SessionOptions {
    let mut o = before.cloned().unwrap_or_else(|| SessionOptions::over(args.data.clone()));
    macro_rules! take {
        ($($from:ident => $($to:ident).+),* $(,)?) => {
            $(if let Some(value) = args.$from.clone() { o.$($to).+ = value.into(); })*
        };
    }
    take!(
        model => model, init => init, tokenizer => tokenizer, device => device,
        residual => residual, weights => weights, pipeline => pipeline,
        steps => run.steps, accum => run.accum, groups => run.groups, seq => run.seq, batch => run.batch, warmup => run.warmup,
        seed => run.seed, lr => run.lr, min_lr => run.min_lr, clip => run.clip, weight_decay => run.weight_decay,
        eval_every => run.eval_every, eval_windows => run.eval_windows, save_every => run.save_every,
    );
    o.run.sample_every = args.showing.sample_every.unwrap_or(o.run.sample_every);
    if !args.data.is_empty() {
        o.data = args.data.clone();
    }
    let Reading { data_field, bad_rows, data_cache } = args.reading.clone();
    o.data_field = data_field.unwrap_or(o.data_field);
    o.bad_rows = bad_rows.unwrap_or(o.bad_rows);
    o.data_cache = data_cache.or(o.data_cache);
    o.run.shard_optimizer |= args.shard_optimizer;
    if let Some(layers) = args.recompute {
        o.recompute = NonZeroUsize::new(layers);
    }
    if before.is_none() && args.warmup.is_none() {
        o.shorten_warmup();
    }
    if let Some(vocabulary) = args.vocabulary {
        o.compact = vocabulary == Vocabulary::Compact;
    }
    if !args.freeze.is_empty() {
        o.freeze = args.freeze.clone();
    }
    o.lora = args.adapters.options().or(o.lora);
    o.chat |= args.conversations.chat;
    o.chat_template = args.conversations.chat_template.clone().or(o.chat_template);
    o.run.out = args.out.clone();
    o
}

/// A text by the trained model, on the session's device. `None` if the run has no tokenizer, or,
/// with a warning, if the device fails, because the run itself is complete.
fn sample(session: &Session, seed: u64, stop: &AtomicBool, show: &mut Show) -> Result<Option<String>> {
    match sampled(session, seed, stop) {
        Err(error) if error.device().is_some() => {
            show.event(&Event::Warning { text: format!("no sample: {error}") });
            Ok(None)
        }
        text => text,
    }
}

fn sampled(session: &Session, seed: u64, stop: &AtomicBool) -> Result<Option<String>> {
    let sampling = Sampling { temperature: 0.7, top_p: 0.9, seed: Some(seed), ..Sampling::default() };
    let Some(mut generator) = session.generator(Sampler::new(&sampling)?)? else { return Ok(None) };
    // Without a token that begins a text, the prompt is id 0.
    let prompt = generator.prompt_ids("").unwrap_or_else(|_| vec![0]);
    let pieces = generator.generate_ids(prompt, SAMPLE);
    let mut text = pieces.prompt_text().to_string();
    for piece in pieces.take_while(|_| !stop.load(Ordering::SeqCst)) {
        text.push_str(&piece?.text);
    }
    Ok(Some(text))
}
