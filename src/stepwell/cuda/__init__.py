"""CUDA devices, and kernels compiled at run time; imported only when a GPU array arrives."""
