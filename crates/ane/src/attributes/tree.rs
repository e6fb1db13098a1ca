//! A property tree of plain values.

/// A value of a property list, as far as model attributes use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Values in order.
    List(Vec<Tree>),
    /// Values by key.
    Map(Vec<(String, Tree)>),
    /// Something else: data, dates, objects.
    Other,
}

impl Tree {
    /// The value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.entries()?.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The entries of a map.
    pub fn entries(&self) -> Option<&[(String, Tree)]> {
        match self {
            Tree::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The elements of a list.
    pub fn elements(&self) -> Option<&[Tree]> {
        match self {
            Tree::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number as a size.
    pub fn size(&self) -> Option<usize> {
        match self {
            Tree::Number(number) => usize::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The number as an index.
    pub fn index(&self) -> Option<u32> {
        self.size().and_then(|n| u32::try_from(n).ok())
    }
}
