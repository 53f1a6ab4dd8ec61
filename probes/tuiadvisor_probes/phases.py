"""Numbers of the phases; written by `python -m tuiadvisor.phases`, never by hand."""

from __future__ import annotations

DATA_WAIT = 0
H2D = 1
FORWARD = 2
BACKWARD = 3
COMM_EXPOSED = 4
OPTIMIZER = 5
CHECKPOINT = 6
EVAL = 7
PIPELINE_IDLE = 8
OTHER = 9
NUM_PHASES = 10
BEGINS_ITERATION = (True, False, True, True, False, False, False, True, True, False)
# What happens inside a checkpoint or an evaluation is part of it: its loads, its barrier.
ABSORBS = (False, False, False, False, False, False, True, True, False, False)
