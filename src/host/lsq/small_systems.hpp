// Small systems on the CPU: what a thread needs to try them by their products (core/lsq/small).
#pragma once

#include <memory>

#include "core/lsq/small/choice.hpp"
#include "host/lsq/kernels.hpp"
#include "host/lsq/lazy_buffer.hpp"
#include "host/lsq/unconstrained_batch.hpp"

SW_BEGIN
namespace lsq {

class SmallSystems;
typedef bool (*SolveFunction)(SmallSystems&, int64_t, int64_t, const Shared&);

class SmallSystems {
public:
    // The batch has systems with a source (small/choice.hpp).
    explicit SmallSystems(const HostJob& host);
    // Solves a system; false where the solver for all sizes has to. `shared` is that of the system's matrix.
    // The systems after it, up to `end`, will be asked for next.
    bool solve(int64_t system, int64_t end, const Shared& shared) {
        return is_answered(system) || solve_(*this, system, end, shared);
    }
    bool is_answered(int64_t system) const {
        return system >= first && system < last && (answered >> (system - first) & 1);
    }

    // What a SolveFunction works with.
    const Job& job;
    const LazyBuffer<double> rows, panel, table, units, linear;
    small::KeptSum sum;
    small::Products products;  // those of the last system's matrix, where systems share matrices
    std::unique_ptr<small::KeptInverses> kept;
    // The systems whose products with a shared matrix are in `linear`, and its columns.
    int64_t first = 0, last = 0;
    const double* multiplied = nullptr;
    // The guesses of these systems, where the matrix allows guesses, which is found out once.
    small::GuessedGroup guesses;
    small::Guess guess;  // that of the system which is being solved
    bool guesses_known = false, has_guesses = false;
    small::GuessTable guess_table;
    unsigned answered = 0;  // a bit for each of these systems that its guess has solved

private:
    SolveFunction solve_;
};

}  // namespace lsq
SW_END
