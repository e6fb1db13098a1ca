//! What the description of a package and the end of a function add to the types of ports.

use super::describe::{Description, FeatureType};
use super::shapes::input_shapes;
use crate::classifier::Classifier;
use crate::contents::Contents;
use crate::program::Program;

/// Adds notes to the ports of a program's contents: the shapes that an input may have, the image
/// that a port stands for, the number of classes of a classifier.
///
/// ```
/// use ferrane_mil::contents::Contents;
/// use ferrane_mil::package::annotate;
/// use ferrane_mil::{Weights, parse};
///
/// let text = "program(1.3)\n{
///     func main<ios18>(tensor<fp32, [1, 2]> p) {
///         string label, dict<string, fp64> all = classify(probabilities = p, classes = list<string, 2>([\"cat\", \"dog\"]))[name = string(\"c\")];
///     } -> (label, all);\n}";
/// let program = parse(text, &Weights::new()).unwrap();
/// let mut contents = Contents::of(&program);
/// annotate(&mut contents, &program, None);
/// assert_eq!(contents.functions[0].notes["label"], "one of 2 class labels");
/// ```
pub fn annotate(contents: &mut Contents, program: &Program, description: Option<&Description>) {
    let described = description.map(Description::functions).unwrap_or_default();
    for (function, listed) in program.functions.iter().zip(&mut contents.functions) {
        let mut note = |name: &str, text: String| {
            let entry = listed.notes.entry(name.to_string()).or_default();
            if !entry.is_empty() {
                entry.push_str(", ");
            }
            entry.push_str(&text);
        };
        let ports = described.iter().find(|p| p.function == function.name);
        for feature in ports.iter().flat_map(|p| p.inputs.iter().chain(&p.outputs)) {
            if let FeatureType::Image(image) = &feature.ty {
                note(&feature.name, image.to_string());
            }
        }
        if description.is_some() {
            for input in input_shapes(function, description).into_iter().filter(|i| !i.is_fixed()) {
                note(&input.name, input.to_string());
            }
        }
        if let Some(Classifier { label_output, probabilities_output, labels }) = Classifier::of(function) {
            note(&label_output, format!("one of {} class labels", labels.len()));
            note(&probabilities_output, "the probability of each".to_string());
        }
    }
}
