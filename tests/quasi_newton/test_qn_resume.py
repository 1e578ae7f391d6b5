"""A run that is saved and resumed goes on as if it had never stopped."""

from __future__ import annotations

import copy
import hashlib
import io
import pickle

import numpy as np
import pytest
from qn_oracles import Quadratic, random_box, run

from stepwell import LBFGSB, _core
from stepwell.quasi_newton import saved_state
from stepwell.quasi_newton import state as state_layout
from stepwell.quasi_newton.state import with_slots


def through_pickle(state):
    return pickle.loads(pickle.dumps(state))


def through_savez(state):
    memory = io.BytesIO()
    np.savez(memory, **state)
    memory.seek(0)
    return np.load(memory)


@pytest.mark.parametrize("save", [dict, through_pickle, through_savez])
@pytest.mark.parametrize("kind", ["plain", "bounded", "diagonal", "callable", "float32", "va15"])
def test_resume_is_bitwise_at_every_turn(kind, save):
    rng = np.random.default_rng(6)
    n = 14
    fun = Quadratic(n, rng, condition=1e3, quartic=0.5, shift=6.0)
    lower, upper, x0 = random_box(n, rng)
    h0 = {"diagonal": rng.uniform(0.1, 1, n), "callable": lambda x: 1 / (5 + x * x)}.get(kind)
    if kind == "float32":
        x0 = x0.astype(np.float32)
        lower, upper = lower.astype(np.float32), upper.astype(np.float32)
        x0 = np.clip(x0, lower, upper)
    make = dict(
        bounds=None if kind == "plain" else (lower, upper), m=np.int64(3), h0=h0, gtol=1e-6,
        line_search="va15" if kind == "va15" else "lbfgsb", threads=2, cauchy="exact", maxiter=25,
    )  # fmt: skip
    opt = LBFGSB(x0, **make)
    states, points = [], []
    while not opt.done:
        states.append(opt.state_dict())
        points.append(np.array(opt.x))
        opt.tell(*fun(opt.x))
    final = opt.state_dict()
    assert len(points) > 12
    for turn, state in enumerate(states):
        again = LBFGSB.from_state_dict(save(state), h0=h0 if kind == "callable" else None)
        assert np.array_equal(again.x, points[turn])
        if turn % (7 if save is not dict else 1):
            continue
        for expected in points[turn:]:
            assert np.array_equal(again.x, expected)
            assert again.x.dtype == expected.dtype
            again.tell(*fun(again.x))
        assert again.done
        assert (again.status, again.nit, again.nfev) == (opt.status, opt.nit, opt.nfev)
        ours = again.state_dict()
        for name in ("x", "g", "trial", "small", "states"):
            assert np.array_equal(ours[name], final[name], equal_nan=name != "states")
    ended = LBFGSB.from_state_dict(save(final), h0=h0 if kind == "callable" else None)
    assert ended.done
    assert np.array_equal(ended.result().x, opt.result().x)
    assert np.array_equal(ended.result().hess_inv.todense(), opt.result().hess_inv.todense())


def milder(x):
    return 1 / (5 + x * x)


@pytest.mark.parametrize("copied", [through_pickle, copy.deepcopy, copy.copy])
@pytest.mark.parametrize("kind", ["numpy", "float32", "torch", "jax", "callable"])
def test_optimizers_can_be_pickled_and_copied(kind, copied):
    """Oracle: the run itself, which a copy must repeat bit for bit without disturbing it."""
    fun = Quadratic(9, np.random.default_rng(2), condition=1e3, quartic=0.5, shift=6.0)
    x0 = np.ones((3, 3), np.float32 if kind == "float32" else float)
    start = {"torch": "torch", "jax": "jax.numpy"}.get(kind)
    given = x0 if start is None else pytest.importorskip(start).asarray(x0)
    opt = LBFGSB(given, (-2.0, 2.0), m=3, h0=milder if kind == "callable" else None)
    evaluate = lambda x: fun(np.asarray(x).reshape(-1))  # noqa: E731
    for turn in range(8):
        opt.tell(*evaluate(opt.x))
        if turn == 4:
            early = copied(opt)
    late = copied(opt)
    for run_on in (early, late, opt):
        while not run_on.done:
            run_on.tell(*evaluate(run_on.x))
    for other in (early, late, copied(opt)):
        assert type(other.x) is type(opt.x)
        assert np.array_equal(np.asarray(other.x), np.asarray(opt.x))
        assert (other.status, other.nit, other.nfev, other.fun) == (opt.status, opt.nit, opt.nfev, opt.fun)


def test_a_saved_state_has_the_version_of_its_layout():
    layout = repr((_core.STATE_SIZE, sorted(_core.STATE_FIELDS.items())))
    known = {6: "738c85511ec2c626"}  # a new layout of State needs a new version
    assert known[saved_state.VERSION] == hashlib.sha256(layout.encode()).hexdigest()[:16]


def test_history_in_a_ring_of_another_length_goes_on_with_the_same_bits():
    rng = np.random.default_rng(8)
    fun = Quadratic(14, rng, condition=1e3, quartic=0.5)
    lower, upper, x0 = random_box(14, rng)
    opt = LBFGSB(x0, bounds=(lower, upper), m=3, gtol=1e-8)
    for turn in range(12):
        state = opt.state_dict()
        longer = with_slots(state, 4)
        assert longer["s"].shape == (1, 4, 14)
        back = with_slots(longer, 3)
        back["checksum"] = saved_state._checksum(back)
        one, two = LBFGSB.from_state_dict(state), LBFGSB.from_state_dict(back)
        assert np.array_equal(one.result().hess_inv.todense(), two.result().hess_inv.todense()), turn
        for _ in range(4):
            one.tell(*fun(one.x))
            two.tell(*fun(two.x))
            assert np.array_equal(one.x, two.x)
        opt.tell(*fun(opt.x))


def test_a_saved_state_is_a_copy():
    fun = Quadratic(5, np.random.default_rng(0), quartic=0.5)
    opt = run(LBFGSB(np.ones(5)), fun, 3)
    state = opt.state_dict()
    before = {name: np.array(value) for name, value in state.items()}
    run(opt, fun)
    one, two = LBFGSB.from_state_dict(state), LBFGSB.from_state_dict(state)
    run(one, fun)
    assert all(np.array_equal(before[name], state[name]) for name in ("x", "trial", "states", "s"))
    assert np.array_equal(run(two, fun).x, opt.x)


def test_states_that_cannot_be_resumed():
    state = LBFGSB(np.ones(3), h0=lambda x: np.ones(3)).state_dict()
    with pytest.raises(ValueError, match="h0 is None; allowed: a callable, as in the saved run"):
        LBFGSB.from_state_dict(state)
    with pytest.raises(ValueError, match=r"h0 is <function .*; allowed: None, as in the saved run"):
        LBFGSB.from_state_dict(LBFGSB(np.ones(3)).state_dict(), h0=lambda x: x)
    with pytest.raises(ValueError, match="version"):
        LBFGSB.from_state_dict({**LBFGSB(np.ones(3)).state_dict(), "version": 99})
    with pytest.raises(ValueError, match="version"):
        LBFGSB.from_state_dict({})
    plain = LBFGSB(np.ones(3)).state_dict()
    with pytest.raises(ValueError, match="h0"):
        LBFGSB.from_state_dict(plain, h0=np.ones(3))
    with pytest.raises(ValueError, match=r"state lacks \['s', 'trial'\]"):
        LBFGSB.from_state_dict({name: value for name, value in plain.items() if name not in ("s", "trial")})
    with pytest.raises(ValueError, match="another checksum than its contents"):
        LBFGSB.from_state_dict({**plain, "g": plain["g"][:, :2]})


def changed(state, **fields):
    """A state that somebody has changed, checksum and all."""
    state = {**state, **fields}
    return {**state, "checksum": saved_state._checksum(state)}


def test_states_whose_fields_contradict_each_other_are_refused():
    bounded = LBFGSB(np.ones(3), (np.zeros(3), np.full(3, 2.0)), m=4).state_dict()
    record = bounded["states"].copy()
    far = record.reshape(-1).view(state_layout.STATE_DTYPE)
    far["head"] = 4
    for fields, words in (
        ({"g": bounded["g"][:, :2]}, r"state\['g'\] is \(1, 2\), float64; allowed: \(1, 3\)"),
        ({"s": np.zeros(bounded["s"].shape, np.float32)}, r"state\['s'\] is .*float32; allowed"),
        ({"x": bounded["x"].astype(int)}, "dtype int64; allowed: float64, float32"),
        ({"lower": bounded["lower"][:2]}, r"state\['lower'\] is \(2,\)"),
        ({"lower": np.full(3, np.nan)}, "outside the bounds"),
        ({"upper": np.full(3, 0.5)}, "outside the bounds"),
        ({"states": record}, "no state of the engine"),
        ({"weights": -np.ones(3)}, "weights.* not all positive"),
        ({"weights_vary": True}, "no weights"),
        ({"shape": (4,)}, "allowed"),
    ):
        with pytest.raises(ValueError, match=words):
            LBFGSB.from_state_dict(changed(bounded, **fields))
    lone = {name: value for name, value in bounded.items() if name != "upper"}
    with pytest.raises(ValueError, match="one of lower and upper"):
        LBFGSB.from_state_dict(changed(lone))


def test_a_copied_record_has_every_byte():
    """NumPy copies records field by field: bytes of no field would be whatever lay in the new memory."""
    dtype = state_layout.STATE_DTYPE
    whole = (np.arange(3 * dtype.itemsize) % 251).astype(np.uint8)
    given = np.zeros(3, dtype)
    given[...] = whole.view(dtype)
    for copied in (whole.view(dtype).copy(), np.array(whole.view(dtype)), given):
        assert np.array_equal(copied.view(np.uint8), whole)
