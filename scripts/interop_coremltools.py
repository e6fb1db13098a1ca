"""Compares pairs of packages, an original and Ferrane's copy, as coremltools 9.0 understands them.

`MLModel` and the reader of MIL protobuf must accept the copy. Both programs must have the same
functions, inputs, outputs, and ops in the same order with the same operands and constants. Names
inside a function are cosmetic and are not compared.
"""

import sys

import coremltools as ct
import numpy as np
from coremltools.converters.mil.frontend.milproto import load as milproto
from coremltools.converters.mil.mil import types


def load(path):
    model = ct.models.MLModel(path, skip_model_load=True)
    spec = model.get_spec()
    program = milproto.load(spec, spec.specificationVersion, model.weights_dir or "")
    return spec, program


def constant(value):
    """A value that compares by type, shape and bytes, so that NaN equals itself."""
    if isinstance(value, (list, tuple)):
        return [constant(v) for v in value]
    array = np.asarray(value)
    return str(array.dtype), array.shape, array.tolist() if array.dtype.kind in "OUS" else array.tobytes()


def kind(var):
    """The type of a value. Unknown extents are symbols with unique names, so it has only the rank."""
    if types.is_list(var.sym_type):
        return "list", str(var.elem_type)
    return str(var.dtype), len(var.shape or ())


def walk(block, numbers, out):
    def number(var):
        return numbers.setdefault(id(var), len(numbers))

    # A function keeps its inputs by name, a nested block in a list.
    inputs = block.inputs.items() if isinstance(block.inputs, dict) else [("", v) for v in block.inputs]
    out.append(("inputs", [(name, number(v), kind(v)) for name, v in inputs]))
    for op in block.operations:
        operands = {}
        for name, vars in op.inputs.items():
            several = isinstance(vars, (list, tuple))
            operands[name] = [number(v) for v in vars] if several else number(vars)
        entry = [op.op_type, operands]
        if op.op_type == "const":
            value = op.outputs[0].val if op.outputs[0].val is not None else op.val.val
            entry.append(constant(value))
        out.append(entry)
        for nested in op.blocks:
            walk(nested, numbers, out)
        out.append([(number(v), kind(v)) for v in op.outputs])
    out.append(("outputs", [number(v) for v in block.outputs]))


def listing(program):
    functions = {}
    for name, function in program.functions.items():
        functions[name] = []
        walk(function, {}, functions[name])
        functions[name].append([v.name for v in function.outputs])
    return functions


def main(paths):
    failed = 0
    for original, ours in zip(paths[::2], paths[1::2]):
        try:
            (spec, program), (our_spec, our_program) = load(original), load(ours)
            same = listing(program) == listing(our_program) and spec.description == our_spec.description
            verdict = "same" if same else "differs"
        except Exception as e:  # Any refusal of the reader is a finding.
            same, verdict = False, f"refused: {e!r}"
        failed += not same
        print(f"{verdict}: {original}")
    sys.exit(f"{failed} of {len(paths) // 2} packages" if failed else 0)


main(sys.argv[1:])
