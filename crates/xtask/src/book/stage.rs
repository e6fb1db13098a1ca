//! The pages of the book in one folder.
//!
//! docs/ is the root of the book, so that docs/onnx.md is `onnx.md` there; the pages of other
//! folders keep their paths. A link to a file that is no page of the book leads to the repository
//! if the manifest of the workspace names one, and is text otherwise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::in_book;
use crate::markdown::{Page, Target, map_links, resolve};
use crate::report::Finding;
use crate::workspace::{self, Result, extension};

/// The pages outside of docs/.
const OTHERS: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "gallery/README.md"];

/// The generated page that lists the codes, in the repository and in the book.
const CODES: &str = "docs/errors.md";

/// One page of the book.
#[derive(Debug)]
pub(super) struct Chapter {
    /// The file in the repository that it comes from.
    source: PathBuf,
    /// The text with the links of that file.
    text: String,
}

/// All pages and pictures, by their paths in the book.
#[derive(Debug, Default)]
pub(super) struct Stage {
    chapters: BTreeMap<PathBuf, Chapter>,
    pictures: BTreeMap<PathBuf, PathBuf>,
    repository: Option<String>,
}

impl Stage {
    /// Reads the pages of the repository.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut stage = Self { repository: repository(root)?, ..Self::default() };
        let mut files: Vec<PathBuf> =
            OTHERS.iter().map(PathBuf::from).filter(|path| root.join(path).exists()).collect();
        files.extend(workspace::files(root, Path::new("docs"), &|path| extension(path) == "md")?);
        for package in workspace::packages(root)? {
            let page = Path::new("crates").join(&package.folder).join("README.md");
            if root.join(&page).exists() {
                files.push(page);
            }
        }
        for source in files.into_iter().filter(|path| path != Path::new("docs/SUMMARY.md")) {
            let text = workspace::read(&root.join(&source))?;
            stage.chapters.insert(in_book(&source), Chapter { source, text });
        }
        for source in workspace::files(root, Path::new("docs"), &|path| matches!(extension(path), "svg" | "png"))? {
            stage.pictures.insert(in_book(&source), source);
        }
        Ok(stage)
    }

    /// Makes a page of each code's section of docs/errors.md, and a list of that page.
    pub(super) fn split_codes(&mut self) -> Result<()> {
        let chapter = self.chapters.get_mut(Path::new("errors.md")).ok_or_else(|| format!("there is no {CODES}"))?;
        let source = chapter.source.clone();
        let mut parts = chapter.text.split("\n<a id=\"e");
        let mut list = parts.next().unwrap_or_default().to_owned();
        let mut pages = Vec::new();
        for part in parts {
            let wrong = || format!("{CODES}: the section that begins with `{}` has no heading", part.escape_debug());
            let (_, section) = part.split_once("\n\n## ").ok_or_else(wrong)?;
            let (heading, body) = section.split_once('\n').ok_or_else(wrong)?;
            let (code, title) = heading.split_once(": ").ok_or_else(wrong)?;
            list += &format!("\n- [{code}](codes/{code}.md): {title}");
            let path = PathBuf::from(format!("codes/{code}.md"));
            let claims = if body.contains("**claims**") { " [Claims](claims.md) has the claims." } else { "" };
            let text = format!("# {code}: {title}\n{body}\n`ferrane explain {code}` prints this page.{claims}\n");
            pages.push((path, text));
        }
        chapter.text = list + "\n";
        for (path, text) in pages {
            self.chapters.insert(path, Chapter { source: source.clone(), text });
        }
        Ok(())
    }

    /// Adds the pages of the commands.
    pub(super) fn add_commands(&mut self, pages: &[(String, String)]) {
        for (path, text) in pages {
            let chapter = Chapter { source: PathBuf::from("docs/command.md"), text: text.clone() };
            self.chapters.insert(PathBuf::from(path), chapter);
        }
    }

    /// The paths of the pages in the book.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.chapters.keys().map(PathBuf::as_path)
    }

    /// The pages below a folder of the book, with their titles.
    pub(super) fn below(&self, folder: &str) -> Vec<(&Path, String)> {
        let chapters = self.chapters.iter().filter(|(path, _)| path.starts_with(folder));
        chapters.map(|(path, chapter)| (path.as_path(), chapter.title())).collect()
    }

    /// The page at this path of the book.
    pub(super) fn page(&self, path: &Path) -> Option<Page> {
        self.chapters.get(path).map(|chapter| Page::parse(path, &chapter.text))
    }

    /// The file of the repository that a page comes from.
    pub(super) fn source(&self, path: &Path) -> Option<&Path> {
        self.chapters.get(path).map(|chapter| chapter.source.as_path())
    }

    /// Writes the folder that mdBook reads, and reports links to files that do not exist.
    pub(super) fn write(&self, root: &Path, folder: &Path, contents: &str) -> Result<Vec<Finding>> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(|e| format!("cannot clear {}: {e}", folder.display()))?;
        }
        let mut findings = Vec::new();
        for (path, chapter) in &self.chapters {
            let text = map_links(&chapter.text, &mut |target| self.link(root, path, chapter, target, &mut findings));
            write(&folder.join(path), text.as_bytes())?;
        }
        for (path, source) in &self.pictures {
            let bytes =
                std::fs::read(root.join(source)).map_err(|e| format!("cannot read {}: {e}", source.display()))?;
            write(&folder.join(path), &bytes)?;
        }
        write(&folder.join("SUMMARY.md"), contents.as_bytes())?;
        Ok(findings)
    }

    /// What a link of a page becomes.
    fn link(&self, root: &Path, path: &Path, chapter: &Chapter, target: &str, findings: &mut Vec<Finding>) -> Target {
        if target.contains("://") || target.starts_with("mailto:") || target.starts_with('#') {
            return Target::Kept;
        }
        let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
        let source = resolve(&chapter.source, file);
        let wanted = in_book(&source);
        let code = fragment.strip_prefix('e').filter(|_| wanted == Path::new("errors.md"));
        if let Some(digits) = code {
            let page = PathBuf::from(format!("codes/E{digits}.md"));
            if self.chapters.contains_key(&page) {
                return Target::Replaced(relative(path, &page));
            }
        }
        if self.chapters.contains_key(&wanted) || self.pictures.contains_key(&wanted) {
            let hash = if fragment.is_empty() { String::new() } else { format!("#{fragment}") };
            return Target::Replaced(relative(path, &wanted) + &hash);
        }
        if !root.join(&source).exists() {
            let message = format!("the link `{target}` leads to {}, which does not exist", source.display());
            findings.push(Finding::new(&chapter.source, 0, message, "write the path relative to this page"));
        }
        match &self.repository {
            Some(repository) => Target::Replaced(format!("{repository}/tree/HEAD/{}", source.display())),
            None => Target::Removed,
        }
    }
}

impl Chapter {
    fn title(&self) -> String {
        self.text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned()
    }
}

/// The path from the page `from` to `to`, both in the book.
fn relative(from: &Path, to: &Path) -> String {
    let depth = from.components().count().saturating_sub(1);
    format!("{}{}", "../".repeat(depth), to.display())
}

fn repository(root: &Path) -> Result<Option<String>> {
    let manifest = workspace::read(&root.join("Cargo.toml"))?;
    let manifest: toml::Table = manifest.parse().map_err(|e| format!("Cargo.toml: {e}"))?;
    let package = manifest.get("workspace").and_then(|w| w.get("package"));
    let repository = package.and_then(|p| p.get("repository")).and_then(toml::Value::as_str);
    Ok(repository.map(|address| address.trim_end_matches('/').to_owned()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    std::fs::write(path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))
}
