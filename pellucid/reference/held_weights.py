"""A program whose quantized weights are plain parameters, as an engine that has dequantized them holds them.

What follows from a weight is judged from the numbers that were multiplied, whatever gave them.
"""

from pellucid.reference.ops.quantization import dequantize
from pellucid.reference.tape import Tape


def hold_weights(program: Tape) -> Tape:
    """Returns the program without the steps that dequantize; each weight keeps the value that it has."""
    dequantized = {name for name, step in program.steps.items() if step.op is dequantize}
    if not dequantized:
        return program
    parts = {part for name in dequantized for part in program.steps[name].inputs}
    removed = parts | {f"d.{part}" for part in parts}
    tape = Tape(program.dtype)
    tape.values = {name: value for name, value in program.values.items() if name not in removed}
    tape.steps = {
        name: step for name, step in program.steps.items() if name in tape.values and name not in dequantized
    }
    tape.aliases = {name: of for name, of in program.aliases.items() if of in tape.values}
    tape.roles = {name: "param" if name in dequantized else program.roles[name] for name in tape.values}
    tape.about = program.about
    return tape
