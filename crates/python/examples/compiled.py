"""Says what the engine does with a compiled program, and doubles the weights of a convolution.

usage: compiled.py [FILE.hwx]
"""

import sys
from pathlib import Path

from ferrane import hwx

TEXT = Path(__file__).parents[3] / "fuzz/corpus/hwx_text/h13"

program = hwx.open(sys.argv[1] if len(sys.argv) > 1 else hwx.assemble(TEXT.read_text()))
print(f"for {program.generation} ({program.chips}), by {program.compiler or 'an unknown compiler'}")
for port in [*program.inputs, *program.outputs]:
    print(f"{port.name}: {'x'.join(map(str, port.shape))}, {port.bytes} bytes with rows every {port.strides[-1]} bytes")
for task in program.tasks:
    print(f"task {task.index}, {task.engine} engine, {len(task.registers)} registers: {task.summary}")
for weights in program.weights:
    if weights.shape:
        changed = program.pack({weights.task: 2 * program.unpack(weights.task)})
        for difference in program.diff(changed):
            print("doubled weights:", difference)
