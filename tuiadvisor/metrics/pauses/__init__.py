"""Steps that are no steady steps: warm-up, checkpoints, evaluation, periodic and irregular pauses."""
