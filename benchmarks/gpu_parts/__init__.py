"""The parts of quasi_newton_gpu.py."""
