"""Toy systems gain nothing from threads, and on a busy machine OpenBLAS's threads spin."""

from __future__ import annotations

import pytest

from stepwell.lab.studies.measure import blas_threads


@pytest.fixture(autouse=True)
def one_blas_thread():
    with blas_threads(1):
        yield
