"""The tree of the cluster, its pools of interchangeable GPUs, and their buddy blocks."""
