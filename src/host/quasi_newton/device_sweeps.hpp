// The sweeps of every phase (phases.hpp) by a device, a launch each. Where the accepted point is replaced is
// the device's matter: the trial point is worked on as it is, and the aim sweep makes it the accepted one.
#pragma once

#include "core/quasi_newton/decide.hpp"
#include "host/quasi_newton/engine.hpp"
#include "host/quasi_newton/workspace.hpp"

SW_BEGIN

class DeviceSweeps {
public:
    static constexpr bool may_be_few = false;

    DeviceSweeps(const DeviceView& e, Workspace& workspace) : e(e), workspace(workspace) {}

    double* rows(const RowShape&) const { return e.rows; }
    const Scratch& scratch() const { return workspace.scratch; }
    int longest() const { return e.longest; }
    BreakList break_list(int pairs, int length) {
        return {reinterpret_cast<Break*>(e.breaks), e.break_rows, workspace.break_list(pairs).running,
                length};
    }

    int slope(double*) { return run(DeviceSweep::slope); }
    int slope_and_absorb(const SumLayout&, double*) { return run(DeviceSweep::slope_and_absorb); }
    int absorb(const SumLayout&, Gather gather, double*) {
        return run(gather == Gather::start  ? DeviceSweep::absorb_start
                   : gather == Gather::pair ? DeviceSweep::absorb_pair
                                            : DeviceSweep::regather);
    }
    // Counts over all chunks: one row.
    int list(const BreakList&, double*) { return min_of(run(DeviceSweep::list_breaks), 1); }
    int count(double*) { return min_of(run(DeviceSweep::count_breaks), 1); }
    int ties(double*) { return run(DeviceSweep::sum_ties); }
    int aim(double*) {
        const int chunks = run(DeviceSweep::aim);
        stay();
        return chunks;
    }

    void take_point() const {}
    void stay() { at_trial = false; }
    void step(double) { run(DeviceSweep::step, false); }
    void end(bool) { run(DeviceSweep::end, false); }

private:
    const DeviceView& e;
    Workspace& workspace;
    bool at_trial = true;

    int run(DeviceSweep kind, bool waits = true) {
        if (e.chunks > 0) e.sweep(e.context, kind, at_trial, workspace.scratch.coefficients, waits);
        return e.chunks;
    }
};

SW_END
