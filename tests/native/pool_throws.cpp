// Pieces that throw, on several threads: the job ends with one of their exceptions, after all pieces are
// done, and the next job is whole. Prints how many rounds were wrong. Built with ThreadSanitizer.
#include <cstdio>
#include <new>
#include <vector>

#include "host/common/pool.hpp"

int main() {
    stepwell::Pool& pool = stepwell::Pool::instance();
    long wrong = 0;
    for (int round = 0; round < 300; ++round) {
        std::vector<int> done(40, 0);  // gone when the job has ended: a piece that still ran would touch it
        bool caught = false;
        try {
            pool.run(40, 4, [&](int piece, int) {
                for (int k = 0; k < 2000; ++k) done[piece] = k;
                if (piece % 7 == round % 7) throw std::bad_alloc();
            });
        } catch (const std::bad_alloc&) {
            caught = true;
        }
        for (int value : done) wrong += value != 1999;
        wrong += !caught;
        std::vector<int> after(40, 0);
        pool.run(40, 4, [&](int piece, int) { after[piece] += 1; });
        for (int value : after) wrong += value != 1;
    }
    std::printf("%ld\n", wrong);
    return 0;
}
