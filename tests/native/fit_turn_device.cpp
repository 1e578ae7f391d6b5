// The kernels of src/cuda/fit/fit_turn.cu on the CPU, thread by thread, as a library that
// tests/fit/test_device_loop_emulated.py launches from Python. SW_SCALAR and SW_PARAMETERS say of what.
#include "device_emulator.hpp"
//
#define __forceinline__ inline

inline int __popc(unsigned bits) {
    return __builtin_popcount(bits);
}

#include "../../src/cuda/fit/fit_turn.cu"

// Arguments of a launch, each in eight bytes but the job, which comes as an address.
extern "C" void emulated_launch(int kernel, unsigned blocks, unsigned block_threads, const uint64_t* given) {
    const auto job = [&]() -> const FitModelJob& { return *reinterpret_cast<const FitModelJob*>(given[0]); };
    const auto reals = [&](int k) { return reinterpret_cast<double*>(given[k]); };
    const auto counts = [&](int k) { return reinterpret_cast<int32_t*>(given[k]); };
    const auto bits = [&](int k) { return reinterpret_cast<uint32_t*>(given[k]); };
    const auto scalars = [&](int k) { return reinterpret_cast<Scalar*>(given[k]); };
    const auto number = [&](int k) { return int64_t(given[k]); };
    emulator::launch(blocks, block_threads, [&] {
        switch (kernel) {
            case 0:
                return fit_begin(job(), reals(1), counts(2), counts(3), scalars(4));
            case 1:
                return fit_sums(job(), counts(1), counts(2), number(3), scalars(4), scalars(5), reals(6));
            case 2:
                return fit_decide(job(), reals(1), counts(2), counts(3), number(4), reals(5), bits(6),
                                  counts(7));
            case 3:
                return fit_offsets(counts(0), number(1), counts(2), counts(3));
            case 4:
                return fit_pick(number(0), reals(1), bits(2), counts(3), counts(4), counts(5), number(6),
                                counts(7), scalars(8));
            case 5:
                return fit_ends(job(), reals(1), counts(2));
        }
    });
}
