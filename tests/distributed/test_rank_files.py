"""A run in a folder: saved on so many ranks, continued on others with the same bits, whole at every moment."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from rank_problems import PAIRS, Fixed, digest_of, rosenbrock

from stepwell import LBFGSB
from stepwell.common.files import Unreadable
from stepwell.distributed import RankError, run_threads, split
from stepwell.quasi_newton.ranks.files import Folder


def optimizer(comm, **options):
    layout = split(PAIRS, comm, align=2)
    value, start, bounds, diagonal = rosenbrock(layout)
    if options.pop("weighted", False):
        options["h0"] = diagonal
    return LBFGSB(start, bounds, comm=layout, ftol=0, gtol=1e-6, threads=1, **options), value


def tell(opt, value, times):
    for _ in range(times):
        opt.tell(*value(opt.x))


def changed(folder, **fields):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def saved_by(ranks, folder, *, turns=13, **options):
    """Save a run after some turns; return what it found some turns later."""

    def program(comm):
        opt, value = optimizer(comm, **options)
        tell(opt, value, turns)
        opt.save(folder)
        tell(opt, value, 6)
        return opt.result()

    return digest_of(run_threads(ranks, program))


@pytest.mark.parametrize("plant", ["pipe", "link"])
def test_what_stands_under_the_name_of_the_manifest_is_replaced(tmp_path, plant):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("of somebody else")
    folder.mkdir()
    place = folder / "manifest.json"
    reader = None
    if plant == "pipe":
        os.mkfifo(place)
        reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)  # so that nothing can wait for one
    else:
        place.symlink_to(victim)
    expected = saved_by(2, folder)
    if reader is not None:
        os.close(reader)
    assert place.is_file()
    assert not place.is_symlink()
    assert victim.read_text() == "of somebody else"
    assert digest_of([continued(None, folder)]) == expected


def continued(comm, folder, **options):
    opt = LBFGSB.load(folder, comm, **options)
    value, *_ = rosenbrock(split(PAIRS, "self" if comm is None else comm, align=2))
    tell(opt, value, 6)
    return opt.result()


@pytest.mark.parametrize("options", [{}, {"m": 3}, {"weighted": True}], ids=str)
@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 5), (8, 1)])
def test_a_run_goes_on_with_the_same_bits_on_another_number_of_ranks(tmp_path, before, after, options):
    expected = saved_by(before, tmp_path, **options)
    assert digest_of(run_threads(after, lambda comm: continued(comm, tmp_path))) == expected
    assert digest_of([continued(None, tmp_path)]) == expected
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["files"]) == before
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", *manifest["files"]}


def test_on_gpus_a_run_goes_on_in_whole_chunks(tmp_path):
    """Without them bits would hold for these pieces alone. (On GPUs themselves: test_rank_gpu.py.)"""
    saved_by(2, tmp_path)
    found = Folder.of(tmp_path)
    assert not found.layout(Fixed(3), on_device=False).whole_chunks
    with pytest.warns(UserWarning, match="cannot be dealt out evenly"):
        assert found.layout(Fixed(3), on_device=True).whole_chunks


def test_a_run_before_its_first_turn_and_one_that_has_ended(tmp_path):
    expected = saved_by(3, tmp_path / "first", turns=0)
    assert digest_of(run_threads(2, lambda comm: continued(comm, tmp_path / "first"))) == expected

    def program(comm):
        opt, value = optimizer(comm, maxiter=4)
        while not opt.done:
            opt.tell(*value(opt.x))
        opt.save(tmp_path / "ended")
        return opt.result()

    ended = digest_of(run_threads(2, program))
    again = run_threads(3, lambda comm: LBFGSB.load(tmp_path / "ended", comm))
    assert all(opt.done for opt in again)
    assert digest_of([opt.result() for opt in again]) == ended


def test_pieces_of_a_state_by_hand():
    def program(comm):
        opt, value = optimizer(comm)
        tell(opt, value, 7)
        again = LBFGSB.from_state_dict(opt.state_dict(), comm=split(PAIRS, comm, align=2))
        tell(opt, value, 4)
        tell(again, value, 4)
        return opt.result(), again.result()

    found = run_threads(2, program)
    assert digest_of([r for r, _ in found]) == digest_of([r for _, r in found])


def test_a_run_without_ranks(tmp_path):
    x0 = np.arange(1, 7.0).reshape(2, 3)
    opt = LBFGSB(x0)
    tell(opt, lambda x: (float((x**4).sum()), 4 * x**3), 3)
    opt.save(tmp_path / "run.ckpt")
    again = LBFGSB.load(tmp_path / "run.ckpt")
    ranked = LBFGSB.load(tmp_path / "run.ckpt", "self")
    assert again.x.shape == ranked.x.shape == (2, 3)
    for one in (opt, again, ranked):
        tell(one, lambda x: (float((x**4).sum()), 4 * x**3), 3)
    np.testing.assert_array_equal(opt.x, again.x)
    np.testing.assert_array_equal(opt.x, ranked.x)


def test_pieces_keep_the_shape_of_their_rows(tmp_path):
    def save(comm):
        layout = split(11_000, comm, align=100)
        opt = LBFGSB(np.zeros(((layout.end - layout.begin) // 100, 10, 10)), comm=layout)
        opt.save(tmp_path)
        return opt.x.shape

    # Chunks of 1,000 variables: 3, 4 and 4 of them; 5 and 6.
    assert run_threads(3, save) == [(30, 10, 10), (40, 10, 10), (40, 10, 10)]
    assert run_threads(2, lambda comm: LBFGSB.load(tmp_path, comm).x.shape) == [(50, 10, 10), (60, 10, 10)]
    assert LBFGSB.load(tmp_path).x.shape == (110, 10, 10)


def test_a_diagonal_that_changes(tmp_path):
    def h0(x):
        return 1e-3 * (1 + 0.1 * np.tanh(x))

    expected = saved_by(2, tmp_path, h0=h0)
    assert digest_of(run_threads(3, lambda comm: continued(comm, tmp_path, h0=h0))) == expected


# ---- trouble ----


def test_the_run_saved_before_stays_until_the_new_one_is_whole(tmp_path, monkeypatch):
    expected = saved_by(2, tmp_path, turns=9)
    old = {path.name for path in tmp_path.iterdir()}
    real = np.lib.format.write_array

    def full(*arguments, **options):
        import threading

        if threading.current_thread().name == "full":
            raise OSError(28, "No space left on device")
        real(*arguments, **options)

    monkeypatch.setattr(np.lib.format, "write_array", full)

    def program(comm):
        import threading

        threading.current_thread().name = "full" if comm.rank == 1 else "fine"
        opt, value = optimizer(comm)
        tell(opt, value, 3)
        with pytest.raises((OSError, RankError), match="No space left"):
            opt.save(tmp_path)

    run_threads(3, program)
    assert old <= {path.name for path in tmp_path.iterdir()}
    assert digest_of(run_threads(3, lambda comm: continued(comm, tmp_path))) == expected
    monkeypatch.undo()
    saved_by(2, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3  # what the failed attempt has left is gone


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda folder, files: files[1].unlink(), "No such file"),
        (
            lambda folder, files: files[1].write_bytes(files[1].read_bytes()[:-200]),
            "npz file|cannot be read|damaged",
        ),
        (lambda folder, files: files[1].write_bytes(files[0].read_bytes()), "is not the file that the manifest names"),
        (lambda folder, files: (folder / "manifest.json").write_text("{}"), "is no manifest of version 1"),
        (lambda folder, files: (folder / "manifest.json").write_text("{"), "cannot be read"),
        (lambda folder, files: (folder / "manifest.json").write_text("[" * 200_000), "cannot be read"),
        (lambda folder, files: changed(folder, borders=[]), "names pieces that do not make up"),
        (lambda folder, files: changed(folder, borders=[0], files=[]), "names pieces that do not make up"),
        (lambda folder, files: changed(folder, files=[f"../{file.name}" for file in files]), "names pieces that do"),
        (lambda folder, files: changed(folder, n=1e999), "cannot be read"),
        (lambda folder, files: (folder / "manifest.json").unlink(), "No such file"),
    ],
)
def test_a_damaged_folder_is_an_error_on_all_ranks(tmp_path, damage, text):
    saved_by(2, tmp_path, turns=2)
    damage(tmp_path, sorted(tmp_path.glob("piece-*.ckpt")))

    def program(comm):
        with pytest.raises((Unreadable, OSError, RankError), match=text):
            LBFGSB.load(tmp_path, comm)

    run_threads(3, program)


def test_another_layout_is_refused(tmp_path):
    saved_by(2, tmp_path, turns=2)
    with pytest.raises(ValueError, match=r"align=4; allowed: one of n=22000, align=2, as the run was saved"):
        LBFGSB.load(tmp_path, split(PAIRS, "self", align=4))
