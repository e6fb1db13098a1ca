//! The compiler's file path: a program to the engine's own container, without loading it.
//!
//! `ANECCompile` is a C function of a private framework. What is known of it comes from published
//! callers: two dictionaries, what to compile and how, and a block that is told the status. Those
//! callers differ in the last argument (nothing, in the oldest); the block is given here. **This
//! crate has never called it on a Mac.** The dictionaries are made as plain data first
//! ([`CompileJob::options`], [`CompileJob::flags`]), which is what tests look at.

use std::path::{Path, PathBuf};

use ferrane_device::{Error, ErrorKind, Result};

/// Architectures that a compiler was seen to know (apple-runtime §12). One that it does not know it
/// takes for the host's, silently.
pub const ARCHITECTURES: [&str; 28] = [
    "h11", "h12", "h13", "h13g", "h14", "h14g", "h14c", "h15", "h15g", "h15c", "h16", "h16g", "h16s", "h16c", "h17",
    "h17a", "h17g", "h17s", "h17c", "h17d", "h18", "m9", "m11", "t0", "t1", "u1", "u2", "u3",
];

/// The name that the compiler gives its result.
pub const PRODUCT: &str = "model.hwx";

/// What is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// MIL text, with its weights where it says.
    Mil(PathBuf),
    /// The compiler's own description of a network, `net.plist`.
    Plist(PathBuf),
}

/// A compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileJob {
    /// What is compiled.
    pub network: Network,
    /// The folder of the result and of what the compiler writes beside it; it must be there.
    pub out: PathBuf,
    /// For which engine: `h16g`; the host's if not given.
    pub architecture: Option<String>,
    /// Which intermediate files the compiler writes; 2147483647 is all of them.
    pub debug_mask: Option<u32>,
}

/// A value of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// Text.
    Text(String),
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// Values in order.
    List(Vec<Property>),
    /// Values by key.
    Map(Vec<(&'static str, Property)>),
}

/// A path as the compiler wants folders: with a slash at its end.
fn folder(path: &Path) -> Result<Property> {
    let text = path.to_str().ok_or_else(|| bad(format!("{}: no text", path.display())))?;
    let text = if text.is_empty() { "." } else { text };
    Ok(Property::Text(format!("{}/", text.trim_end_matches('/'))))
}

fn bad(message: String) -> Error {
    Error::new(ErrorKind::Option, message)
}

impl CompileJob {
    /// What to compile: the first argument.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] for a path that is no text or names no file.
    pub fn options(&self) -> Result<Property> {
        let (path, name_key, path_key) = match &self.network {
            Network::Mil(path) => (path, "NetworkSourceFileName", "NetworkSourcePath"),
            Network::Plist(path) => (path, "NetworkPlistName", "NetworkPlistPath"),
        };
        let name = path.file_name().and_then(|n| n.to_str());
        let name = name.ok_or_else(|| bad(format!("{}: names no file", path.display())))?;
        let beside = path.parent().unwrap_or(Path::new("."));
        let network = Property::Map(vec![(name_key, Property::Text(name.into())), (path_key, folder(beside)?)]);
        Ok(Property::Map(vec![
            ("InputNetworks", Property::List(vec![network])),
            ("OutputFilePath", folder(&self.out)?),
            ("OutputFileName", Property::Text(PRODUCT.into())),
        ]))
    }

    /// How: the second argument.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] for an architecture that no compiler was seen to know.
    pub fn flags(&self) -> Result<Property> {
        let mut flags = Vec::new();
        if let Some(name) = &self.architecture {
            if !ARCHITECTURES.contains(&name.as_str()) {
                let known = ARCHITECTURES.join(", ");
                let why = format!(
                    "`{name}` is no architecture that is known, and the compiler would take the host's: {known}"
                );
                return Err(bad(why));
            }
            flags.push(("TargetArchitecture", Property::Text(name.clone())));
        }
        if let Some(mask) = self.debug_mask {
            flags.push(("CompileANEProgramForDebugging", Property::Flag(true)));
            flags.push(("DebugMask", Property::Number(u64::from(mask))));
        }
        Ok(Property::Map(flags))
    }

    /// Compiles; gives the path of the result. One that is there from before is removed first, so
    /// that it is not taken for this one's.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where there is no compiler, [`ErrorKind::Unsupported`] with its
    /// status where it refused, [`ErrorKind::System`] if it says that it succeeded and wrote
    /// nothing.
    pub fn compile(&self) -> Result<PathBuf> {
        let (options, flags) = (self.options()?, self.flags()?);
        #[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
        if let Some(function) = call::find()? {
            let product = self.out.join(PRODUCT);
            let failed =
                |what: &str, e| Error::new(ErrorKind::System, format!("{}: {what}", product.display())).with_source(e);
            match std::fs::remove_file(&product) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed("cannot be replaced", e)),
                _ => call::compile(function, &options, &flags)?,
            }
            return match std::fs::metadata(&product) {
                Ok(_) => Ok(product),
                Err(e) => Err(failed("ANECCompile reports success and wrote nothing", e)),
            };
        }
        let _ = (options, flags);
        let os = std::env::consts::OS;
        let message = format!("the compiler is a framework of macOS, ANECompiler, which is not there; this is {os}");
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

#[cfg(any(target_vendor = "apple", feature = "objc-runtime"))]
mod call {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use ferrane_device::{Error, ErrorKind, Result};

    use super::Property;
    use crate::CompileFunction;
    use crate::bind::foundation::{flag, list, map, number, text};
    use crate::bind::{Handler, HandlerBlock, Held, Object, Wrap as _, catch};

    pub(super) fn find() -> Result<Option<CompileFunction>> {
        #[cfg(target_vendor = "apple")]
        let system = Some(crate::system::find()?);
        #[cfg(not(target_vendor = "apple"))]
        let system = crate::system::find();
        Ok(system.and_then(|system| (system.compiler)()))
    }

    /// The last status that was not 0.
    struct Told(Arc<AtomicU32>);

    impl Handler for Told {
        fn ended(&self, status: Option<u32>) {
            if let Some(status) = status.filter(|s| *s != 0) {
                self.0.store(status, Ordering::Release);
            }
        }
    }

    pub(super) fn compile(function: CompileFunction, options: &Property, flags: &Property) -> Result<()> {
        let (options, flags) = (object(options)?, object(flags)?);
        let status = Arc::new(AtomicU32::new(0));
        let held = Held::new(Told(status.clone()));
        let block = HandlerBlock::with_status(&held);
        // SAFETY: two dictionaries and a block, which live through the call; whoever keeps the
        // block copies it.
        let call = || unsafe { function(options.as_ptr(), flags.as_ptr(), std::ptr::from_ref(&block).cast()) };
        let code = objc2::rc::autoreleasepool(|_| catch(call)).map_err(|raised| {
            Error::new(ErrorKind::System, format!("ANECCompile raised {}: {}", raised.name, raised.reason))
        })?;
        let status = status.load(Ordering::Acquire);
        if code == 0 && status == 0 {
            return Ok(());
        }
        let message = format!("ANECCompile() FAILED: it returned {code} and told the status {status}");
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    fn object(property: &Property) -> Result<Object> {
        Ok(match property {
            Property::Text(value) => text(value)?.object().clone(),
            Property::Number(value) => number(*value)?.object().clone(),
            Property::Flag(value) => flag(*value)?.object().clone(),
            Property::List(values) => {
                let values = values.iter().map(object).collect::<Result<Vec<_>>>()?;
                list(&values)?.object().clone()
            }
            Property::Map(entries) => {
                let entries = entries.iter().map(|(k, v)| Ok((*k, object(v)?))).collect::<Result<Vec<_>>>()?;
                map(entries)?.object().clone()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> CompileJob {
        CompileJob {
            network: Network::Mil("in/model.mil".into()),
            out: "out".into(),
            architecture: Some("h16g".into()),
            debug_mask: Some(i32::MAX as u32),
        }
    }

    #[test]
    fn the_dictionaries_are_those_of_published_callers() {
        let text = |t: &str| Property::Text(t.into());
        let network = |name, path| Property::List(vec![Property::Map(vec![name, path])]);
        let mil = network(("NetworkSourceFileName", text("model.mil")), ("NetworkSourcePath", text("in/")));
        let rest = |networks| {
            Property::Map(vec![
                ("InputNetworks", networks),
                ("OutputFilePath", text("out/")),
                ("OutputFileName", text("model.hwx")),
            ])
        };
        assert_eq!(job().options().unwrap(), rest(mil));
        let plist = network(("NetworkPlistName", text("net.plist")), ("NetworkPlistPath", text("./")));
        let other = CompileJob { network: Network::Plist("net.plist".into()), ..job() };
        assert_eq!(other.options().unwrap(), rest(plist));
        assert_eq!(
            job().flags().unwrap(),
            Property::Map(vec![
                ("TargetArchitecture", text("h16g")),
                ("CompileANEProgramForDebugging", Property::Flag(true)),
                ("DebugMask", Property::Number(2_147_483_647)),
            ])
        );
        let plain = CompileJob { architecture: None, debug_mask: None, ..job() };
        assert_eq!(plain.flags().unwrap(), Property::Map(Vec::new()));
        let unknown = CompileJob { architecture: Some("h99".into()), ..job() };
        assert!(unknown.flags().unwrap_err().message().contains("`h99`"));
        let nothing = CompileJob { network: Network::Mil("..".into()), ..job() };
        assert_eq!(nothing.options().unwrap_err().kind(), ErrorKind::Option);
    }

    #[cfg(not(target_vendor = "apple"))]
    #[test]
    fn without_macos_there_is_no_compiler() {
        let error = job().compile().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("macOS"), "{error}");
        // What is wrong anywhere is said anywhere.
        let unknown = CompileJob { architecture: Some("h99".into()), ..job() };
        assert_eq!(unknown.compile().unwrap_err().kind(), ErrorKind::Option);
    }
}
