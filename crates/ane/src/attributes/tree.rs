//! A tree of plain values, converted from a property list.

/// A value of a property list, as far as model attributes use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// A string, as UTF-8.
    Text(String),
    /// An integer, possibly negative.
    Number(i64),
    /// A list of values.
    List(Vec<Tree>),
    /// A dictionary with string keys.
    Map(Vec<(String, Tree)>),
    /// Any other value: data, dates, objects.
    Other,
}

impl Tree {
    /// The value for a key, if this is a dictionary that has it.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.entries()?.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The entries, if this is a dictionary.
    pub fn entries(&self) -> Option<&[(String, Tree)]> {
        match self {
            Tree::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The elements, if this is a list.
    pub fn elements(&self) -> Option<&[Tree]> {
        match self {
            Tree::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text, if this is a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number as a size, if this is a nonnegative integer.
    pub fn size(&self) -> Option<usize> {
        match self {
            Tree::Number(number) => usize::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The number as an index, if this is an integer of 32 bits.
    pub fn index(&self) -> Option<u32> {
        self.size().and_then(|n| u32::try_from(n).ok())
    }
}
