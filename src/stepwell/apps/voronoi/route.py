"""An order in which a pen plotter visits points so that it travels little with the pen up.

A path is built by taking the shortest links first (greedy), then improved by 2-opt and Or-opt moves among near
neighbours, as Bentley (1992) describes: a point is looked at again only after something near it has changed.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from stepwell.apps.voronoi.mesh import read_extent, read_points
from stepwell.common.checks import read_choice

METHODS = ("auto", "improved", "greedy", "hilbert", "given")
#: The shortest tour of n random points in area A tends to this times √(n A) (Applegate et al. 2006).
RANDOM_TOUR = 0.7124
#: A tour of n points of a hexagonal lattice links nearest neighbours: √(2/√3) √(n A).
LATTICE_TOUR = math.sqrt(2 / math.sqrt(3))
#: `auto` improves up to so many points and is content with the shorter one of two paths beyond.
MAX_IMPROVED = 200_000
_NEIGHBOURS = 8
_LONGEST_SEGMENT = 3


@dataclass(frozen=True)
class Route:
    """A plotting order and the pen-up travel it takes.

    Attributes
    ----------
    order : array of int, (n,)
        Numbers of the points, the first to be visited first.
    length : float
        Length of the path in this order.
    given_length, unordered_length, hilbert_length : float
        The same for the order in which the points came, for one drawn at random, and for that of a Hilbert curve.
    bound : float
        No path through these points is shorter: half the distances to the two nearest others, summed.
    random_tour, lattice_tour : float
        What the shortest tour of as many points would be in a rectangle of the given extent if they were random
        (0.7124 √(n A)), or a hexagonal lattice (1.0746 √(n A)), to which tessellations of uniform density come near.
    method : str
        How the order was found.
    """

    order: np.ndarray
    length: float
    given_length: float
    unordered_length: float
    hilbert_length: float
    bound: float
    random_tour: float
    lattice_tour: float
    method: str


def plotting_route(points: Any, extent: tuple[float, float] | None = None, *, method: str = "auto") -> Route:
    """Return a short path through all points.

    Parameters
    ----------
    points : array, (n, 2)
    extent : (width, height), optional
        The rectangle that the reference lengths are for; by default the smallest that holds the points.
    method : {"auto", "improved", "greedy", "hilbert", "given"}
        ``improved`` is the greedy path after 2-opt and Or-opt; ``auto`` is that up to 200,000 points, else the shorter
        one of ``greedy`` and ``hilbert``.
        ``hilbert`` takes next to no time.

    Returns
    -------
    Route

    Examples
    --------
    >>> points = np.random.default_rng(0).random((400, 2))
    >>> route = plotting_route(points, (1.0, 1.0))
    >>> sorted(route.order.tolist()) == list(range(400))
    True
    >>> route.bound < route.length < route.hilbert_length < route.given_length
    True
    """
    points = read_points("points", points)
    read_choice("method", method, METHODS)
    n = len(points)
    choose = method == "auto"
    if choose:
        method = "improved" if n <= MAX_IMPROVED else "greedy"
    width, height = (
        read_extent(extent, flat=True) if extent is not None else (np.ptp(points, axis=0) if n else (0.0, 0.0))
    )
    curve = hilbert_order(points)
    order = curve
    if method == "given":
        order = np.arange(n)
    elif method != "hilbert" and n > 3:
        # In the curve's order what is near in the plane is near in memory; equal points follow each other.
        nearest, distance = _neighbours(points[curve])
        path = _greedy_path(points[curve], nearest, distance)
        if method == "improved":
            path = _improve(points[curve], path, nearest, distance)
        order = curve[path]
        # Of points as evenly spread as a tessellation's the curve is often the shorter one.
        if choose and method == "greedy" and path_length(points, curve) < path_length(points, order):
            order, method = curve, "hilbert"
    scale = math.sqrt(n * float(width) * float(height))
    return Route(
        order=order,
        length=path_length(points, order),
        given_length=path_length(points),
        unordered_length=path_length(points, np.random.default_rng(0).permutation(n)),
        hilbert_length=path_length(points, curve),
        bound=_bound(points),
        random_tour=RANDOM_TOUR * scale,
        lattice_tour=LATTICE_TOUR * scale,
        method=method,
    )


def path_length(points: np.ndarray, order: np.ndarray | None = None) -> float:
    """Return the length of the open path through points, in their own order or the one given.

    Examples
    --------
    >>> path_length(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]), np.array([0, 2, 1]))
    7.0
    """
    steps = np.diff(points if order is None else points[order], axis=0)
    return float(np.hypot(steps[:, 0], steps[:, 1]).sum())


def hilbert_order(points: np.ndarray) -> np.ndarray:
    """Return the order of points along a Hilbert curve through a grid of 2¹⁶ x 2¹⁶ squares.

    Examples
    --------
    >>> hilbert_order(np.array([[0.9, 0.1], [0.1, 0.1], [0.9, 0.9], [0.1, 0.9]])).tolist()
    [1, 3, 2, 0]
    """
    if not len(points):
        return np.zeros(0, np.intp)
    low = points.min(axis=0)
    side = float(np.ptp(points, axis=0).max()) or 1.0
    x, y = np.minimum((points - low) * (65536.0 / side), 65535.0).astype(np.int64).T
    key = np.zeros(len(points), np.int64)
    for bit in range(15, -1, -1):
        right, lower = (x >> bit) & 1, (y >> bit) & 1
        key = (key << 2) | ((3 * right) ^ lower)
        # Where the curve starts and ends its quadrants are turned: x and y change places, mirrored in the last.
        mirrored = (lower == 0) & (right == 1)
        x, y = np.where(mirrored, 65535 - x, x), np.where(mirrored, 65535 - y, y)
        x, y = np.where(lower == 0, y, x), np.where(lower == 0, x, y)
    return np.argsort(key, kind="stable")


def _bound(points: np.ndarray) -> float:
    """Every point but the two ends has two links, so a path is at least half the sum of the two nearest distances."""
    if len(points) < 3:
        return path_length(points)
    distance = cKDTree(points).query(points, k=3)[0][:, 1:]
    return float(distance.sum() / 2 - distance[:, 1].max())


def _neighbours(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the nearest other points, (n, k), and their distances."""
    k = min(_NEIGHBOURS, len(points) - 1)
    distance, nearest = cKDTree(points).query(points, k=k + 1)
    # Among equal points the first answer need not be the point itself: it is dropped wherever it stands.
    own = nearest == np.arange(len(points))[:, None]
    own[~own.any(axis=1), -1] = True
    return nearest[~own].reshape(-1, k), distance[~own].reshape(-1, k)


def _greedy_path(points: np.ndarray, nearest: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Link the closest pairs first, if they are ends of different pieces; then the pieces' ends likewise."""
    n = len(points)
    links: list[list[int]] = [[] for _ in range(n)]
    other = list(range(n))  # at each end of a piece, the other end

    def link(pairs: np.ndarray) -> None:
        for a, b in pairs.tolist():
            if len(links[a]) < 2 and len(links[b]) < 2 and other[a] != b:
                links[a].append(b)
                links[b].append(a)
                first, last = other[a], other[b]
                other[first], other[last] = last, first

    link(_shortest_first(np.arange(n), nearest, distance))
    while len(ends := np.array([point for point in range(n) if len(links[point]) < 2])) > 2:
        # At most one of an end's near ends is that of its own piece: every round makes at least one link.
        near, far = _neighbours(points[ends])
        link(_shortest_first(ends, ends[near], far))
    path = [int(ends[0]), links[int(ends[0])][0]]
    while len(path) < n:
        first, last = links[path[-1]]
        path.append(last if first == path[-2] else first)
    return np.array(path)


def _shortest_first(points: np.ndarray, nearest: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """All pairs of a point and a near one, (p, 2), the closest first."""
    order = np.argsort(distance, axis=None, kind="stable")
    return np.column_stack([np.repeat(points, nearest.shape[1])[order], nearest.ravel()[order]])


def _improve(points: np.ndarray, path: np.ndarray, nearest: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Shorten a path until no 2-opt or Or-opt move between near points does."""
    tour = _Path(points, path)
    near = [list(zip(*pair)) for pair in zip(nearest.tolist(), distance.tolist())]
    waiting = deque(path.tolist())
    queued = bytearray(b"\1" * len(path))
    while waiting:
        point = waiting.popleft()
        queued[point] = 0
        while touched := tour.uncross(point, near[point]) or tour.carry(point, near[point]):
            for again in touched:
                if again >= 0 and not queued[again]:
                    queued[again] = 1
                    waiting.append(again)
    return np.array(tour.order[1:-1])


class _Path:
    """An open path under change. A point -1 before its start and after its end is at no distance from any."""

    #: Longer stretches are not reversed: it would take long, and shorter moves do nearly as well.
    LONGEST = 25_000
    #: Gains below this share of the mean link are rounding.
    LEAST = 1e-9

    def __init__(self, points: np.ndarray, path: np.ndarray) -> None:
        n = len(path)
        # Each is seen as an array for stretches and through `array` for single elements, which is several times faster.
        self.order = array("q", [-1, *path.tolist(), -1])
        self.place = array("q", bytes(8 * n))
        self._order = np.frombuffer(self.order, np.int64)
        self._place = np.frombuffer(self.place, np.int64)
        self._place[path] = np.arange(1, n + 1)
        self.x, self.y = points[:, 0].tolist(), points[:, 1].tolist()
        self.least = self.LEAST * path_length(points, path) / n

    def reach(self, a: int, b: int) -> float:
        """Return the distance of two points."""
        if a < 0 or b < 0:
            return 0.0
        return math.hypot(self.x[a] - self.x[b], self.y[a] - self.y[b])

    def reverse(self, first: int, last: int) -> None:
        """Turn round the stretch between two places."""
        stretch = self._order[first : last + 1]
        stretch[:] = stretch[::-1].copy()
        self._place[stretch] = np.arange(first, last + 1)

    def uncross(self, a: int, near: list[tuple[int, float]]) -> tuple[int, ...]:
        """2-opt: link `a` to a near point, and their successors (or predecessors), if that is shorter."""
        order, place, reach = self.order, self.place, self.reach
        for side in (1, -1):
            here = place[a]
            c = order[here + side]
            old = reach(a, c)
            for b, new in near:
                if new >= old:
                    break
                there = place[b]
                d = order[there + side]
                if old + reach(b, d) - new - reach(c, d) <= self.least:
                    continue
                first, last = (here, there) if here < there else (there, here)
                first, last = (first + 1, last) if side == 1 else (first, last - 1)
                if last - first < self.LONGEST:
                    self.reverse(first, last)
                    return a, b, c, d
        return ()

    def carry(self, a: int, near: list[tuple[int, float]]) -> tuple[int, ...]:
        """Or-opt: move `a`, with up to two points that follow (or precede), to a side of a near point."""
        order, place, reach = self.order, self.place, self.reach
        here = place[a]
        for side in (1, -1):
            p = order[here - side]
            for size in range(_LONGEST_SEGMENT):
                tail = here + side * size
                e = order[tail]
                if e < 0:
                    break
                q = order[tail + side]
                saved = reach(p, a) + reach(e, q) - reach(p, q)
                for b, new in near:
                    if new >= saved:
                        break
                    there = place[b]
                    if 0 <= (there - here) * side <= size:
                        continue  # inside what is moved
                    for beyond in (1, -1):
                        x = order[there + beyond]
                        if x in (a, e):
                            continue  # back to where it was
                        if saved + reach(b, x) - new - reach(e, x) > self.least and self._move(
                            min(here, tail), max(here, tail), there, beyond, side
                        ):
                            return a, e, p, q, b, x
        return ()

    def _move(self, first: int, last: int, there: int, beyond: int, side: int) -> bool:
        """Move the stretch between two places beside the point at `there`, its end `a` next to that point."""
        # The stretch has `a` first if side is 1; it must come to lie with `a` first if it goes after the point.
        turned = side != beyond
        left, right = (there, there + 1) if beyond == 1 else (there - 1, there)
        size = last - first + 1
        if right <= first:
            if last - right >= self.LONGEST:
                return False
            self.reverse(right, last)
            self.reverse(right + size, last)
            start = right
        else:
            if left - first >= self.LONGEST:
                return False
            self.reverse(first, left)
            self.reverse(first, left - size)
            start = left - size + 1
        if not turned:
            self.reverse(start, start + size - 1)
        return True
