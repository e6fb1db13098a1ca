//! Compiles a program to a container file, without loading it.
//!
//! `ANECCompile` is a C function of a private framework. Its interface is known from published
//! callers: two dictionaries (the input and the flags), and a block that receives the status. The
//! oldest callers pass nothing for the last argument; here the block is passed. **This crate has
//! never called it on a Mac.** The dictionaries are built as plain data first
//! ([`CompileJob::options`], [`CompileJob::flags`]), so tests can examine them.

use std::path::{Path, PathBuf};

use ferrane_device::{Error, ErrorKind, Result};

/// Architectures that a compiler was observed to accept (apple-runtime §12). It silently treats an
/// unknown one as the host's.
pub const ARCHITECTURES: [&str; 28] = [
    "h11", "h12", "h13", "h13g", "h14", "h14g", "h14c", "h15", "h15g", "h15c", "h16", "h16g", "h16s", "h16c", "h17",
    "h17a", "h17g", "h17s", "h17c", "h17d", "h18", "m9", "m11", "t0", "t1", "u1", "u2", "u3",
];

/// The file name of the compiler's result.
pub const PRODUCT: &str = "model.hwx";

/// The input of a compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// The path of MIL text; weights are at the paths that the text names.
    Mil(PathBuf),
    /// The path of the compiler's own network description, `net.plist`.
    Plist(PathBuf),
}

/// The parameters of a compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileJob {
    /// The program to compile.
    pub network: Network,
    /// An existing folder for the result and the compiler's other files.
    pub out: PathBuf,
    /// The architecture to compile for, such as `h16g`; `None` means the host's.
    pub architecture: Option<String>,
    /// A bit mask of intermediate files to write, if any; 2147483647 selects all of them.
    pub debug_mask: Option<u32>,
}

/// A value of a dictionary, before it becomes an Objective-C object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// An `NSString`.
    Text(String),
    /// An `NSNumber` with an unsigned integer.
    Number(u64),
    /// An `NSNumber` with a BOOL.
    Flag(bool),
    /// An `NSArray`, in order.
    List(Vec<Property>),
    /// An `NSDictionary` with string keys.
    Map(Vec<(&'static str, Property)>),
}

/// The path with a trailing slash, as the compiler expects folders.
fn folder(path: &Path) -> Result<Property> {
    let text = path.to_str().ok_or_else(|| bad(format!("{}: no text", path.display())))?;
    let text = if text.is_empty() { "." } else { text };
    Ok(Property::Text(format!("{}/", text.trim_end_matches('/'))))
}

fn bad(message: String) -> Error {
    Error::new(ErrorKind::Option, message)
}

impl CompileJob {
    /// The first argument: the input and the output path.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] for a path that is not UTF-8 or has no file name.
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

    /// The second argument: the flags.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] for an unknown architecture.
    pub fn flags(&self) -> Result<Property> {
        let mut flags = Vec::new();
        if let Some(name) = &self.architecture {
            if !ARCHITECTURES.contains(&name.as_str()) {
                let known = ARCHITECTURES.join(", ");
                let why = format!(
                    "`{name}` is not a known architecture, and the compiler would use the host's instead: {known}"
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

    /// Compiles and returns the path of the result. An existing result is removed first, so it
    /// cannot be mistaken for the new one.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is no compiler, [`ErrorKind::Unsupported`] with its
    /// status if it refuses the program, [`ErrorKind::System`] if it reports success and wrote no
    /// file.
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
    use crate::bind::{Ended, Handler, HandlerBlock, Held, Object, Wrap as _, catch};

    pub(super) fn find() -> Result<Option<CompileFunction>> {
        #[cfg(target_vendor = "apple")]
        let system = Some(crate::system::find()?);
        #[cfg(not(target_vendor = "apple"))]
        let system = crate::system::find();
        Ok(system.and_then(|system| (system.compiler)()))
    }

    /// The last nonzero status that the block received.
    struct Told(Arc<AtomicU32>);

    impl Handler for Told {
        fn ended(&self, with: Ended) {
            match with {
                Ended::Status(status) if status != 0 => self.0.store(status, Ordering::Release),
                _ => {}
            }
        }
    }

    pub(super) fn compile(function: CompileFunction, options: &Property, flags: &Property) -> Result<()> {
        let (options, flags) = (object(options)?, object(flags)?);
        let status = Arc::new(AtomicU32::new(0));
        let held = Held::new(Told(status.clone()));
        let block = HandlerBlock::with_status(&held);
        // SAFETY: the two dictionaries and the block are alive during the call; a callee that keeps
        // the block copies it.
        let call = || unsafe { function(options.as_ptr(), flags.as_ptr(), std::ptr::from_ref(&block).cast()) };
        let code = objc2::rc::autoreleasepool(|_| catch(call)).map_err(|raised| {
            Error::new(ErrorKind::System, format!("ANECCompile raised {}: {}", raised.name, raised.reason))
        })?;
        let status = status.load(Ordering::Acquire);
        if code == 0 && status == 0 {
            return Ok(());
        }
        let message = format!("ANECCompile() FAILED: it returned {code} and reported the status {status}");
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
        // An invalid job is refused on every system.
        let unknown = CompileJob { architecture: Some("h99".into()), ..job() };
        assert_eq!(unknown.compile().unwrap_err().kind(), ErrorKind::Option);
    }
}
