"""The compiled CPU decoder: one C function runs a whole step, on any weights that the engine holds.

At a hundred million parameters a step of separate operations costs as much in dispatch as in memory traffic.
`decoder.py` describes a module to the C code; `library.py` builds and loads it.
"""
