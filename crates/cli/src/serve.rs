//! `ferrane serve`: OpenAI's API over a model.

use std::net::{IpAddr, TcpListener};
use std::time::Duration;

use ferrane::llm::chat::Template;
use ferrane::llm::decode;
use ferrane_serve::{LOOPBACK_HOSTS, Server, ServerOptions, Setup, Stop, read_keys};

use crate::args::Serve;
use crate::error::{Error, Result};
use crate::{files, model, out};

/// Opens the model, listens, and serves until Ctrl-C.
pub fn run(args: Serve) -> Result<()> {
    // Mistakes that need no model are reported before it is opened.
    let context = model::context(args.context)?;
    let listener = listen(&args)?;
    let address = listener.local_addr()?;
    let options = options(&args, address.ip())?;
    let device = model::device(&args.device.device)?;
    let model = model::open_adapted(&args.model, args.tokenizer.as_deref(), &args.adapter)?;
    let template = match &args.chat_template {
        Some(path) => {
            let source = std::fs::read_to_string(path).map_err(|e| files::failed(path, e))?;
            Some(Template::new(&source)?)
        }
        None => Template::find(&args.model)?,
    };
    let decode = decode::Options {
        weights: args.weights_type.into(),
        context,
        slots: args.slots.into(),
        ..decode::Options::default()
    };
    let mut setup = Setup::default();
    let can_chat = template.is_some();
    setup.template = template;
    let server = Server::new(model, device, decode, setup, options)?;
    let stop = Stop::new();
    end_on_ctrl_c(&stop)?;
    out::note(format_args!(
        "{} on {}, context of {} tokens{}",
        server.name(),
        args.device.device,
        server.context(),
        if can_chat { "" } else { ", without a chat template: /v1/completions only" },
    ));
    if !address.ip().is_loopback() && args.api_key_file.is_none() {
        out::note("every computer that reaches this address can use the model; --api-key-file asks for a key");
    }
    // A script waits for this line, and reads the port from it.
    out::line(format_args!("http://{address}/"))?;
    Ok(server.run(listener, &stop)?)
}

fn listen(args: &Serve) -> Result<TcpListener> {
    let host = args.host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((host, args.port))
        .map_err(|e| Error::new(format!("cannot listen on --host {} --port {}: {e}", args.host, args.port)))
}

fn options(args: &Serve, address: IpAddr) -> Result<ServerOptions> {
    let mut options = ServerOptions::default();
    options.name = args.name.clone();
    options.queue = args.queue;
    options.body = args.max_body.saturating_mul(1024);
    options.connections = args.connections;
    options.request_time = Duration::from_secs(args.timeout);
    options.grace_time = Duration::from_secs(args.grace);
    options.origins = args.allow_origin.clone();
    if let Some(path) = &args.api_key_file {
        options.keys = read_keys(path)?;
    }
    if address.is_loopback() {
        options.hosts = LOOPBACK_HOSTS.map(str::to_string).to_vec();
        options.hosts.push(args.host.clone());
        options.hosts.extend(args.allow_host.iter().cloned());
    }
    Ok(options)
}

/// The first Ctrl-C lets requests finish, the second ends the process.
fn end_on_ctrl_c(stop: &Stop) -> Result<()> {
    let stop = stop.clone();
    let handler = move || match stop.stop() {
        true => drop(out::note("ending: running requests finish, Ctrl-C again ends at once")),
        false => std::process::exit(130),
    };
    ctrlc::set_handler(handler).map_err(|e| Error::new(format!("Ctrl-C cannot be handled: {e}")))
}
