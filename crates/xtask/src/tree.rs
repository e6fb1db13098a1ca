//! The modules of one crate: which file defines which name.
//!
//! Only code that is compiled without `test` counts. A name may have several definitions (a module
//! and a function of one name, variants of a module for several systems), and all are kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

use crate::syntax::{attributes, is_test, path_attribute};
use crate::workspace::{self, Result};

/// A module, by its index in [`Tree::modules`].
pub(crate) type ModuleId = usize;

/// One source file of a crate.
pub(crate) struct SourceFile {
    /// Relative to the root of the workspace.
    pub(crate) path: PathBuf,
    /// The module that the file is.
    pub(crate) module: ModuleId,
    /// Shared, so that reading the file's modules does not borrow the tree.
    pub(crate) syntax: Rc<syn::File>,
}

/// One module: a file, or a part of one.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Its path from the root of the crate; empty for the root.
    pub(crate) path: Vec<String>,
    /// Index of its file in [`Tree::files`].
    pub(crate) file: usize,
    parent: Option<ModuleId>,
    names: BTreeMap<String, Vec<Definition>>,
    /// What `use path::*` names.
    globs: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
enum Definition {
    /// Defined in this module.
    Item,
    Module(ModuleId),
    /// Imported or exported again by `use`.
    Alias(Vec<String>),
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resolved {
    Module(ModuleId),
    /// An item, with the module that defines it.
    Item(ModuleId, String),
}

/// A crate's modules and files.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) modules: Vec<Module>,
}

/// A path that a `use` declaration imports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// The name in scope; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) line: usize,
    /// Not visible outside of its module.
    pub(crate) private: bool,
}

impl Tree {
    /// Reads the crate in `folder` (relative to `root`): `src/lib.rs`, `src/main.rs`, and what they
    /// declare.
    pub(crate) fn read(root: &Path, folder: &Path) -> Result<Self> {
        let mut tree = Self::default();
        for name in ["lib.rs", "main.rs"] {
            let path = folder.join("src").join(name);
            if root.join(&path).is_file() {
                let children = folder.join("src");
                tree.file(root, path, children, Vec::new(), None)?;
            }
        }
        Ok(tree)
    }

    /// Reads the file of a module and those of the modules that it declares. `children` is the
    /// folder in which these are.
    fn file(
        &mut self,
        root: &Path,
        path: PathBuf,
        children: PathBuf,
        name: Vec<String>,
        parent: Option<ModuleId>,
    ) -> Result<Option<ModuleId>> {
        let text = workspace::read(&root.join(&path))?;
        let syntax = syn::parse_file(&text)
            .map_err(|e| format!("{}:{}: this file is not Rust: {e}", path.display(), e.span().start().line))?;
        if is_test(&syntax.attrs) {
            return Ok(None);
        }
        let (file, module) = (self.files.len(), self.modules.len());
        self.modules.push(Module { path: name, file, parent, ..Module::default() });
        let syntax = Rc::new(syntax);
        self.files.push(SourceFile { path, module, syntax: Rc::clone(&syntax) });
        self.items(root, &syntax.items, &children, module)?;
        Ok(Some(module))
    }

    fn items(&mut self, root: &Path, items: &[Item], children: &Path, module: ModuleId) -> Result<()> {
        for item in items {
            if is_test(attributes(item)) {
                continue;
            }
            if let Some(name) = defined(item) {
                self.define(module, name, Definition::Item);
            }
            let Item::Mod(declared) = item else {
                let mut uses = Uses::default();
                uses.visit_item(item);
                for import in uses.imports {
                    match import.name {
                        Some(name) => self.define(module, name, Definition::Alias(import.path)),
                        None => self.modules[module].globs.push(import.path),
                    }
                }
                continue;
            };
            let name = declared.ident.to_string();
            let mut path = self.modules[module].path.clone();
            path.push(name.clone());
            let inner = children.join(&name);
            let child = if let Some((_, items)) = &declared.content {
                let child = self.modules.len();
                let file = self.modules[module].file;
                self.modules.push(Module { path, file, parent: Some(module), ..Module::default() });
                self.items(root, items, &inner, child)?;
                Some(child)
            } else {
                let (file, inner) = self.module_file(root, declared, module, children, inner)?;
                self.file(root, file, inner, path, Some(module))?
            };
            if let Some(child) = child {
                self.define(module, name, Definition::Module(child));
            }
        }
        Ok(())
    }

    /// The file of `mod name;` and the folder of its children.
    fn module_file(
        &self,
        root: &Path,
        declared: &syn::ItemMod,
        module: ModuleId,
        children: &Path,
        inner: PathBuf,
    ) -> Result<(PathBuf, PathBuf)> {
        let name = declared.ident.to_string();
        let declaring = &self.files[self.modules[module].file].path;
        if let Some(path) = path_attribute(&declared.attrs) {
            let folder = declaring.parent().unwrap_or(Path::new(""));
            let file = folder.join(path);
            let inner = file.parent().unwrap_or(Path::new("")).to_owned();
            return Ok((file, inner));
        }
        [children.join(format!("{name}.rs")), inner.join("mod.rs")]
            .into_iter()
            .find(|path| root.join(path).is_file())
            .map(|path| (path, inner))
            .ok_or_else(|| {
                let line = declared.ident.span().start().line;
                format!("{}:{line}: module `{name}` has no file", declaring.display())
            })
    }

    fn define(&mut self, module: ModuleId, name: String, definition: Definition) {
        self.modules[module].names.entry(name).or_default().push(definition);
    }

    /// What the path means in `module`. Empty if it leads out of the crate, or to a local name.
    pub(crate) fn resolve(&self, module: ModuleId, path: &[String]) -> Vec<Resolved> {
        self.resolve_within(module, path, &mut Vec::new())
    }

    fn resolve_within(&self, module: ModuleId, path: &[String], seen: &mut Vec<(ModuleId, String)>) -> Vec<Resolved> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut found = match first.as_str() {
            "crate" => {
                let mut root = module;
                while let Some(parent) = self.modules[root].parent {
                    root = parent;
                }
                vec![Resolved::Module(root)]
            }
            "self" => vec![Resolved::Module(module)],
            "super" => self.modules[module].parent.map(Resolved::Module).into_iter().collect(),
            name => self.lookup(module, name, seen),
        };
        for name in rest {
            let mut next = Vec::new();
            // Only a module can be what comes before `::` if a function has the same name.
            let modules = found.iter().any(|r| matches!(r, Resolved::Module(_)));
            for resolved in found {
                match resolved {
                    Resolved::Module(m) if name == "super" => {
                        next.extend(self.modules[m].parent.map(Resolved::Module));
                    }
                    Resolved::Module(m) => next.extend(self.lookup(m, name, seen)),
                    // The rest names a variant or an associated item.
                    item @ Resolved::Item(..) if !modules => next.push(item),
                    Resolved::Item(..) => {}
                }
            }
            found = next;
        }
        found.sort();
        found.dedup();
        found
    }

    fn lookup(&self, module: ModuleId, name: &str, seen: &mut Vec<(ModuleId, String)>) -> Vec<Resolved> {
        let key = (module, name.to_owned());
        if seen.contains(&key) {
            return Vec::new();
        }
        seen.push(key);
        let scope = &self.modules[module];
        let mut found = Vec::new();
        for definition in scope.names.get(name).into_iter().flatten() {
            match definition {
                Definition::Item => found.push(Resolved::Item(module, name.to_owned())),
                Definition::Module(child) => found.push(Resolved::Module(*child)),
                // `use a::name;` under its own name must not find itself.
                Definition::Alias(path) => found.extend(self.resolve_within(module, path, seen)),
            }
        }
        if found.is_empty() && !scope.names.contains_key(name) {
            for glob in &scope.globs {
                for resolved in self.resolve_within(module, glob, &mut seen.clone()) {
                    if let Resolved::Module(m) = resolved {
                        found.extend(self.lookup(m, name, seen));
                    }
                }
            }
        }
        seen.pop();
        found
    }
}

/// The names that an item defines in its module, other than modules.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::TraitAlias(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Collects the `use` declarations of an item, those in function bodies included.
#[derive(Default)]
struct Uses {
    imports: Vec<Import>,
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.imports.extend(imports(item));
    }
}

/// The paths that a `use` declaration imports, one for each leaf of its groups. None if it starts
/// with `::`.
pub(crate) fn imports(item: &syn::ItemUse) -> Vec<Import> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        let private = matches!(item.vis, Visibility::Inherited);
        import_tree(&item.tree, &mut Vec::new(), private, &mut found);
    }
    found
}

fn import_tree(tree: &UseTree, prefix: &mut Vec<String>, private: bool, found: &mut Vec<Import>) {
    let mut leaf = |ident: &syn::Ident, name: String| {
        let mut path = prefix.clone();
        let own = ident.to_string();
        // `use a::{self}` imports `a`.
        if own != "self" || path.is_empty() {
            path.push(own.clone());
        }
        let name = if own == "self" && name == own { path.last().cloned().unwrap_or(own) } else { name };
        found.push(Import { path, name: Some(name), line: ident.span().start().line, private });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            import_tree(&path.tree, prefix, private, found);
            prefix.pop();
        }
        UseTree::Name(name) => leaf(&name.ident, name.ident.to_string()),
        UseTree::Rename(rename) => leaf(&rename.ident, rename.rename.to_string()),
        UseTree::Glob(glob) => {
            let line = glob.star_token.span.start().line;
            found.push(Import { path: prefix.clone(), name: None, line, private });
        }
        UseTree::Group(group) => {
            for tree in &group.items {
                import_tree(tree, prefix, private, found);
            }
        }
    }
}
