// The sweeps of src/cuda/quasi_newton/rank_sweep.cu on the CPU, as a library: its functions stand where those
// of CUDA's driver do. Blocks run one after the other, ranks that are threads wait for each other.
#include <mutex>

#include "device_emulator.hpp"
//
#include "../../src/cuda/quasi_newton/rank_sweep.cu"

// Launches until one fails; negative: none does.
extern "C" int launches_to_failure = -1;

extern "C" int emulated_launch(void*, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                               unsigned, unsigned, void*, void** arguments, void**) {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    if (launches_to_failure >= 0 && launches_to_failure-- == 0) return 700;
    const auto& argument = *static_cast<const stepwell::RankArguments*>(arguments[0]);
    emulator::launch(blocks, threads, [&] { stepwell_rank_sweep(argument); });
    return 0;
}

extern "C" int emulated_wait(void*) {
    return 0;
}
