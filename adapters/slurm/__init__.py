"""Slurm as the scheduler that acts: jobs are submitted held; each round decides which are released where."""
