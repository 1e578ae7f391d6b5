// How a problem with bounds, a bound sum, weights of rows and a penalty starts: cold, or from a set.
#pragma once

#include "core/lsq/general_answer.hpp"

SW_BEGIN
namespace lsq {

template <class Team, class Matrix, class Numbers>
struct GeneralSet : GeneralAnswer<Team, Matrix, Numbers> {
    using Base = GeneralAnswer<Team, Matrix, Numbers>;
    using Base::factor;
    using Base::fresh;
    using Base::numbers;
    using Base::tally;
    using Base::task;
    using Base::team;
    using Base::ws;
    using Exchange = typename Base::Exchange;
    using Pending = typename Base::Pending;

    SW_HD GeneralSet(const Team& team, const Task<Matrix>& task) : Base(team, task) {}

protected:
    // The start of a problem with bounds. Of a warm start the set counts, and which columns are at which
    // bound; where it does not lead to a point within the bounds, the start is cold.
    SW_CALL Pending start_general(const Job& job, int64_t system, const void* b, WarmStart warm,
                                  double penalty) {
        if (task.extent.in_blocks() && task.options.guarded) {
            const Exchange outcome = start_in_blocks(warm);
            if (outcome == Exchange::settled) return Pending::nothing;
            if (outcome == Exchange::unsettled && come_inside()) {
                this->finish_step();
                return Pending::nothing;
            }
            begin_anew(job, system, b, penalty);
        }
        if (warm.values || warm.marks || warm.states) {
            if (start_from_set(warm)) {
                this->finish_step();
                return Pending::nothing;
            }
            begin_anew(job, system, b, penalty);
        }
        this->enter_free(ws.sum_of ? this->fill_up() : this->insert_free());
        return factor.count > 0 ? Pending::solution : Pending::nothing;
    }

    // As before the first column entered.
    SW_HD void begin_anew(const Job& job, int64_t system, const void* b, double penalty) {
        this->empty_factor(factor.update);
        this->begin_general(job, system, b, penalty);
    }

    // Exchanges from the set of a warm start, the free columns with it, or from these alone.
    SW_CALL Exchange start_in_blocks(WarmStart warm) {
        const bool cold = !(warm.values || warm.marks || warm.states);
        if (!cold) cross_as_said(warm);
        const int number = this->list(ws.order, [&](int j) {
            const int state = ws.state[j];
            const bool wanted = state & is_free || (!cold && !(state & excluded) && said_of(warm, j) == 0);
            return wanted && task.norm_of(j) > 0;
        });
        if (number > 0 && !this->enter_named(number)) return Exchange::impossible;
        return this->exchange();
    }

    // What a warm start says of column j: -1 at its lower bound, 1 at its upper, 0 between.
    SW_HD int said_of(WarmStart warm, int j) const {
        if (j >= task.matrix.top.columns) return 0;
        if (warm.states) return warm.states[j] == 2 ? -1 : warm.states[j];
        if (warm.marks) return warm.marks[j] ? 0 : -1;
        const double value = numbers.read(warm.values, j);
        return value <= this->given_lower[j] ? -1 : value >= this->given_upper[j] ? 1 : 0;
    }

    // Takes the set of a warm start: what the solution then has outside its bounds leaves there. Whether a
    // point within all bounds came of it, which is in ws.z.
    SW_CALL bool start_from_set(WarmStart warm) {
        cross_as_said(warm);
        this->enter_free(this->insert_free());
        for (int j = 0; j < this->columns(); ++j) {
            const bool wanted = !(ws.state[j] & (excluded | is_free)) && said_of(warm, j) == 0;
            if (wanted && task.norm_of(j) > 0) this->insert_called(j);
        }
        return come_inside();
    }

    // Takes columns to the bounds that a warm start has them at.
    SW_HD void cross_as_said(WarmStart warm) {
        const auto crosses = [&](int j) {
            const int state = ws.state[j];
            if (state & (excluded | is_free)) return false;
            const int said = said_of(warm, j);
            return said > 0 ? state == zero && is_finite(ws.upper[j])
                            : said < 0 && state == reflected && is_finite(ws.lower[j]);
        };
        double any = 0;
        team.each(this->columns(), [&](int j) { any = crosses(j) ? 1.0 : any; });
        any = team.max(any);
        for (int j = 0; any > 0 && j < this->columns(); ++j) {
            const bool own = crosses(j);
            team.sync();
            if (own) this->cross(j);
        }
        team.sync();
    }

    // What the solution has outside its bounds leaves there, until nothing has to; the solution is in ws.z.
    SW_CALL bool come_inside() {
        fresh = false;
        for (;;) {
            if (factor.count == 0) return !ws.sum_of;
            factor.solve();
            bool inside = true;
            for (int p = factor.count - 1; p >= 0; --p) {
                const int j = ws.order[p];
                const double z = ws.z[p], least = task.least_of(j), most = task.most_of(j);
                if (z > least && z < most) continue;
                inside = false;
                team.sync();
                if (team.rank() == 0) ws.x[p] = z > least ? most : least;
                team.sync();
                this->leave_at_bound(p);
                // ws.z keeps the old order below p: only higher places moved.
            }
            if (inside) return true;
        }
    }
};

}  // namespace lsq
SW_END
