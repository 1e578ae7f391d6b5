// The exact Cauchy point where the path bends before it: a walk from breakpoint to breakpoint, as actions
// whose sums may come from any number of threads, blocks or ranks.
//
//   list_breaks   the breakpoints of the selection (above, high], if they are few: crossed in order
//                 of time and index, until the model stops falling
//   count_breaks  too many: how many lie in each of `walk_bins` bins. As many bins as fit a list are
//                 selected; a first bin that alone does not fit is cut into bins again
//   sum_ties      one time, more often than a list is long: all of them are crossed at once
//
// Selections reach as far as breakpoints may matter: first to twice the minimiser of the first segment, then
// eight times as far, and so on. One selection is nearly always enough. Where there is memory the next list
// is twice as long (list_length), so that a walk over many breakpoints has few lists.
//
// Times t >= 0 are numbered by their bits plus one: in their order, and 0 lies before all of them.
#pragma once

#include "core/quasi_newton/cauchy.hpp"

SW_BEGIN

constexpr int walk_bins = 512;
// The first list of a walk has so many breakpoints at most; none has more than the range of records.
constexpr int longest_list = 512;
constexpr int record_range = 1 << 20;
// A walk costs a sweep or two for each list. After so many, half a million breakpoints if none is longer than
// the first, the path is left where it is, still falling: less far than the exact point, as the approximate
// policies are. (Otherwise a billion variables that all meet their bounds in one iteration would take
// millions of sweeps.)
constexpr int most_lists = 1024;
constexpr uint64_t no_break = ~uint64_t(0);
constexpr uint64_t last_break = 0x7fefffffffffffffull + 1;  // the largest finite time

SW_HD uint64_t number_of_time(double t) {
    return is_finite(t) ? __builtin_bit_cast(uint64_t, t > 0 ? t : 0.0) + 1 : no_break;
}
SW_HD double time_of_number(uint64_t number) {
    return __builtin_bit_cast(double, number - 1);
}

// One listed breakpoint. `place` orders ties by the variable's index and says where its row is.
struct Break {
    uint64_t time;
    int64_t place;

    SW_HD bool before(const Break& other) const {
        return time != other.time ? time < other.time : place < other.place;
    }
    SW_HD int64_t variable() const { return place / record_range; }
    SW_HD int record() const { return int(place % record_range); }
};

SW_HD Break make_break(uint64_t time, int64_t variable, int record) {
    return {time, variable * record_range + record};
}

// `length` records at most: a breakpoint, and a row with u = h w g of its variable (2 pairs numbers) and h
// g². Until they are sorted, breaks[i] has its row at i.
struct BreakList {
    Break* breaks;
    double* rows;
    double* running;  // of the decision: one row of 4 pairs + 1 numbers for each member of its team
    int length;
};

// What one variable takes with it when it stops: y and s are its elements of a pair.
SW_HD double crossing_of_y(double y, double descent) {
    return y * descent;
}
SW_HD double crossing_of_s(double s, double g, double gamma) {
    return s * g / gamma;
}

// The first breakpoints of the rest of the range. Scalar, as all up to decide_list().
SW_HD void select_breaks(State& s) {
    s.walk.high = is_finite(s.walk.range) ? number_of_time(s.walk.range) : last_break;
    s.walk.shift = 0;
    s.action = Action::list_breaks;
}

// How many breakpoints the next list may have, at most `longest`: twice as many for each selection that had
// to be cut short of the range. (By the state alone, as breakpoints that share one time are added up in
// another order where they do not fit.)
SW_HD int list_length(const CauchyWalk& walk, int longest) {
    int length = longest_list;
    for (int cut = walk.lists - walk.ranges; cut > 0 && length < longest; --cut) length *= 2;
    return min_of(length, longest);
}

// How long lists may become for which so many breakpoints are wanted: no more than 32 MiB.
SW_HD constexpr int longest_by_memory(int64_t wanted, int capacity) {
    constexpr int64_t numbers = int64_t(1) << 22;
    static_assert(numbers / (2 + 3) <= record_range);
    return int(max_of(int64_t(longest_list), min_of(wanted, numbers / (2 * capacity + 3))));
}
// Of a host, and of ranks on hosts and on devices alike, where the chunks of all variables are so long: a
// sixteenth of many variables.
SW_HD constexpr int longest_of_chunks(int64_t chunk_length, int capacity) {
    return longest_by_memory(8 * chunk_length, capacity);
}

// From the first segment of the path, of this slope, whose minimiser lies beyond the first breakpoint.
SW_HD void start_walk(State& s, const PathSlope& slope) {
    const double range = 2 * max_of(s.first_break, -slope.offset / slope.curvature);
    s.walk.above = 0;
    s.walk.range = range > 0 ? range : double_infinity;
    s.walk.moving = s.movable_descent;
    s.walk.ranges = 0;
    s.walk.lists = 0;
    s.carry_time = -1;
    select_breaks(s);
}

SW_HD void end_walk(State& s, double cauchy_time) {
    s.cauchy_time = cauchy_time;
    s.action = Action::regather;
}

// Where the last crossing left the path.
SW_HD double walked_to(double carry_time) {
    return max_of(carry_time, 0.0);
}

// Whether the path ends in the segment that begins at `from`, and where.
SW_HD bool walk_settles(const State& s, const PathSlope& slope, double moving, double from, double to,
                        double& t) {
    t = from;
    return path_ends(moving, s.movable_descent) || settles(slope, from, to, t);
}

// The whole selection is crossed: the path ends before the next breakpoint, or the walk goes on there.
SW_HD_CALLED void end_selection(State& s, const Scratch& w) {
    CauchyWalk& walk = s.walk;
    const PathSlope slope = path_slope(walk.moving, s.gamma, w.path, w.carried, w.k, 2 * s.pairs);
    const double to = walk.high == last_break ? double_infinity : time_of_number(walk.high);
    double t;
    if (walk_settles(s, slope, walk.moving, walked_to(s.carry_time), to, t)) return end_walk(s, t);
    if (++walk.lists >= most_lists) return end_walk(s, is_finite(to) ? to : walked_to(s.carry_time));
    walk.above = walk.high;
    if (is_finite(walk.range) && walk.above >= number_of_time(walk.range)) {
        walk.range = walk.ranges < 8 && walk.range < 1e300 ? 8 * walk.range : double_infinity;
        ++walk.ranges;
    }
    select_breaks(s);
}

// Bins over the selection.
SW_HD void start_counting(State& s) {
    int shift = 0;
    while ((s.walk.high - s.walk.above - 1) >> shift >= walk_bins) ++shift;
    s.walk.shift = int16_t(shift);
    s.action = Action::count_breaks;
}

// The next list has been counted to fit. If it does not, the variables have changed in between: the walk
// ends, as it would go on for ever.
constexpr int16_t counted_to_fit = -1;
SW_HD void must_fit(State& s) {
    s.walk.shift = counted_to_fit;
}

// After the counts, of which there may be fewer than of all bins: `length` is a list's.
template <class Count>
SW_HD_CALLED void decide_count(State& s, const Count* bins, int length, int counted = walk_bins) {
    CauchyWalk& walk = s.walk;
    Count count = 0;
    int bin = 0;
    while (bin < counted && count + bins[bin] <= Count(length)) count += bins[bin++];
    s.action = Action::list_breaks;
    if (bin == counted) return must_fit(s);
    const uint64_t begins = walk.above + (uint64_t(bin) << walk.shift);
    if (count > 0) {
        walk.high = begins;
        must_fit(s);
    } else if (walk.shift == 0) {
        walk.high = begins + 1;
        s.action = Action::sum_ties;
    } else {
        walk.above = begins;  // there is none before
        walk.high = min_of(walk.high, begins + (uint64_t(1) << walk.shift));
        start_counting(s);
    }
}

// Member by member a record of the list, from `first` on: û = L⁻¹ u, t û and h g² of it and of those before
// it, added up.
template <class Team>
SW_HD void run_sums(Team& team, const BreakList& list, const Break* sorted, int first, int last,
                    const double* k, int size) {
    const int width = 2 * size + 1, at = first + team.rank();
    if (at < last) {
        const double* row = list.rows + int64_t(sorted[at].record()) * (size + 1);
        double* sums = list.running + int64_t(team.rank()) * width;
        const double t = time_of_number(sorted[at].time);
        SW_ROLLED
        for (int c = 0; c < size; ++c) sums[c] = row[c];
        substitute_lower(k, size, sums);
        SW_ROLLED
        for (int c = 0; c < size; ++c) sums[size + c] = t * sums[c];
        sums[2 * size] = row[size];
    }
    team.sync();
    if (last - first > 1) {
        SW_ROLLED
        for (int c = team.rank(); c < width; c += team.size()) {
            double total = 0;
            SW_ROLLED
            for (int a = 0; a < last - first; ++a) {
                double& sum = list.running[int64_t(a) * width + c];
                total += sum;
                sum = total;
            }
        }
        team.sync();
    }
}

// The slope once the records of `sums` are crossed as well; null: none.
SW_HD PathSlope slope_beyond(const Scratch& w, const double* sums, double moving, double gamma, int size) {
    if (!sums) return path_slope(moving, gamma, w.path, w.carried, w.k, size);
    double qr = 0, qq = 0;
    SW_ROLLED
    for (int c = 0; c < size; ++c) {
        const double q = w.path[c] - sums[c], scaled = q * w.k[c * size + c];
        qr += scaled * (w.carried[c] - sums[size + c]);
        qq += scaled * q;
    }
    return {-moving + qr, moving / gamma - qq};
}

// After the list: `listed` breakpoints were found, `sorted` are those that fit, by Break::before. Crosses
// them until the path ends; ties share one breakpoint and are crossed together. As many at a time as the team
// has members.
template <class Team>
SW_HD_CALLED void decide_list(Team& team, State& s, const Scratch& w, const BreakList& list,
                              const Break* sorted, double listed) {
    const bool fits = listed <= list.length;
    const int count = fits ? int(listed) : 0, size = 2 * s.pairs, width = 2 * size + 1;
    const double gamma = s.gamma;
    double moving = s.walk.moving, crossed = s.carry_time, ended = -1;
    for (int first = 0; first < count && ended < 0; first += team.size()) {
        const int last = min_of(first + team.size(), count), at = first + team.rank();
        run_sums(team, list, sorted, first, last, w.k, size);
        // Each member looks at the segment that ends with its record.
        double stop = last;
        if (at < last && (at == 0 || sorted[at - 1].time < sorted[at].time)) {
            const double* sums = at > first ? list.running + int64_t(at - first - 1) * width : nullptr;
            const double left = sums ? max_of(0.0, moving - sums[2 * size]) : moving;
            const double from = at > 0 ? time_of_number(sorted[at - 1].time) : walked_to(crossed);
            double t;
            if (walk_settles(s, slope_beyond(w, sums, left, gamma, size), left, from,
                             time_of_number(sorted[at].time), t))
                stop = at;
        }
        stop = team.min(stop);
        team.sync();
        if (int(stop) > first) {
            const double* sums = list.running + int64_t(int(stop) - first - 1) * width;
            SW_ROLLED
            for (int c = team.rank(); c < size; c += team.size()) {
                w.path[c] -= sums[c];
                w.carried[c] -= sums[size + c];
            }
            moving = max_of(0.0, moving - sums[2 * size]);
            crossed = time_of_number(sorted[int(stop) - 1].time);
        }
        if (stop < last) ended = time_of_number(sorted[int(stop)].time);
        team.sync();
    }
    if (team.rank() == 0) {
        s.walk.moving = moving;
        s.carry_time = crossed;
        if (!fits && s.walk.shift == counted_to_fit) {
            end_walk(s, walked_to(crossed));
        } else if (!fits) {
            start_counting(s);
        } else if (ended >= 0) {
            double t;
            const PathSlope slope = path_slope(moving, gamma, w.path, w.carried, w.k, size);
            walk_settles(s, slope, moving, walked_to(crossed), ended, t);
            end_walk(s, t);
        } else {
            end_selection(s, w);
        }
    }
    team.sync();
}

// After the sums over the variables whose breakpoint is walk.high: a row as in a list, which is overwritten.
// L⁻¹ is linear, so one solve serves all of them.
template <class Team>
SW_HD_CALLED void decide_ties(Team& team, State& s, const Scratch& w, double* row) {
    const int size = 2 * s.pairs;
    const double time = time_of_number(s.walk.high);
    solve_lower(team, w.k, size, row);
    const PathSlope before = path_slope(s.walk.moving, s.gamma, w.path, w.carried, w.k, size);
    double t;
    const bool settled = walk_settles(s, before, s.walk.moving, walked_to(s.carry_time), time, t);
    team.sync();
    if (!settled) {
        SW_ROLLED
        for (int c = team.rank(); c < size; c += team.size()) {
            w.path[c] -= row[c];
            w.carried[c] -= time * row[c];
        }
    }
    team.sync();
    if (team.rank() == 0) {
        if (settled) {
            end_walk(s, t);
        } else {
            s.walk.moving = max_of(0.0, s.walk.moving - row[size]);
            s.carry_time = time;
            end_selection(s, w);
        }
    }
    team.sync();
}

SW_END
