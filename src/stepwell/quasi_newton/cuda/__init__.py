"""L-BFGS-B on one CUDA device: layout of what kernels read, memory, turns and windows of them, events that time."""
