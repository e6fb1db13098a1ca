//! Serves a model in the fp32 reference until Enter is pressed.
//!
//! `cargo run --release -p ferrane-serve --example serve -- MODEL [ADDRESS [TOKENIZER]]`

use std::net::TcpListener;

use ferrane_llm::chat::Template;
use ferrane_llm::model::Model;
use ferrane_serve::{Server, ServerOptions, Setup, Stop};

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give the path of a model")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let model = match arguments.next() {
        Some(tokenizer) => Model::open_with_tokenizer(&path, tokenizer)?,
        None => Model::open(&path)?,
    };
    let mut setup = Setup::default();
    setup.template = Template::find(&path)?;
    let server = Server::new(model, None, Default::default(), setup, ServerOptions::default())?;
    let listener = TcpListener::bind(address)?;
    println!("{} at http://{}/; Enter ends", server.name(), listener.local_addr()?);
    let stop = Stop::new();
    let ending = stop.clone();
    std::thread::spawn(move || {
        // The end of the input counts as Enter.
        let _ = std::io::stdin().read_line(&mut String::new());
        ending.stop();
    });
    server.run(listener, &stop)?;
    Ok(())
}
