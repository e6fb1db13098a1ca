#!/usr/bin/env python3
"""Reads packages of `ferrane export` with coremltools and checks what it finds.

Usage: python scripts/llm/export_check.py PACKAGE...   (needs coremltools 9)

Each package is opened without being compiled, which only a Mac can do. Its description is compared with what docs/export.md promises,
and its program is converted to coremltools' own form of MIL, which checks every op, type and weight against its definitions. One line a package; the exit status is 1 if one is wrong.
"""

import sys

import coremltools as ct
from coremltools.converters.mil.frontend.milproto import load as milproto

INT32, FP16 = 131104, 65552


def array(feature):
    kind = feature.type.WhichOneof("Type")
    value = feature.type.stateType.arrayType if kind == "stateType" else feature.type.multiArrayType
    return value.dataType, list(value.shape)


def check(path):
    model = ct.models.MLModel(path, skip_model_load=True)
    spec = model.get_spec()
    own = dict(spec.description.metadata.userDefined)
    context, prefill, vocab = (int(own["ferrane." + key]) for key in ("context", "prefill", "vocab"))
    assert spec.specificationVersion == 9, spec.specificationVersion
    assert spec.description.defaultFunctionName == "decode"
    functions = {f.name: f for f in spec.description.functions}
    assert sorted(functions) == ["decode", "prefill"], sorted(functions)
    for name, tokens in (("decode", 1), ("prefill", prefill)):
        inputs = {f.name: array(f) for f in functions[name].input}
        wanted = {"input_ids": (INT32, [1, tokens]), "current_pos": (INT32, [1])}
        if name == "prefill":
            wanted["last_index"] = (INT32, [1])
        assert inputs == wanted, inputs
        states = {f.name: array(f) for f in functions[name].state}
        assert sorted(states) == ["key_cache", "value_cache"], states
        assert all(dtype == FP16 and shape[2] == context for dtype, shape in states.values()), states
        (logits,) = functions[name].output
        dtype, shape = array(logits)
        assert logits.name == "logits" and dtype == FP16 and shape[0] * shape[1] == vocab, (dtype, shape)
    program = milproto.load(
        spec, specification_version=spec.specificationVersion, file_weights_dir=model.weights_dir
    )
    ops = {name: len(function.operations) for name, function in program.functions.items()}
    rank = max(len(v.shape) for f in program.functions.values() for op in f.operations
               if op.op_type != "const" for v in op.outputs if getattr(v, "shape", None) is not None
               and not op.op_type.startswith("constexpr"))
    assert rank <= 4, rank
    return f"{ops['decode']} and {ops['prefill']} ops, metadata {sorted(own)}"


def main():
    failed = False
    for path in sys.argv[1:]:
        try:
            print(f"{path}: {check(path)}")
        except Exception as error:  # one wrong package must not hide the others
            failed = True
            print(f"{path}: {type(error).__name__}: {error}")
    sys.exit(failed or len(sys.argv) == 1)


if __name__ == "__main__":
    main()
