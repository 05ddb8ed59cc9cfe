"""Tasks that arrive one after another and stay: each goes at once to a node and GPUs, or fails."""
