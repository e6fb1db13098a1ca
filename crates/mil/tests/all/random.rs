//! Random programs from the builder: they verify, check, and survive text.

use ferrane_mil::{
    Builder, Constant, DataType, MilError, Opset, Program, ReducedDims, Transpose, Type, ValueId, Weights, check,
    parse, print,
};
use proptest::prelude::*;

/// Words that mean a type elsewhere are names like any other.
const TYPES: [&str; 8] = ["state", "list", "dict", "tuple", "tensor", "bool", "int8", "string"];

/// One step of a random program: which op, and numbers to choose its operands with.
type OpDraw = (u8, u16, u16, f32);

fn shape_of(b: &Builder, v: ValueId) -> Vec<usize> {
    b.shape(v).unwrap()
}

/// Adds the op of a step if its operands allow it.
fn step(b: &mut Builder, values: &[ValueId], (op, i, j, f): OpDraw) -> Result<Vec<ValueId>, MilError> {
    let x = values[i as usize % values.len()];
    let y = values[j as usize % values.len()];
    let shape = shape_of(b, x);
    let rank = shape.len().max(1);
    let axis = j as usize % rank;
    let signed = axis as i32 - if op % 2 == 0 { rank as i32 } else { 0 };
    Ok(vec![match op % 16 {
        0 => b.add("a", x, y)?,
        1 => b.mul("m", x, y)?,
        2 => b.scale("s", x, f)?,
        3 => b.sigmoid(TYPES[i as usize % TYPES.len()], x)?,
        4 => b.softmax("sm", x, signed)?,
        5 => b.reduce_sum("r", x, &[signed], if j % 2 == 0 { ReducedDims::Keep } else { ReducedDims::Drop })?,
        6 => b.reshape("rs", x, &[-1, 1])?,
        7 => {
            let perm: Vec<i32> = (0..shape.len() as i32).rev().collect();
            b.transpose("t", x, &perm)?
        }
        8 => b.concat("c", &[x, y, x], signed)?,
        9 => {
            let begin: Vec<i32> = shape.iter().map(|&d| i32::from(j) % d as i32).collect();
            b.slice_by_size("sl", x, &begin, &vec![-1; shape.len()])?
        }
        10 => b.matmul("mm", x, y, Transpose::from_flags(i % 2 == 0, j % 2 == 0))?,
        11 => return b.split("sp", x, &[1, shape.get(axis).map_or(0, |&d| d as i32 - 1)], signed),
        12 => {
            let n: usize = shape.iter().product();
            let bytes: Vec<u8> = (0..2 * n).map(|k| (k * 37 + j as usize) as u8).collect();
            b.weight("w", &format!("@model_path/weights/{}.bin", j % 5), DataType::Fp16, &shape, bytes)?
        }
        13 => {
            let halves: Vec<u8> = shape.iter().product::<usize>().to_le_bytes()[..2].to_vec();
            b.constant("k", Constant::raw(DataType::Fp16, &[1], &halves))?
        }
        14 => b.cast("ct", x, DataType::Fp16)?,
        _ => b.maximum("mx", x, Constant::fp16(f))?,
    }])
}

fn build(steps: &[OpDraw]) -> Program {
    let mut b = Builder::new("main", Opset::IOS18);
    let mut values = vec![
        b.input("x", Type::tensor(DataType::Fp16, &[1, 4, 2, 3])).unwrap(),
        b.input("y", Type::tensor(DataType::Fp16, &[4, 1, 3])).unwrap(),
        b.input("z", Type::tensor(DataType::Fp16, &[])).unwrap(),
    ];
    for s in steps {
        let small = |b: &Builder, v: &ValueId| shape_of(b, *v).iter().product::<usize>() < 5000;
        if let Ok(new) = step(&mut b, &values, *s) {
            values.extend(new.into_iter().filter(|v| small(&b, v)));
        }
    }
    let last = values[values.len() - 1];
    b.finish(&[("out", last), ("x_out", values[0])]).unwrap()
}

fn steps() -> impl Strategy<Value = Vec<OpDraw>> {
    prop::collection::vec((any::<u8>(), any::<u16>(), any::<u16>(), any::<f32>()), 0..25)
}

pub fn printed() -> impl Strategy<Value = String> {
    steps().prop_map(|s| print(&build(&s)))
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn built_programs_survive_text(steps in steps()) {
        let program = build(&steps);
        prop_assert!(check(&program.functions[0], &program.weights).is_empty());
        let text = print(&program);
        // The files that go to an engine hold, read strictly, what the text names.
        let mut files = Weights::new();
        for (path, bytes) in program.weights.files() {
            files.open_file(&path, bytes);
        }
        let read = parse(&text, &files);
        let read = match read { Ok(p) => p, Err(d) => return Err(TestCaseError::fail(format!("{d}\n{text}"))) };
        prop_assert_eq!(&print(&read), &text);
        let (a, b) = (&program.functions[0], &read.functions[0]);
        prop_assert_eq!(a.ops.len(), b.ops.len());
        for (p, q) in a.ops.iter().zip(&b.ops) {
            prop_assert_eq!(&p.name, &q.name);
            for ((n, c), (m, d)) in p.attributes.iter().zip(&q.attributes) {
                prop_assert_eq!(n, m);
                prop_assert_eq!(c.ty(), d.ty());
                prop_assert_eq!(c.bytes(&program.weights), d.bytes(&read.weights));
            }
        }
        // The program's own store serves, too.
        prop_assert!(parse(&text, &program.weights).is_ok());
    }
}
