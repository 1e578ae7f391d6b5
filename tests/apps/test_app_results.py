"""What results of applications can do for a person: become a dict, show themselves in a notebook, be drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from t2_cases import TE
from unmixing_cases import SCENE

from stepwell.apps import decomposition, relaxation, t2, unmixing, voronoi, waveform


def t2_run(folder):
    np.save(folder / "image.npy", t2.simulate((4, 3, 2), echoes=16, te=TE).signal)
    return t2.map_image(folder / "image.npy", folder / "out", TE, angles=(150.0, 150.0, 1), lam=0.02)


def relaxation_run(folder):
    phantom = relaxation.simulate("t2", (4, 3, 2))
    np.save(folder / "image.npy", phantom.signal)
    return relaxation.map_series(folder / "image.npy", folder / "out", "t2", phantom.model.points)


def unmix_run(folder):
    np.save(folder / "image.npy", SCENE.image[:5, :6])
    return unmixing.unmix_image(
        folder / "image.npy", SCENE.library, folder / "out", wavelengths=SCENE.library.wavelengths
    )


SHOTS = waveform.synthetic_shots(3, samples=120, returns=2)
RUNS = {
    "T2Run": t2_run,
    "RelaxationRun": relaxation_run,
    "UnmixRun": unmix_run,
    "Deconvolution": lambda folder: waveform.deconvolve(SHOTS),
    "Decomposition": lambda folder: decomposition.decompose(SHOTS),
    "DecompositionRun": lambda folder: decomposition.decompose_file(SHOTS, folder / "out"),
    "Tessellation": lambda folder: voronoi.centroidal(20, density=np.ones((48, 64)), maxiter=3),
}


@pytest.mark.parametrize("name", RUNS)
def test_results_become_dicts_tables_and_pictures(name, tmp_path):
    result = RUNS[name](tmp_path)
    assert type(result).__name__ == name
    held = result.to_dict()
    assert set(held) == set(type(result).__dataclass_fields__)
    json.dumps(held, default=lambda value: value.tolist())  # nothing but numbers, words, lists, dicts and arrays
    text = result._repr_html_()
    assert text.startswith(f"<table><caption>{name}</caption><tr><th>")
    assert len(text) < 10_000
    if name == "DecompositionRun":  # its arrays and its picture are files
        return
    pytest.importorskip("matplotlib")
    figure = result.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert figure.axes
