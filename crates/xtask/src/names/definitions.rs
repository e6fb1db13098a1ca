//! What the sources define: types, functions with their length, files with theirs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItem, Item, Signature, TraitItem, Type};

use crate::syntax::{attributes, impl_item_attributes, is_test, trait_item_attributes};
use crate::tree::Tree;
use crate::workspace::{self, Result};

/// Where a type is defined.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) package: String,
    pub(super) path: PathBuf,
    pub(super) line: usize,
}

/// A function with a body.
#[derive(Clone, Debug)]
pub(super) struct LongFunction {
    pub(super) path: PathBuf,
    pub(super) line: usize,
    /// With the type that it belongs to: `Plan::run`.
    pub(super) name: String,
    /// Lines between its braces.
    pub(super) lines: usize,
    /// Marked with `// table`.
    pub(super) table: bool,
}

impl LongFunction {
    /// The name under which the ratchet knows it.
    pub(super) fn key(&self) -> String {
        format!("{} {}", self.path.display(), self.name)
    }
}

/// The definitions of all crates, without test code.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub(super) types: BTreeMap<String, Vec<Place>>,
    pub(super) functions: Vec<LongFunction>,
    /// Each source file and its lines.
    pub(super) files: Vec<(PathBuf, usize)>,
}

impl Definitions {
    /// Parses crates/*/src below `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut all = Self::default();
        for package in workspace::packages(root)? {
            let tree = Tree::read(root, &Path::new("crates").join(&package.folder))?;
            for file in &tree.files {
                let text = workspace::read(&root.join(&file.path))?;
                let lines: Vec<&str> = text.lines().collect();
                all.files.push((file.path.clone(), lines.len()));
                let mut reader =
                    Reader { all: &mut all, package: &package.folder, path: &file.path, lines, owner: String::new() };
                reader.visit_file(&file.syntax);
            }
        }
        Ok(all)
    }
}

struct Reader<'r> {
    all: &'r mut Definitions,
    package: &'r str,
    path: &'r Path,
    lines: Vec<&'r str>,
    /// The type whose `impl` block or trait is read, with `::`.
    owner: String,
}

impl Reader<'_> {
    fn define(&mut self, name: &syn::Ident) {
        let line = name.span().start().line;
        let place = Place { package: self.package.to_owned(), path: self.path.to_owned(), line };
        self.all.types.entry(name.to_string()).or_default().push(place);
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        let span = body.brace_token.span;
        let lines = (span.close().start().line - span.open().start().line).saturating_sub(1);
        let line = signature.ident.span().start().line;
        let begins = attributes.first().map_or(line, |a| a.pound_token.span.start().line);
        let marked = |line: usize| line > 1 && self.lines.get(line - 2).is_some_and(|l| l.trim() == "// table");
        let name = format!("{}{}", self.owner, signature.ident);
        let table = marked(line) || marked(begins);
        self.all.functions.push(LongFunction { path: self.path.to_owned(), line, name, lines, table });
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            return;
        }
        match item {
            Item::Struct(i) => self.define(&i.ident),
            Item::Enum(i) => self.define(&i.ident),
            Item::Union(i) => self.define(&i.ident),
            Item::Trait(i) => self.define(&i.ident),
            Item::TraitAlias(i) => self.define(&i.ident),
            Item::Type(i) => self.define(&i.ident),
            Item::Fn(i) => self.function(&i.attrs, &i.sig, &i.block),
            _ => {}
        }
        let owner = match item {
            Item::Impl(i) => match i.self_ty.as_ref() {
                Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
                _ => None,
            },
            Item::Trait(i) => Some(i.ident.to_string()),
            _ => None,
        };
        let owner = owner.map_or_else(String::new, |name| name + "::");
        let outer = std::mem::replace(&mut self.owner, owner);
        visit::visit_item(self, item);
        self.owner = outer;
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if is_test(impl_item_attributes(item)) {
            return;
        }
        if let ImplItem::Fn(i) = item {
            self.function(&i.attrs, &i.sig, &i.block);
        }
        visit::visit_impl_item(self, item);
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if is_test(trait_item_attributes(item)) {
            return;
        }
        if let TraitItem::Fn(i) = item
            && let Some(body) = &i.default
        {
            self.function(&i.attrs, &i.sig, body);
        }
        visit::visit_trait_item(self, item);
    }
}
