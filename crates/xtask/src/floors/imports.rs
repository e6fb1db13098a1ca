//! The import graph of one crate's files.
//!
//! An edge goes from a file to the file that defines a name which the first one uses, by a `use`
//! declaration or by a path in an expression, a type, a pattern or a macro's arguments. A name that
//! is exported again counts as an edge to the file of its definition. No edge are `mod x;`, a
//! `pub use` whose name the file does not use itself, attributes, documentation and test code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, TraitItem};

use crate::syntax::{attributes, impl_item_attributes, is_test, trait_item_attributes};
use crate::tree::{Import, ModuleId, Resolved, Tree, imports};
use crate::workspace::Result;

/// What ties two files: each name used, with the first line that uses it.
pub(super) type Names = BTreeMap<String, usize>;

/// The files of a crate and the edges between them.
pub(super) struct ImportGraph {
    /// The crate's folder in crates/.
    pub(super) package: String,
    pub(super) tree: Tree,
    /// Pairs of file indices; the first uses names that the second defines.
    pub(super) edges: BTreeMap<(usize, usize), Names>,
}

impl ImportGraph {
    /// Parses the crate `crates/<package>`.
    pub(super) fn read(root: &Path, package: &str) -> Result<Self> {
        let tree = Tree::read(root, &Path::new("crates").join(package))?;
        let mut edges: BTreeMap<(usize, usize), Names> = BTreeMap::new();
        for (from, file) in tree.files.iter().enumerate() {
            let mut uses = References::new(&tree, file.module);
            uses.visit_file(&file.syntax);
            for reference in uses.found {
                if reference.may_be_local && uses.locals.contains(&reference.path[0]) {
                    continue;
                }
                for resolved in tree.resolve(reference.module, &reference.path) {
                    let Resolved::Item(module, name) = resolved else { continue };
                    let to = tree.modules[module].file;
                    if to != from {
                        let line = edges.entry((from, to)).or_default().entry(name).or_insert(reference.line);
                        *line = reference.line.min(*line);
                    }
                }
            }
        }
        Ok(Self { package: package.to_owned(), tree, edges })
    }

    /// The path of a file below `crates/<package>/src`.
    pub(super) fn short(&self, file: usize) -> String {
        let source = Path::new("crates").join(&self.package).join("src");
        let path = &self.tree.files[file].path;
        path.strip_prefix(source).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// The top-level module of a file; `lib` for the root of a library, `main` for that of a
    /// program.
    pub(super) fn top_module(&self, file: usize) -> String {
        let module = &self.tree.modules[self.tree.files[file].module];
        module.path.first().cloned().unwrap_or_else(|| self.short(file).trim_end_matches(".rs").to_owned())
    }
}

struct Reference {
    module: ModuleId,
    path: Vec<String>,
    line: usize,
    /// A single lower-case name, which may as well be a variable.
    may_be_local: bool,
}

struct References<'t> {
    tree: &'t Tree,
    module: ModuleId,
    found: Vec<Reference>,
    /// Names that patterns bind.
    locals: BTreeSet<String>,
}

impl<'t> References<'t> {
    fn new(tree: &'t Tree, module: ModuleId) -> Self {
        Self { tree, module, found: Vec::new(), locals: BTreeSet::new() }
    }

    fn path(&mut self, path: Vec<String>, line: usize) {
        let Some(first) = path.first() else { return };
        let may_be_local = path.len() == 1 && first.starts_with(|c: char| c.is_lowercase() || c == '_');
        self.found.push(Reference { module: self.module, path, line, may_be_local });
    }

    fn import(&mut self, import: Import) {
        let glob_of_module = import.name.is_none()
            && self.tree.resolve(self.module, &import.path).iter().all(|r| matches!(r, Resolved::Module(_)));
        if import.private && !glob_of_module {
            self.found.push(Reference {
                module: self.module,
                path: import.path,
                line: import.line,
                may_be_local: false,
            });
        }
    }

    /// The paths among a macro's arguments.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let punct = |index: usize, c: char| matches!(tokens.get(index), Some(TokenTree::Punct(p)) if p.as_char() == c);
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    at += 1;
                }
                TokenTree::Ident(first) => {
                    let line = first.span().start().line;
                    let mut path = vec![first.to_string()];
                    let begin = at;
                    at += 1;
                    while punct(at, ':') && punct(at + 1, ':') {
                        let Some(TokenTree::Ident(next)) = tokens.get(at + 2) else { break };
                        path.push(next.to_string());
                        at += 3;
                    }
                    let before = |c| begin > 0 && punct(begin - 1, c);
                    let variable = before('$') && path[0] != "crate";
                    // A field or method, a path continued after `>`, a lifetime, a macro variable.
                    if before('.') || before('\'') || variable || (begin > 1 && before(':') && punct(begin - 2, ':')) {
                        continue;
                    }
                    let called = punct(at, '!')
                        || matches!(tokens.get(at), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis);
                    if path.len() > 1 || called || !path[0].starts_with(|c: char| c.is_lowercase() || c == '_') {
                        self.path(path, line);
                    }
                }
                _ => at += 1,
            }
        }
    }
}

impl<'ast> Visit<'ast> for References<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !is_test(impl_item_attributes(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !is_test(trait_item_attributes(item)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_test(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = [item.ident.to_string()];
        let Some((_, items)) = &item.content else { return };
        let outer = self.module;
        let inner = self.tree.resolve(outer, &name).into_iter().find_map(|resolved| match resolved {
            Resolved::Module(module) => Some(module),
            Resolved::Item(..) => None,
        });
        if let Some(inner) = inner {
            self.module = inner;
            for item in items {
                self.visit_item(item);
            }
            self.module = outer;
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for import in imports(item) {
            self.import(import);
        }
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        let name = pattern.ident.to_string();
        if name.starts_with(|c: char| c.is_lowercase() || c == '_') {
            self.locals.insert(name);
        } else {
            self.path(vec![name], pattern.ident.span().start().line);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let line = path.segments.first().map_or(0, |s| s.ident.span().start().line);
            self.path(path.segments.iter().map(|s| s.ident.to_string()).collect(), line);
        }
        visit::visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        visit::visit_macro(self, invoked);
        self.tokens(invoked.tokens.clone());
    }
}
