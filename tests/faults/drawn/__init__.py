"""Drawn faults: small changes of the sources whose place a seeded generator draws, so that no check was made
for them.

    python -m tests.faults.drawn.table                          # the kept list, as `make faults` runs it
    python -m tests.faults.drawn.table --seed 20261119 --count 20
    python -m tests.faults.drawn.run 17                         # one of the kept list
"""
