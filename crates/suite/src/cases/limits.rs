//! What a device's own profile says.

use ferrane_device::{Device, Layout};

use super::{Case, Outcome, Promise, Rounding, expect, function, load, program, words};

pub(super) fn cases() -> Vec<Case> {
    vec![Case { name: "rows are laid out by the profile", promise: Promise::Limits, run: rows }]
}

fn rows(device: &Device, _: Rounding) -> Outcome {
    let statement = "        tensor<fp16, [1, 3, 1, 5]> y = identity(x = x)[name = string(\"y\")];";
    let text = program(&function("main", "tensor<fp16, [1, 3, 1, 5]> x", statement, "y"));
    let executable = load(device, &text).map_err(words)?;
    for name in ["x", "y"] {
        let layout = &executable.port(name).map_err(words)?.layout;
        let alignment = device.profile().row_alignment.value;
        expect(
            name,
            layout.clone(),
            Layout::with_row_alignment(layout.dtype, &layout.shape, alignment).map_err(words)?,
        )?;
    }
    Ok(())
}
