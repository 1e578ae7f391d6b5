// All sweeps of core/lsq as a device's team does them, for kernels that solve.
#pragma once

#include "cuda/lsq/block_entry.cuh"
#include "cuda/lsq/columns.cuh"
#include "cuda/lsq/matrices.cuh"
#include "cuda/lsq/triangle.cuh"
#include "cuda/lsq/vectors.cuh"
