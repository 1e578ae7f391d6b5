"""Normal equations that are given, G = AᵀA and c = Aᵀb: whether there can be such an A."""

from __future__ import annotations

import numpy as np

from stepwell import arrays

Array = arrays.Array


def require_symmetric(G: Array, single: bool) -> None:
    """Raise for normal equations that no rounding has made unsymmetric.

    Two sums of the same m products differ by at most 2 m ulp of √(G_ii G_jj): √ulp allows for 1e7 rows, and for 1e3 in
    single precision, where rounding errors are of either sign.
    """
    xp = arrays.namespace_of(G)
    turned = xp.matrix_transpose(G)
    if bool(xp.all(turned == G)):
        return
    tolerance = float(np.finfo(np.float32 if single else np.float64).eps) ** 0.5
    size = xp.sqrt(xp.abs(xp.linalg.diagonal(G)))
    with np.errstate(all="ignore"):
        apart = xp.abs(G - turned)
        bad = xp.isfinite(apart) & (apart > tolerance * size[..., None] * size[..., None, :])
    if not bool(xp.any(bad)):
        return
    apart = arrays.host_copy(xp.where(bad, apart, 0.0 * size[..., None]))
    place = tuple(map(int, np.unravel_index(int(np.nanargmax(apart)), apart.shape)))
    raise ValueError(
        f"G is not symmetric: it differs from its transpose by {apart[place]:.3g} at index {place}; allowed: a "
        f"symmetric matrix, to {tolerance:.1g} of √(G_ii G_jj); or (G + G.T) / 2"
    )


def require_squares(G: Array) -> None:
    """Raise unless what should be squares of the lengths of columns is at least zero."""
    xp = arrays.namespace_of(G)
    squares = xp.linalg.diagonal(G)
    negative = xp.isfinite(squares) & (squares < 0)
    if not bool(xp.any(negative)):
        return
    *system, i = map(int, np.argwhere(arrays.host_copy(negative))[0])
    raise ValueError(
        f"G is {arrays.host_copy(squares)[*system, i]:.3g} at index {(*system, i, i)}; allowed: G_ii >= 0, a sum of "
        "squares, as in G = AᵀA"
    )


def with_squares(G: Array, c: Array, lone: bool, single: bool) -> Array:
    """Return G with a diagonal that goes with the rest of it and with c; raise where none does.

    A column of zeros has products of zero. Those of a column whose square has underflowed may be left, but are small;
    the least normal number then stands in place of the square, so that answers are judged by that column too. (It is
    no more than what sums of squares lose to underflow.)

    Small is what `hidden` allows, the length of a column of 1e7 numbers that are all lost. Of |b| a lower bound is
    known, what other columns see of it; that, and 1 in the caller's units, may be exceeded by 50 decades, and in
    single precision by 5.
    """
    xp = arrays.namespace_of(G)
    squares = xp.linalg.diagonal(G)
    normal = float(np.finfo(np.float64).tiny)
    lost = squares < normal
    if not bool(xp.any(lost)) or not bool(xp.any(lost & (c != 0)) | xp.any(lost[..., None] & (G != 0))):
        return G
    lost, squares, products, linear = map(arrays.host_copy, (lost, squares, G, c))
    tiny = float(np.finfo(np.float32).tiny) if single else normal
    hidden = (1e7 * tiny) ** 0.5
    with np.errstate(all="ignore"):
        lengths = np.sqrt(squares)
        # Products with columns of length 1.
        beside = np.abs(products) / (lengths + hidden)[..., None, :]
        of_b = np.where(lost, 0.0, np.abs(linear) / lengths).max(axis=-1, keepdims=True)
        wrong = lost & np.isfinite(linear) & (np.abs(linear) > hidden ** (2 / 3) * np.maximum(of_b, 1.0))
        wrong_products = lost[..., None] & np.isfinite(products) & (beside > hidden)
        added = np.maximum(tiny, beside.max(axis=-1) ** 2) - squares
    for name, array, bad in (("c", linear[0] if lone else linear, wrong), ("G", products, wrong_products)):
        if bad.any():
            place = tuple(map(int, np.argwhere(bad[0] if lone and name == "c" else bad)[0]))
            i = place[-1] if name == "c" else place[-2]
            at = place if len(place) > 1 else i
            raise ValueError(
                f"{name} is {array[place]:.3g} at index {at}, and G_ii there 0; allowed: 0, as column {i} of A is zero "
                "where G = AᵀA and c = Aᵀb"
            )
    seen = np.isfinite(linear) & (linear != 0)  # (a system of NaN changes nothing for the others)
    some = lost & ((products != 0).any(axis=-1) | (seen.any(axis=0) if G.ndim == 2 else seen))
    added = np.where(some & np.isfinite(added), added, 0.0)
    if not added.any():
        return G
    return G + arrays.copy_to_device_of(added[..., None] * np.eye(added.shape[-1]), G)
