//! Doc comments that say nothing: "Its name.", "The layout.", anything of up to three words.
//!
//! A short comment with code, a number or a citation says something: "`1 - y²`.", a section sign.

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Ident, ImplItem, Item, Lit, Meta, TraitItem};

use crate::syntax::{attributes, impl_item_attributes, trait_item_attributes};

/// A doc comment of at most so many words is a stub.
const WORDS: usize = 3;

/// A doc comment that says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stub {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The stubs of a file. None if it is not Rust.
pub(super) fn stubs(source: &str) -> Vec<Stub> {
    let mut reader = Reader { stubs: Vec::new() };
    if let Ok(file) = syn::parse_file(source) {
        reader.visit_file(&file);
    }
    reader.stubs
}

struct Reader {
    stubs: Vec<Stub>,
}

impl Reader {
    fn documented(&mut self, name: Option<&Ident>, attributes: &[Attribute]) {
        let mut text = String::new();
        let mut line = None;
        for attribute in attributes {
            let Meta::NameValue(pair) = &attribute.meta else { continue };
            let Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) = &pair.value else { continue };
            if pair.path.is_ident("doc") {
                line = line.or(Some(attribute.pound_token.span.start().line));
                text = format!("{text} {}", value.value().trim());
            }
        }
        let (Some(line), text) = (line, text.trim()) else { return };
        if is_stub(text, name.map(Ident::to_string).as_deref()) {
            self.stubs.push(Stub { line, text: text.to_owned() });
        }
    }
}

fn is_stub(text: &str, name: Option<&str>) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() <= WORDS {
        return !text.contains(|c: char| c == '`' || c == '§' || c.is_ascii_digit());
    }
    let said: String = words[1..].concat().chars().filter(|c| c.is_alphanumeric()).collect();
    let named: String = name.unwrap_or_default().chars().filter(|c| c.is_alphanumeric()).collect();
    matches!(words[0], "Its" | "The" | "A" | "An") && said.eq_ignore_ascii_case(&named)
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let name = match item {
            Item::Const(i) => Some(&i.ident),
            Item::Enum(i) => Some(&i.ident),
            Item::Fn(i) => Some(&i.sig.ident),
            Item::Macro(i) => i.ident.as_ref(),
            Item::Mod(i) => Some(&i.ident),
            Item::Static(i) => Some(&i.ident),
            Item::Struct(i) => Some(&i.ident),
            Item::Trait(i) => Some(&i.ident),
            Item::Type(i) => Some(&i.ident),
            Item::Union(i) => Some(&i.ident),
            _ => None,
        };
        self.documented(name, attributes(item));
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let name = match item {
            ImplItem::Const(i) => Some(&i.ident),
            ImplItem::Fn(i) => Some(&i.sig.ident),
            ImplItem::Type(i) => Some(&i.ident),
            _ => None,
        };
        self.documented(name, impl_item_attributes(item));
        visit::visit_impl_item(self, item);
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let name = match item {
            TraitItem::Const(i) => Some(&i.ident),
            TraitItem::Fn(i) => Some(&i.sig.ident),
            TraitItem::Type(i) => Some(&i.ident),
            _ => None,
        };
        self.documented(name, trait_item_attributes(item));
        visit::visit_trait_item(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.documented(field.ident.as_ref(), &field.attrs);
        visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.documented(Some(&variant.ident), &variant.attrs);
        visit::visit_variant(self, variant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_comments_and_repeated_names_are_stubs() {
        let source = "\
/// Its name.
struct A {
    /// The row stride.
    row_stride: usize,
    /// The bytes per row of a plane.
    stride: usize,
    /// The maximal kernel height.
    maximal_kernel_height: usize,
}
enum E {
    /// Addition.
    Add,
}
impl A {
    /// Runs it.
    fn run() {}
    /// `1 - y²`.
    fn other() {}
    /// In fp32.
    fn wide() {}
    /// Runs the plan on the surfaces.
    fn run_plan() {}
}
// Not a doc comment.
fn f() {}
";
        let found: Vec<_> = stubs(source).into_iter().map(|s| (s.line, s.text)).collect();
        let wanted = [
            (1, "Its name."),
            (3, "The row stride."),
            (7, "The maximal kernel height."),
            (11, "Addition."),
            (15, "Runs it."),
        ];
        assert_eq!(found, wanted.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn comments_of_several_lines_count_together() {
        assert_eq!(stubs("/// One two\n/// three four.\nfn f() {}\n"), []);
        assert_eq!(stubs("not Rust {"), []);
    }
}
