//! Helpers over syn's syntax trees: attributes of items, and which items are test code.

use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem, punctuated::Punctuated};

/// The attributes of an item; none for a kind of item that this crate does not know.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The attributes of a member of an `impl` block.
pub(crate) fn impl_item_attributes(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(i) => &i.attrs,
        ImplItem::Fn(i) => &i.attrs,
        ImplItem::Type(i) => &i.attrs,
        ImplItem::Macro(i) => &i.attrs,
        _ => &[],
    }
}

/// The attributes of a member of a trait.
pub(crate) fn trait_item_attributes(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(i) => &i.attrs,
        TraitItem::Fn(i) => &i.attrs,
        TraitItem::Type(i) => &i.attrs,
        TraitItem::Macro(i) => &i.attrs,
        _ => &[],
    }
}

/// Whether code with these attributes is compiled for tests only: `#[test]`, or a `#[cfg]` that
/// cannot hold without `test`.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            attribute.parse_args::<Meta>().is_ok_and(|predicate| needs_test(&predicate))
        } else {
            path.is_ident("test") || path.is_ident("bench")
        }
    })
}

fn needs_test(predicate: &Meta) -> bool {
    match predicate {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let Ok(inner) = inner else { return false };
            if list.path.is_ident("all") {
                inner.iter().any(needs_test)
            } else {
                list.path.is_ident("any") && !inner.is_empty() && inner.iter().all(needs_test)
            }
        }
        Meta::NameValue(_) => false,
    }
}

/// The value of `#[path = "…"]`, if any.
pub(crate) fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Item {
        let mut file = syn::parse_file(text).expect("Rust");
        file.items.remove(0)
    }

    #[test]
    fn only_code_that_needs_test_is_test_code() {
        for text in ["#[test] fn a() {}", "#[cfg(test)] mod a;", "#[cfg(all(loom, test))] use a::b;"] {
            assert!(is_test(attributes(&item(text))), "{text}");
        }
        for text in ["fn a() {}", "#[cfg(not(test))] mod a;", "#[cfg(any(test, feature = \"x\"))] struct A;"] {
            assert!(!is_test(attributes(&item(text))), "{text}");
        }
    }

    #[test]
    fn the_path_of_a_module_is_read() {
        assert_eq!(path_attribute(attributes(&item("#[path = \"b.rs\"] mod a;"))), Some("b.rs".to_owned()));
        assert_eq!(path_attribute(attributes(&item("/// Doc.\nmod a;"))), None);
    }
}
