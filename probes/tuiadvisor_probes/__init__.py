"""The probe: what runs inside a training rank. Standard library and the rank's own torch, nothing else."""
