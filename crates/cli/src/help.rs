//! `ferrane --help`, `ferrane completions` and `ferrane man`: what is made from the command line's
//! own definition.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::builder::StyledStr;

use crate::args::{Completions, Man, PageFormat};
use crate::error::{Error, Result};
use crate::{files, out};

/// The commands by topic, in the order of `ferrane --help`.
const TOPICS: [(&str, &[&str]); 6] = [
    ("Programs", &["fmt", "check", "explain", "inspect", "run", "convert", "diff", "grad"]),
    ("Models", &["train", "watch", "runs", "generate", "chat", "serve", "eval", "quantize", "export", "cache"]),
    ("Machines", &["devices", "machine", "doctor", "recording", "classes"]),
    ("Measurements", &["bench", "cost", "place", "top"]),
    ("Compiled files", &["compile", "disasm", "assemble", "hwx"]),
    ("The command itself", &["completions", "man", "help"]),
];

/// The command with its subcommands listed by topic.
pub fn grouped(command: clap::Command) -> clap::Command {
    let template = template(&command);
    command.help_template(template)
}

/// clap has no headings for subcommands, so the list is part of the help's template.
fn template(command: &clap::Command) -> StyledStr {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::from("{before-help}{about-with-newline}\n{usage-heading} {usage}\n");
    for (topic, names) in TOPICS {
        let _ = write!(text, "\n{header}{topic}:{header:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print this list, or the help of a command".into());
            let _ = writeln!(text, "  {literal}{name:11}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text.into()
}

/// Prints a completion script.
pub fn completions(args: &Completions) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "ferrane", &mut script);
    out::print(String::from_utf8_lossy(&script))
}

/// Prints the manual page of the command, or writes those of all commands into a folder.
pub fn man(args: &Man) -> Result<()> {
    let mut command = crate::command();
    command.build();
    let Some(folder) = &args.out else { return out::print(page(&command, "ferrane", args.format)?) };
    fs::create_dir_all(folder).map_err(|e| files::failed(folder, e))?;
    write_pages(&command, "ferrane", args.format, folder)
}

fn page(command: &clap::Command, name: &str, format: PageFormat) -> Result<String> {
    if format == PageFormat::Markdown {
        let help = command.clone().term_width(100).render_long_help().to_string();
        return Ok(format!("# {}\n\n```text\n{}\n```\n", name.replace('-', " "), help.trim_end()));
    }
    let mut bytes = Vec::new();
    let man = clap_mangen::Man::new(command.clone()).title(name.to_uppercase());
    man.render(&mut bytes).map_err(|e| Error::new(format!("manual page of {name}: {e}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write_pages(command: &clap::Command, name: &str, format: PageFormat, folder: &Path) -> Result<()> {
    let extension = if format == PageFormat::Markdown { "md" } else { "1" };
    let path = folder.join(format!("{name}.{extension}"));
    files::replace(&path, page(command, name, format)?.as_bytes())?;
    out::line(path.display())?;
    let commands = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    commands.into_iter().try_for_each(|c| write_pages(c, &format!("{name}-{}", c.get_name()), format, folder))
}

#[cfg(test)]
mod tests {
    use super::TOPICS;

    #[test]
    fn every_command_has_one_topic() {
        let mut listed: Vec<&str> = TOPICS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = crate::command();
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
        assert!(command.get_subcommands().all(|c| c.get_about().is_some()));
    }
}
