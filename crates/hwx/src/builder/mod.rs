//! Builds programs for H13 from scratch.
//!
//! A [`ProgramSpec`] names tensors and one operation. [`build`] makes a complete file: header,
//! segments, binding commands, tensors, the program with its base addresses, symbols, relocations,
//! task descriptors and constants. [`Hwx::read`] reads it back, and [`crate::describe`] describes
//! the operation that was asked for.
//!
//! # Evidence
//!
//! For the shapes of the samples (1×1 convolutions, addition, element-wise functions) every
//! register equals the compiler's, except for those listed in docs/hwx.md. Other requests follow
//! the meaning of the fields: kernels larger than 1×1, strides and padding of convolutions, copies
//! (a concatenation is made of them), and most of all pooling, where only the choice of mean,
//! maximum or minimum is established. Tiling of large tensors is known for the planar engine only,
//! from two samples; other tensors that exceed the engine's memory are refused. No file made here
//! has run on hardware.

mod container;
mod registers;
mod tasks;

use half::f16;

use crate::container::Hwx;
use crate::error::{Error, Result};
use crate::surface::SurfaceLayout;
use crate::table::FunctionTable;

/// A named fp16 tensor of shape `[N, C, H, W]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// A name of 1 to 255 bytes, unique among the tensors, without zero bytes.
    pub name: String,
    /// `[N, C, H, W]`; N is 1.
    pub nchw: [u32; 4],
}

/// A program of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpec {
    /// The program's name; the compiler writes `net`.
    pub name: String,
    /// The inputs, in the order of the operation.
    pub inputs: Vec<TensorSpec>,
    /// The name of the output; its shape follows from the inputs ([`ProgramSpec::output_shape`]).
    pub output: String,
    /// The operation, with its weights and windows.
    pub op: Operation,
}

/// The operation of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A convolution of one input, with weights in the program.
    Convolution(Convolution),
    /// An element-wise operation on two inputs of the same shape.
    Elementwise(BinaryOp),
    /// An element-wise function of one input.
    Function(ElementFunction),
    /// The inputs concatenated along the channels; each is copied by a task.
    Concat,
    /// A reduction of each window of one input.
    Pool(Pooling),
}

/// A convolution with fp16 weights in one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    /// The number of output channels.
    pub cout: u32,
    /// Weights `[Cout][Cin][Kh][Kw]`.
    pub weights: Vec<f16>,
    /// Height and width of the kernel, from 1 to 31.
    pub kernel: [u32; 2],
    /// Vertical and horizontal stride, from 1 to 3.
    pub stride: [u32; 2],
    /// Zero padding in rows (above and below) and columns (left and right), from 0 to 31.
    pub padding: [u32; 2],
    /// The function applied to the result, if any.
    pub then: Option<ElementFunction>,
}

/// A function applied to each element of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum ElementFunction {
    /// Negative values become 0.
    Relu,
    /// A piecewise linear function with 33 samples.
    Table(Box<FunctionTable>),
}

/// An element-wise operation on two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// The sum, `a + b`.
    Add,
    /// The product, `a * b`.
    Mul,
    /// The larger of the two.
    Max,
    /// The smaller of the two.
    Min,
    /// The difference, `a - b`.
    Sub,
}

/// A pooling over windows without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// How a window is reduced.
    pub kind: PoolKind,
    /// Height and width of the window, from 1 to 31.
    pub window: [u32; 2],
    /// Vertical and horizontal stride, from 1 to 3.
    pub stride: [u32; 2],
}

/// How a window is reduced to one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The mean of the window.
    Avg,
    /// The largest element of the window.
    Max,
    /// The smallest element of the window.
    Min,
}

/// The windows of an operation: size, stride and padding, each vertical and horizontal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowGeometry {
    size: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
}

impl WindowGeometry {
    /// The geometry of an element-wise operation: windows of one element.
    const ONE: WindowGeometry = WindowGeometry { size: [1, 1], stride: [1, 1], padding: [0, 0] };

    /// Height and width of the result.
    fn output(&self, input: [u32; 2]) -> Result<[u32; 2]> {
        let mut out = [0; 2];
        for (i, out) in out.iter_mut().enumerate() {
            let (size, stride, padding) = (self.size[i], self.stride[i], self.padding[i]);
            if !(1..32).contains(&size) || !(1..4).contains(&stride) || padding > 31 {
                let asked = format!("size {size}, step {stride}, padding {padding}");
                return Err(Error::request(format!("a window has 1 to 31 elements, steps of 1 to 3: {asked}")));
            }
            let inside = u64::from(input[i]) + 2 * u64::from(padding);
            let Some(room) = inside.checked_sub(size.into()) else {
                return Err(Error::request(format!("a window of {size} elements over {inside}")));
            };
            *out = (room / u64::from(stride)) as u32 + 1;
        }
        Ok(out)
    }
}

impl ProgramSpec {
    /// The shape of the output, `[N, C, H, W]`.
    ///
    /// # Errors
    /// E0720 if the operation cannot take these inputs.
    pub fn output_shape(&self) -> Result<[u32; 4]> {
        let count = |wanted: usize| {
            let found = self.inputs.len();
            let message =
                format!("the operation has {wanted} input{}, not {found}", if wanted == 1 { "" } else { "s" });
            if found == wanted { Ok(()) } else { Err(Error::request(message)) }
        };
        let window = |channels: Option<u32>, window: WindowGeometry| {
            count(1)?;
            let [n, c, h, w] = self.inputs[0].nchw;
            let [h, w] = window.output([h, w])?;
            Ok([n, channels.unwrap_or(c), h, w])
        };
        match &self.op {
            Operation::Convolution(c) => window(Some(c.cout), c.window()),
            Operation::Pool(p) => window(None, p.window()),
            Operation::Function(_) => window(None, WindowGeometry::ONE),
            Operation::Elementwise(_) => {
                count(2)?;
                let [a, b] = [self.inputs[0].nchw, self.inputs[1].nchw];
                if a != b {
                    return Err(Error::request(format!("elements of {a:?} and {b:?} have no pairs")));
                }
                Ok(a)
            }
            Operation::Concat => {
                let Some((first, rest)) = self.inputs.split_first() else {
                    return Err(Error::request("nothing is put together"));
                };
                let mut shape = first.nchw;
                for input in rest {
                    let [n, c, h, w] = input.nchw;
                    if [n, h, w] != [shape[0], shape[2], shape[3]] {
                        let message = format!("{:?} and {:?} differ in more than channels", first.nchw, input.nchw);
                        return Err(Error::request(message));
                    }
                    shape[1] = shape[1].saturating_add(c);
                }
                Ok(shape)
            }
        }
    }
}

impl Convolution {
    fn window(&self) -> WindowGeometry {
        WindowGeometry { size: self.kernel, stride: self.stride, padding: self.padding }
    }
}

impl Pooling {
    fn window(&self) -> WindowGeometry {
        WindowGeometry { size: self.window, stride: self.stride, padding: [0, 0] }
    }
}

/// A tensor with its surface and the index of its base address (BAR).
#[derive(Clone, Debug)]
struct PortBuffer {
    port: TensorSpec,
    surface: SurfaceLayout,
    bar: u32,
}

/// Indices of base addresses: tasks, constants, the output, and inputs from `INPUT_BAR` on.
const TEXT_BAR: u32 = 0;
const CONSTANTS_BAR: u32 = 1;
const OUTPUT_BAR: u32 = 4;
const INPUT_BAR: u32 = 5;
/// The number of base addresses: an index has five bits.
const BARS: u32 = 32;

/// Checks the limits of the registers: 15 bits for width and height, 17 for channels.
fn buffer(port: TensorSpec, bar: u32) -> Result<PortBuffer> {
    let [n, c, h, w] = port.nchw;
    if n != 1 || [c, h, w].contains(&0) || c >= 1 << 17 || h >= 1 << 15 || w >= 1 << 15 {
        let limits = "a tensor is [1, at most 131071 channels, at most 32767 rows, at most 32767 columns]";
        return Err(Error::request(format!("{} is {:?}: {limits}", port.name, port.nchw)));
    }
    if port.name.is_empty() || port.name.len() > 255 || port.name.contains('\0') {
        return Err(Error::request(format!("{:?} is no name: 1 to 255 bytes, none of them 0", port.name)));
    }
    let surface = SurfaceLayout::fp16(port.nchw)?;
    // Registers hold strides and addresses in 32 bits.
    if surface.bytes() > u64::from(u32::MAX) {
        return Err(Error::request(format!(
            "{} has {:#x} bytes, more than a register can say",
            port.name,
            surface.bytes()
        )));
    }
    if bar >= BARS {
        return Err(Error::request(format!("a program has at most {} inputs", BARS - INPUT_BAR)));
    }
    Ok(PortBuffer { port, surface, bar })
}

/// Builds the file of a program for H13.
///
/// # Errors
/// E0720 if registers cannot express the request, or their encoding of it is not established.
pub fn build(network: &ProgramSpec) -> Result<Hwx> {
    let output = TensorSpec { name: network.output.clone(), nchw: network.output_shape()? };
    let output = buffer(output, OUTPUT_BAR)?;
    let inputs = network.inputs.iter().zip(INPUT_BAR..).map(|(port, bar)| buffer(port.clone(), bar));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let mut names: Vec<&str> = inputs.iter().chain([&output]).map(|b| b.port.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
        return Err(Error::request(format!("two tensors are named {}", twice[0])));
    }
    if network.name.is_empty() || network.name.len() > 255 || network.name.contains('\0') {
        return Err(Error::request(format!(
            "{:?} is no name of a program: 1 to 255 bytes, none of them 0",
            network.name
        )));
    }
    let program = tasks::program(&network.op, &inputs, &output)?;
    container::assemble(&network.name, &inputs, &output, &program)
}
