// All sweeps of core/lsq as a team of CPU threads does them, for units that solve.
#pragma once

#include "host/lsq/block_entry.hpp"
#include "host/lsq/columns.hpp"
#include "host/lsq/matrices.hpp"
#include "host/lsq/triangle.hpp"
#include "host/lsq/vectors.hpp"
