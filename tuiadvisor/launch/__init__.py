"""Bringing an agent to each machine of a training: this one, those behind ssh, those of a Slurm job."""
