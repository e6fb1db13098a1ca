//! Programs made from scratch, for H13.
//!
//! A [`ProgramSpec`] names its tensors and its operation; [`build`] gives a whole file: header,
//! segments, binding commands, tensors, the program with its base addresses, symbols, relocations,
//! task descriptors and constants. It reads back with [`Hwx::read`], and [`crate::describe`] says
//! of it what was asked.
//!
//! How well this is known. For the shapes of the samples (1×1 convolutions, addition, a function of
//! each element) every register is the compiler's own, but for those that docs/hwx.md lists. What
//! the samples do not have is made by the meaning of the fields: kernels larger than 1×1, strides
//! and padding of convolutions, copies (of which a concatenation is made), and most of all pooling,
//! where only the choice of the mean, the largest or the smallest is established. How the compiler
//! cuts large tensors into tiles is known for the planar engine only as far as two samples show it;
//! what does not fit into the engine's memory otherwise is refused. No file made here has met
//! hardware.

mod container;
mod registers;
mod tasks;

use half::f16;

use crate::container::Hwx;
use crate::error::{Error, Result};
use crate::surface::SurfaceLayout;
use crate::table::FunctionTable;

/// A named fp16 tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// Batches (1), channels, height, width.
    pub nchw: [u32; 4],
}

/// A program of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpec {
    /// The program's name; the compiler writes `net`.
    pub name: String,
    /// What it reads, in the operation's order.
    pub inputs: Vec<TensorSpec>,
    /// The name of what it writes; its shape follows ([`ProgramSpec::output_shape`]).
    pub output: String,
    /// What it does.
    pub op: Operation,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A convolution of one input.
    Convolution(Convolution),
    /// An operation on the elements of two inputs of one shape.
    Elementwise(BinaryOp),
    /// A function of each element of one input.
    Function(ElementFunction),
    /// All inputs one behind the other, by channels: a copy of each.
    Concat,
    /// A value for each window of one input.
    Pool(Pooling),
}

/// A convolution with fp16 weights in one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    /// Output channels.
    pub cout: u32,
    /// Weights `[Cout][Cin][Kh][Kw]`.
    pub weights: Vec<f16>,
    /// The kernel's height and width, 1 to 31.
    pub kernel: [u32; 2],
    /// Steps down and right, 1 to 3.
    pub stride: [u32; 2],
    /// Zeros above and below, left and right, 0 to 31.
    pub padding: [u32; 2],
    /// What the result goes through.
    pub then: Option<ElementFunction>,
}

/// A function of each element.
#[derive(Clone, Debug, PartialEq)]
pub enum ElementFunction {
    /// Negative values become 0.
    Relu,
    /// A table of a function.
    Table(Box<FunctionTable>),
}

/// An operation on two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// a + b.
    Add,
    /// a · b.
    Mul,
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
    /// a - b.
    Sub,
}

/// Windows without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// The value of a window.
    pub kind: PoolKind,
    /// Its height and width, 1 to 31.
    pub window: [u32; 2],
    /// Steps down and right, 1 to 3.
    pub stride: [u32; 2],
}

/// The value of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The mean.
    Avg,
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
}

/// Where windows are: their size, steps and padding, down and right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowGeometry {
    size: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
}

impl WindowGeometry {
    /// Each element for itself.
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
    /// The shape of what it writes. An error if the operation and its inputs do not go together.
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

/// A tensor with its surface and the index of its base address.
#[derive(Clone, Debug)]
struct PortBuffer {
    port: TensorSpec,
    surface: SurfaceLayout,
    bar: u32,
}

/// Base addresses: the tasks, the constants, the output, and inputs from here on.
const TEXT_BAR: u32 = 0;
const CONSTANTS_BAR: u32 = 1;
const OUTPUT_BAR: u32 = 4;
const INPUT_BAR: u32 = 5;
/// Indices of base addresses have five bits.
const BARS: u32 = 32;

/// Limits of the registers: width and height have 15 bits, channels 17.
fn buffer(port: TensorSpec, bar: u32) -> Result<PortBuffer> {
    let [n, c, h, w] = port.nchw;
    if n != 1 || [c, h, w].contains(&0) || c >= 1 << 17 || h >= 1 << 15 || w >= 1 << 15 {
        let limits = "a tensor is [1, up to 131071 channels, up to 32767 rows, up to 32767 columns]";
        return Err(Error::request(format!("{} is {:?}: {limits}", port.name, port.nchw)));
    }
    if port.name.is_empty() || port.name.len() > 255 || port.name.contains('\0') {
        return Err(Error::request(format!("{:?} is no name: 1 to 255 bytes, none of them 0", port.name)));
    }
    let surface = SurfaceLayout::fp16(port.nchw)?;
    // Strides and addresses of registers have 32 bits.
    if surface.bytes() > u64::from(u32::MAX) {
        return Err(Error::request(format!(
            "{} has {:#x} bytes, more than a register can say",
            port.name,
            surface.bytes()
        )));
    }
    if bar >= BARS {
        return Err(Error::request(format!("a program has {} inputs at most", BARS - INPUT_BAR)));
    }
    Ok(PortBuffer { port, surface, bar })
}

/// The file of a program, for H13. An error (E0720) if registers cannot say what is asked, or
/// nobody knows how it is said.
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
