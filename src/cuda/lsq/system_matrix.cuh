// The matrix that nnls.cu, the solver for all sizes, and nnls_share.cu are compiled for:
//   SW_SCALAR   float or double
//   SW_KIND     Dense or Convolution
//   SW_GENERAL  1: bounds, sums, weights and the like; 0: x >= 0
#pragma once

#include "core/lsq/job.hpp"

SW_BEGIN
namespace lsq {

#if SW_GENERAL
typedef Stacked<SW_KIND<SW_SCALAR>> Matrix;
#else
typedef SW_KIND<SW_SCALAR> Matrix;
#endif

}  // namespace lsq
SW_END
