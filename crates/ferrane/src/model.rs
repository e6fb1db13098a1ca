//! Model files, opened so that they can be called.
//!
//! A [`Model`] is a function of a file of any kind (`.mil`, `.mlpackage`, `.mlmodel`, `.mlmodelc`,
//! `.onnx`, `.aimodel`) that is ready to run: its inputs have extents, its outputs are tensors, and
//! what the file says about images and class labels is applied to them. The steps before that are
//! here too, for a caller that shows the diagnostics or needs only the program: [`open_checked`],
//! [`ModelProgram`], [`function`] and [`shaped`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ferrane_coreai as coreai;
use ferrane_device::{Call, Device, Error, Returned, Tensors};
use ferrane_diag::{Diagnostics, Source, did_you_mean};
use ferrane_emulator::audit::{Audit, AuditOptions, audit};
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::classifier::{self, Classifier, Label};
use ferrane_mil::package::{
    self, Care, Checked, ColorSpace, Description, FeatureType, Form, PackageError, ShapeChoice, ShapeError,
    WriteOptions, Written, choose_shapes, input_shapes,
};
use ferrane_mil::{Constant, Function, MilError, Program, specialize};
use ferrane_onnx as onnx;
use ferrane_tensor_io::{
    self as tensor_io, Fit, Format, TensorSource, Unnamed, arguments, given_shapes, with_images, write_folder,
    write_folder_with_images,
};

/// Why a model file is not opened or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The path names nothing.
    #[error("{}: no such file", .0.display())]
    NoFile(PathBuf),
    /// A container that is no program, or is damaged.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// An ONNX model that is damaged.
    #[error("{}: {source}", .path.display())]
    Onnx {
        /// Path of the model.
        path: PathBuf,
        /// What is wrong with it.
        source: onnx::Error,
    },
    /// A Core AI model that is damaged.
    #[error("{}: {source}", .path.display())]
    CoreAi {
        /// Path of the model.
        path: PathBuf,
        /// What is wrong with it.
        source: coreai::Error,
    },
    /// A program that Core AI cannot express.
    #[error("{}: {refusals}", .path.display())]
    NoCoreAi {
        /// Path of the model that was to be written.
        path: PathBuf,
        /// Every op without a counterpart, with its reason.
        refusals: coreai::Refusals,
    },
    /// A program with errors, or a model that MIL cannot express. The message lists them.
    #[error("{}: the program is not right:\n{}", .text.name(), .diagnostics.render(.text, false).trim_end())]
    Program {
        /// The text that the diagnostics point into; empty if there is none.
        text: Source,
        /// All errors and warnings.
        diagnostics: Diagnostics,
    },
    /// An item of [`ModelOptions::shapes`] that is no choice of shapes.
    #[error("`shapes` {text}: {reason}")]
    Shapes {
        /// The item, as it was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The program has no function of the name that [`ModelOptions::function`] has.
    #[error("`function` {name}: no such function{hint}")]
    Function {
        /// The name that was given.
        name: String,
        /// The nearest name if one is similar, and those that there are.
        hint: String,
    },
    /// The program has no function at all.
    #[error("the program has no function")]
    NoFunction,
    /// Outputs are to be written as images, but none is one.
    #[error("`format` png: `{function}` has no output that its description calls an image; write npy")]
    NoImage {
        /// Name of the function.
        function: String,
    },
    /// Shapes that the description does not allow.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// An op that does not accept the chosen shapes.
    #[error(transparent)]
    Mil(#[from] MilError),
    /// A value of an input, or a file for an output.
    #[error(transparent)]
    Tensor(#[from] tensor_io::Error),
    /// The device's own error.
    #[error("{0}")]
    Device(#[from] Error),
}

/// How a model file is opened. The default takes the function `main`, or the first one, with the
/// shapes that its values have or the file has as defaults.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelOptions {
    /// The name of the function; `None` for `main`, or the first one.
    pub function: Option<String>,
    /// Shapes of inputs where the file allows several, each item a list such as
    /// `ids=1x128,mask=1x128`; the numbers of an ONNX model's named extents, `batch=1,seq=128`;
    /// those of a Core AI model, `x=1x128` or `x.0=1`.
    pub shapes: Vec<String>,
    /// What happens to an image of another size than the input.
    pub fit: Fit,
    /// The seed of random values for inputs that no source names, as in [`Unnamed::Random`]; if
    /// `None`, such an input is an error.
    pub random: Option<u64>,
    /// How an ONNX model becomes a program. Its dimensions are completed by `shapes`.
    pub onnx: onnx::Options,
    /// How a Core AI model becomes a program. Its dimensions are completed by `shapes`.
    pub coreai: coreai::ConversionOptions,
}

impl ModelOptions {
    /// With the function of this name instead of the default one.
    pub fn function(mut self, name: &str) -> ModelOptions {
        self.function = Some(name.to_string());
        self
    }

    /// With shapes, or numbers of named extents, in addition to those given before.
    pub fn shape(mut self, list: &str) -> ModelOptions {
        self.shapes.push(list.to_string());
        self
    }

    /// With this treatment of images.
    pub fn fit(mut self, fit: Fit) -> ModelOptions {
        self.fit = fit;
        self
    }

    /// With random values for inputs that no source names.
    pub fn random(mut self, seed: u64) -> ModelOptions {
        self.random = Some(seed);
        self
    }

    /// With these options of an ONNX model.
    pub fn onnx(mut self, options: onnx::Options) -> ModelOptions {
        self.onnx = options;
        self
    }

    /// With these options of a Core AI model.
    pub fn coreai(mut self, options: coreai::ConversionOptions) -> ModelOptions {
        self.coreai = options;
        self
    }
}

/// True for a file whose extents are chosen when its program is made: an ONNX or a Core AI model.
/// Shapes of other files are chosen of the program ([`shaped`]).
pub fn chooses_extents(path: &Path) -> bool {
    onnx::is_model(path) || coreai::is_model(path)
}

/// Where the ops of a model come from, by the names of function and first result: the modules of
/// PyTorch and the line, as a Core AI model names them. Empty for every other file, and where the
/// model cannot be read.
pub fn origins(path: impl AsRef<Path>, options: &ModelOptions) -> coreai::Origins {
    let path = path.as_ref();
    let extents = |extents: coreai::ConversionOptions, text: &String| extents.dimension_list(text);
    let chosen = options.shapes.iter().try_fold(options.coreai.clone(), extents);
    match (coreai::is_model(path), chosen, coreai::Asset::open(path)) {
        (true, Ok(chosen), Ok(asset)) => asset.origins(&chosen).unwrap_or_default(),
        _ => coreai::Origins::new(),
    }
}

/// Opens a model file of any kind with everything that is wrong with it: errors in a text, and what
/// MIL cannot express of an ONNX or a Core AI model, are among the diagnostics. Shapes are chosen
/// later ([`shaped`]), except for these two.
///
/// # Errors
/// [`ModelError::NoFile`], [`ModelError::Package`], [`ModelError::Onnx`], [`ModelError::CoreAi`];
/// [`ModelError::Shapes`] for an ONNX or a Core AI model.
pub fn open_checked(path: impl AsRef<Path>, care: Care, options: &ModelOptions) -> Result<Checked, ModelError> {
    let path = path.as_ref();
    let wrong = |text: &String, reason| ModelError::Shapes { text: text.clone(), reason };
    let found = |path: &Path| match path.exists() {
        true => Ok(()),
        false => Err(ModelError::NoFile(path.to_path_buf())),
    };
    if onnx::is_model(path) {
        let extents =
            |extents: onnx::Options, text: &String| extents.dimension_list(text).map_err(|reason| wrong(text, reason));
        let extents = options.shapes.iter().try_fold(options.onnx.clone(), extents)?;
        found(path)?;
        let failed = |source| ModelError::Onnx { path: path.to_path_buf(), source };
        return onnx::open_checked(path, &extents).map_err(failed);
    }
    if coreai::is_model(path) {
        let extents = |extents: coreai::ConversionOptions, text: &String| {
            extents.dimension_list(text).map_err(|reason| wrong(text, reason))
        };
        let extents = options.shapes.iter().try_fold(options.coreai.clone(), extents)?;
        found(path)?;
        let failed = |source| ModelError::CoreAi { path: path.to_path_buf(), source };
        return coreai::open_checked(path, &extents).map_err(failed);
    }
    match package::open_checked(path, care) {
        Err(PackageError::Io { path: at, source }) if at == path && source.kind() == ErrorKind::NotFound => {
            Err(ModelError::NoFile(at))
        }
        found => Ok(found?),
    }
}

/// Writes a program in the form of the caller's choice: as [`package::write_as`] does, and also as
/// a Core AI model, whose compressed constants the emulator computes where Core AI has no form for
/// them.
///
/// ```
/// use ferrane::mil::package::{Form, WriteOptions};
/// use ferrane::model::{ModelOptions, open_checked, write_as};
/// # use ferrane::mil::{Builder, DataType, Opset, Type, package::Care};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.aimodel");
/// # let mut b = Builder::new("main", Opset::IOS18);
/// # let x = b.input("x", Type::tensor(DataType::Fp16, &[1, 4]))?;
/// # let y = b.op("relu", "y", [("x", x.into())])?;
/// # let program = b.finish(&[("y", y)])?;
/// write_as(&program, &path, Form::of_target(&path)?, &WriteOptions::default())?;
/// let back = open_checked(&path, Care::Form, &ModelOptions::default())?;
/// assert!(back.program.is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ModelError::Package`]; for a Core AI model [`ModelError::NoCoreAi`] and
/// [`ModelError::CoreAi`].
pub fn write_as(
    program: &Program,
    path: impl AsRef<Path>,
    form: Form,
    options: &WriteOptions<'_>,
) -> Result<Written, ModelError> {
    let path = path.as_ref();
    if form != Form::CoreAi {
        return Ok(package::write_as(program, path, form, options)?);
    }
    if !options.overwrite && path.symlink_metadata().is_ok() {
        return Err(PackageError::Exists { path: path.to_path_buf() }.into());
    }
    let emulator = Emulator::new(EmulatorOptions::default());
    let model = coreai::to_coreai(program, &emulator)
        .map_err(|refusals| ModelError::NoCoreAi { path: path.to_path_buf(), refusals })?;
    coreai::asset::write(path, &model, &coreai::asset::metadata())
        .map_err(|source| ModelError::CoreAi { path: path.to_path_buf(), source })?;
    let dropped = options.description.map(|_| "a Core AI model holds names and types alone".to_string());
    Ok(Written { files: vec![path.to_path_buf()], dropped })
}

/// The program of a model file, and what came with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelProgram {
    /// The form that the file had.
    pub form: Form,
    /// The program, right as far as the [`Care`] requires.
    pub program: Program,
    /// What a package says about itself; text says nothing.
    pub description: Option<Description>,
    /// Warnings about the text and the weight files.
    pub warnings: Diagnostics,
    /// What the file is called, and the text that the warnings point into; empty if there is none.
    pub source: Source,
}

impl ModelProgram {
    /// Opens a file that must hold a program.
    ///
    /// # Errors
    /// As [`open_checked`] and [`ModelProgram::new`].
    pub fn open(path: impl AsRef<Path>, care: Care, options: &ModelOptions) -> Result<ModelProgram, ModelError> {
        ModelProgram::new(open_checked(path, care, options)?)
    }

    /// A program that was made here and is in no file; messages call it `name`.
    pub fn made(name: &str, program: Program) -> ModelProgram {
        let source = Source::new(name, "");
        ModelProgram { form: Form::Text, program, description: None, warnings: Diagnostics::new(), source }
    }

    /// The program of a file that was opened.
    ///
    /// # Errors
    /// [`ModelError::Program`] if there is none.
    pub fn new(opened: Checked) -> Result<ModelProgram, ModelError> {
        let Checked { form, program, description, diagnostics, source } = opened;
        match program {
            Some(program) => Ok(ModelProgram { form, program, description, warnings: diagnostics, source }),
            None => Err(ModelError::Program { text: source, diagnostics }),
        }
    }

    /// The program with the shapes that the options and the values choose, see [`shaped`].
    ///
    /// # Errors
    /// As [`shaped`].
    pub fn shaped(
        self,
        options: &ModelOptions,
        sources: &[(String, TensorSource)],
    ) -> Result<ModelProgram, ModelError> {
        let program = shaped(self.program, self.form, self.description.as_ref(), options, sources)?;
        Ok(ModelProgram { program, ..self })
    }
}

/// The function of that name; without one, `main`, or the first one.
///
/// # Errors
/// [`ModelError::Function`], [`ModelError::NoFunction`].
pub fn function<'a>(program: &'a Program, name: Option<&str>) -> Result<&'a Function, ModelError> {
    let Some(name) = name else {
        return program.function("main").or(program.functions.first()).ok_or(ModelError::NoFunction);
    };
    program.function(name).ok_or_else(|| {
        let names = || program.functions.iter().map(|f| f.name.as_str());
        let known: Vec<&str> = names().collect();
        let hint = format!("{} (there are {})", did_you_mean(name, names()), known.join(", "));
        ModelError::Function { name: name.to_string(), hint }
    })
}

/// The program with a shape for each input of the chosen function: the one that the options choose,
/// else that of its value, else the default of the description. An input for which there is none of
/// these keeps its unknown extents. Of an ONNX or a Core AI model, whose extents are chosen when it
/// is opened, the options choose none.
///
/// # Errors
/// [`ModelError::Shapes`]; [`ModelError::Shape`] for shapes that the description does not allow;
/// [`ModelError::Mil`] for an op that does not accept them; as [`function`] and [`given_shapes`].
pub fn shaped(
    program: Program,
    form: Form,
    description: Option<&Description>,
    options: &ModelOptions,
    sources: &[(String, TensorSource)],
) -> Result<Program, ModelError> {
    let shapes = if matches!(form, Form::Onnx | Form::CoreAi) { &[] } else { options.shapes.as_slice() };
    let mut choices: Vec<ShapeChoice> = Vec::new();
    for text in shapes {
        let failed = |reason: String| ModelError::Shapes { text: text.clone(), reason };
        for choice in ShapeChoice::parse_list(text).map_err(|e| failed(e.to_string()))? {
            if choices.iter().any(|c| c.name == choice.name) {
                return Err(failed(format!("`{}` is given twice", choice.name)));
            }
            choices.push(choice);
        }
    }
    let entry = function(&program, options.function.as_deref())?;
    let chosen = choose_shapes(&input_shapes(entry, description), &choices, &given_shapes(entry, sources)?)?;
    if chosen.is_empty() {
        return Ok(program);
    }
    Ok(specialize(&program, &entry.name, &chosen, &crate::emulator("emulator")?)?)
}

/// A function of a model file, ready to run on any device.
///
/// ```
/// use ferrane::tensor_io::TensorSource;
/// use ferrane::{Model, ModelOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.mil");
/// # std::fs::write(&path, "program(1.3) { func main<ios18>(tensor<fp16, [2]> x) {
/// #     tensor<fp16, [2]> y = relu(x = x)[name = string(\"y\")]; } -> (y); }")?;
/// let model = Model::open(&path, &ModelOptions::default())?;
/// let x = TensorSource::parse_named("x=[-1, 2]")?;
/// let returned = model.run(&ferrane::open("emulator")?, &[x])?;
/// assert_eq!(returned.get("y")?.to_f32(), [0.0, 2.0]);
/// # Ok(())
/// # }
/// ```
///
/// [`Model::run`] compiles the program each time. To run it often, load [`Model::program`] with
/// [`Device::load`] and give the executable what [`Model::call`] returns.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    program: Program,
    /// Position of the function in the program.
    at: usize,
    description: Option<Description>,
    classifier: Option<Classifier>,
    /// The program before its `classify` was taken off.
    attached: Option<Program>,
    images: Vec<(String, ColorSpace)>,
    fit: Fit,
    unnamed: Unnamed,
}

impl Model {
    /// Opens a model file.
    ///
    /// # Errors
    /// A [`ModelError`]; its message shows what is wrong with a program.
    pub fn open(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Model, ModelError> {
        Model::new(ModelProgram::open(path, Care::Whole, options)?, options, &[])
    }

    /// The model of a program that was opened already. Inputs whose extents may vary get the shapes
    /// of the values that `sources` have for them, unless the options choose others.
    ///
    /// # Errors
    /// As [`shaped`].
    pub fn new(
        program: ModelProgram,
        options: &ModelOptions,
        sources: &[(String, TensorSource)],
    ) -> Result<Model, ModelError> {
        let description = program.description.as_ref();
        let entry = function(&program.program, options.function.as_deref())?;
        let function = entry.name.clone();
        let sources = with_images(sources.to_vec(), entry, description, options.fit);
        let ModelProgram { program, description, source, .. } = program.shaped(options, &sources)?;
        let (program, classifier, attached) = match classifier::detach(&program, &function)? {
            Some((detached, classifier)) => (detached, Some(classifier), Some(program)),
            None => (program, None, None),
        };
        let at = program.functions.iter().position(|f| f.name == function).ok_or(ModelError::NoFunction)?;
        let ports = description.as_ref().map(|d| d.functions()).unwrap_or_default();
        let outputs = ports.into_iter().filter(|p| p.function == function).flat_map(|p| p.outputs);
        let images = outputs.filter_map(|output| match output.ty {
            FeatureType::Image(image) => Some((output.name, image.color?)),
            _ => None,
        });
        Ok(Model {
            name: source.name().to_string(),
            program,
            at,
            images: images.collect(),
            description,
            classifier,
            attached,
            fit: options.fit,
            unnamed: options.random.map_or(Unnamed::Refuse, Unnamed::Random),
        })
    }

    /// The program, with the function for the chosen shapes and without its `classify`.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program for a file: as [`Model::program`], with its `classify`.
    pub fn whole_program(&self) -> &Program {
        self.attached.as_ref().unwrap_or(&self.program)
    }

    /// The function that runs.
    pub fn function(&self) -> &Function {
        &self.program.functions[self.at]
    }

    /// What a package says about itself; `None` for text.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// The labels of the output that holds probabilities, if the function is a classifier.
    pub fn classifier(&self) -> Option<&Classifier> {
        self.classifier.as_ref()
    }

    /// The outputs that the description calls images, with the order of their channels.
    pub fn images(&self) -> &[(String, ColorSpace)] {
        &self.images
    }

    /// The sources, where image files know how the described input takes their pixels.
    pub fn sources(&self, sources: &[(String, TensorSource)]) -> Vec<(String, TensorSource)> {
        with_images(sources.to_vec(), self.function(), self.description.as_ref(), self.fit)
    }

    /// The call with a tensor for each input. States begin as zeros unless a source names them.
    ///
    /// # Errors
    /// [`ModelError::Tensor`]: a source names no input, an input has no value, or a value does not
    /// fit.
    pub fn call(&self, sources: &[(String, TensorSource)]) -> Result<Call, ModelError> {
        Ok(arguments(self.function(), &self.sources(sources), self.unnamed)?.label(self.name.as_str()))
    }

    /// Runs the function once.
    ///
    /// # Errors
    /// As [`Model::call`]; [`ModelError::Device`].
    pub fn run(&self, device: &Device, sources: &[(String, TensorSource)]) -> Result<Returned, ModelError> {
        Ok(device.call(&self.program, self.call(sources)?)?)
    }

    /// Compares the values of every op under several arithmetics; see [`crate::audit`].
    ///
    /// # Errors
    /// [`ModelError::Device`], as [`ferrane_emulator::audit::audit`].
    pub fn audit(&self, call: &Call, options: &AuditOptions) -> Result<Audit, ModelError> {
        let constants = |tensors: &Tensors| -> Vec<(String, Constant)> {
            tensors.iter().map(|(name, tensor)| (name.clone(), tensor.to_constant())).collect()
        };
        let states = constants(call.given_states()).into_iter().collect();
        Ok(audit(&self.program, &self.function().name, &constants(call.given_inputs()), &states, options)?)
    }

    /// The classes by probability, the most probable first; none if the function is no classifier.
    ///
    /// # Errors
    /// [`ModelError::Device`] if the output with the probabilities is missing, [`ModelError::Mil`]
    /// if it has another length.
    pub fn classes(&self, outputs: &Tensors) -> Result<Vec<(&Label, f32)>, ModelError> {
        let Some(classifier) = &self.classifier else { return Ok(Vec::new()) };
        Ok(classifier.ranked(&outputs.get(&classifier.probabilities_output)?.to_f32())?)
    }

    /// Checks that outputs can be written in a format, before they are computed.
    ///
    /// # Errors
    /// [`ModelError::NoImage`] for [`Format::Png`] if no output is an image.
    pub fn check_format(&self, format: Format) -> Result<(), ModelError> {
        if format == Format::Png && self.images.is_empty() {
            return Err(ModelError::NoImage { function: self.function().name.clone() });
        }
        Ok(())
    }

    /// Writes outputs to files in a folder, as [`write_folder`] does, and returns the path for
    /// each. As [`Format::Png`], images become PNG files and other outputs `.npy` files.
    ///
    /// # Errors
    /// As [`Model::check_format`]; [`ModelError::Tensor`].
    pub fn write_outputs(&self, folder: &Path, format: Format, outputs: &Tensors) -> Result<Vec<PathBuf>, ModelError> {
        self.check_format(format)?;
        Ok(match format {
            Format::Png => write_folder_with_images(folder, outputs, &self.images)?,
            _ => write_folder(folder, format, outputs)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use ferrane_mil::package::read_checked;

    use super::*;

    const TWO: &str = "program(1.3) {
        func first<ios18>(tensor<fp32, [?, 2]> x) { tensor<fp32, [?, 2]> y = relu(x = x)[name = string(\"y\")]; } -> (y);
        func main<ios18>(tensor<fp32, [2]> x) { tensor<fp32, [2]> y = exp(x = x)[name = string(\"y\")]; } -> (y); }";

    fn program(text: &str) -> Result<ModelProgram, ModelError> {
        ModelProgram::new(read_checked("two.mil", text.as_bytes(), Care::Whole))
    }

    fn sources(list: &[&str]) -> Vec<(String, TensorSource)> {
        list.iter().map(|text| TensorSource::parse_named(text).unwrap()).collect()
    }

    /// A package that coremltools converted, or an image for it.
    fn converted(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/fixtures/converted").join(name)
    }

    fn device() -> Device {
        crate::open("emulator").unwrap()
    }

    #[test]
    fn a_function_has_a_name_or_is_main_or_the_first() {
        let two = program(TWO).unwrap();
        assert_eq!(function(&two.program, None).unwrap().name, "main");
        assert_eq!(function(&two.program, Some("first")).unwrap().name, "first");
        let error = function(&two.program, Some("mian")).unwrap_err().to_string();
        assert_eq!(error, "`function` mian: no such function, did you mean `main`? (there are first, main)");
        let first = program(&TWO.replace("func main", "func last")).unwrap();
        assert_eq!(function(&first.program, None).unwrap().name, "first");
        let Err(error) = program(&TWO.replace("relu", "rellu")) else { panic!("`rellu` is no op") };
        let error = error.to_string();
        assert!(error.starts_with("two.mil: the program is not right:\n") && error.contains("rellu"), "{error}");
    }

    #[test]
    fn shapes_are_those_of_choices_or_values() {
        let run = |options: &ModelOptions, list: &[&str]| {
            let sources = sources(list);
            let model = Model::new(program(TWO).unwrap(), options, &sources)?;
            Ok::<_, ModelError>(model.run(&device(), &sources)?.get("y")?.shape().to_vec())
        };
        let first = ModelOptions::default().function("first");
        assert_eq!(run(&first, &["x=[[1, 2], [3, 4], [5, 6]]"]).unwrap(), [3, 2]);
        assert_eq!(run(&first.clone().shape("x=4x2").random(1), &[]).unwrap(), [4, 2]);
        assert!(matches!(run(&first, &[]), Err(ModelError::Tensor(tensor_io::Error::Missing { .. }))));
        for list in ["x=4x2,x=5x2", "x"] {
            let error = run(&first.clone().shape(list), &["x=1"]).unwrap_err();
            assert!(matches!(&error, ModelError::Shapes { text, .. } if text == list), "{error}");
        }
        assert!(matches!(run(&first.shape("x=4x3"), &["x=1"]), Err(ModelError::Shape(_))));
    }

    #[test]
    fn an_onnx_model_is_opened_like_a_package() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/mlp.onnx");
        let options = ModelOptions::default().random(1);
        let model = Model::open(&path, &options.clone().shape("batch=3")).unwrap();
        let returned = model.run(&device(), &[]).unwrap();
        assert_eq!(returned.outputs.iter().next().unwrap().1.shape()[0], 3);
        assert!(matches!(Model::open(&path, &options), Err(ModelError::Program { .. })), "`batch` has no number");
        assert!(matches!(Model::open(&path, &options.shape("batch")), Err(ModelError::Shapes { .. })));
        for name in ["none.onnx", "none.mil"] {
            assert!(matches!(Model::open(name, &ModelOptions::default()), Err(ModelError::NoFile(_))), "{name}");
        }
    }

    #[test]
    fn images_and_labels_are_those_of_the_description() {
        let photo = format!("image={}", converted("photo.png").display());
        let run = |name: &str, options: &ModelOptions| {
            let sources = sources(&[&photo]);
            let model = Model::open(converted(name), options)?;
            let outputs = model.run(&device(), &sources)?.outputs;
            Ok::<_, ModelError>((model, outputs))
        };
        let folder = tempfile::tempdir().unwrap();
        let options = ModelOptions::default();
        let (model, outputs) = run("image_bgr.mlpackage", &options).unwrap();
        assert_eq!(model.images(), [("y".to_string(), ColorSpace::Bgr)]);
        let files = model.write_outputs(folder.path(), Format::Png, &outputs).unwrap();
        assert_eq!(files, [folder.path().join("y.png")]);
        let found = TensorSource::Image { path: files[0].clone(), color: Some(ColorSpace::Bgr), fit: Fit::Exact };
        let y = model.function().value(model.function().body().outputs[0]);
        assert_eq!(found.tensor("y", &y.ty).unwrap().shape(), outputs.get("y").unwrap().shape());

        // Its default size is not that of the photo.
        assert!(matches!(run("image_range.mlpackage", &options), Err(ModelError::Tensor(_))));
        let (model, outputs) = run("image_range.mlpackage", &options.clone().fit(Fit::Resize)).unwrap();
        let error = model.write_outputs(folder.path(), Format::Png, &outputs).unwrap_err();
        assert!(matches!(error, ModelError::NoImage { function } if function == "main"));
        assert!(model.classifier().is_none() && model.classes(&outputs).unwrap().is_empty());

        let (model, outputs) = run("classifier_words.mlpackage", &options).unwrap();
        let classes = model.classes(&outputs).unwrap();
        assert!(classes.is_sorted_by(|(_, a), (_, b)| a >= b) && classes.len() == 3, "{classes:?}");
        let probability = outputs.get(&model.classifier().unwrap().probabilities_output).unwrap();
        let most = probability.to_f32().into_iter().fold(0.0, f32::max);
        assert_eq!(classes[0].1, most);
        assert!(model.classes(&Tensors::new()).is_err());

        // What is written of it is the same classifier of images.
        let copy = folder.path().join("copy.mlpackage");
        let options = WriteOptions { description: model.description(), ..WriteOptions::default() };
        write_as(model.whole_program(), &copy, Form::Package, &options).unwrap();
        let again = Model::open(&copy, &ModelOptions::default()).unwrap();
        let outputs = again.run(&device(), &sources(&[&photo])).unwrap().outputs;
        assert_eq!(again.classes(&outputs).unwrap(), classes);
    }

    #[test]
    fn a_call_is_audited() {
        let model = Model::new(program(TWO).unwrap(), &ModelOptions::default(), &[]).unwrap();
        let call = model.call(&sources(&["x=[1, 2]"])).unwrap();
        let found = model.audit(&call, &AuditOptions::default()).unwrap();
        assert!(found.to_string().contains("exp"), "{found}");
    }
}
