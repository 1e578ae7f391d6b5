"""What is kept of shots that are solved part by part: the account, the returns, and as much else as is asked for."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np

from stepwell.apps.waveform.deconvolution import Deconvolution, noise_threshold
from stepwell.apps.waveform.gedi import Part, join_shots
from stepwell.apps.waveform.significance import significant_returns, threshold
from stepwell.apps.waveform.table import return_table
from stepwell.arrays import host_copy


class Gathered:
    """Parts put together, as if they had been solved at once.

    Parameters
    ----------
    least : float or None
        Smallest amplitude of a return; None: by the noise.
    chosen : list of int
        Shots that will be plotted.
    whole : bool
        Whether amplitudes and fits of all shots are kept.
    """

    def __init__(self, least: float | None, chosen: list[int], whole: bool) -> None:
        self.least, self._chosen, self._whole = least, set(chosen), whole
        self._lists: dict[str, list[np.ndarray]] = {}
        self._tables: list[dict[str, np.ndarray]] = []
        self._shown: list[tuple[Deconvolution, np.ndarray, np.ndarray]] = []
        self._done = 0
        self.beams: dict[str, dict[str, Any]] = {}
        self.how_told = ""

    def count(self, part: Part) -> None:
        """Count the shots of a beam, those that are left out too."""
        if not part.beam:
            return
        held = self.beams.setdefault(part.beam, {"shots": 0, "done": 0, "skipped": {}})
        held["shots"] += part.total
        held["done"] += 0 if part.shots is None else len(part.shots)
        for reason, number in part.skipped.items():
            held["skipped"][reason] = held["skipped"].get(reason, 0) + number

    @property
    def skipped(self) -> dict[str, int]:
        """How many shots of all beams were left out, by reason."""
        reasons: dict[str, int] = {}
        for held in self.beams.values():
            for reason, number in held["skipped"].items():
                reasons[reason] = reasons.get(reason, 0) + number
        return reasons

    def add(self, done: Deconvolution) -> None:
        """Take up what one part has given."""
        result, shots = done.result, done.shots
        names = ("status", "residual", "violation", "insertions", "removals")
        arrays = {name: np.asarray(host_copy(getattr(result, name))) for name in names}
        if self.least is not None:
            levels = np.full(len(shots), self.least)
        elif shots.noise is not None:
            done = significant_returns(done)
            levels = threshold(shots.waveforms.shape[1]) * shots.noise / np.linalg.norm(shots.pulses, axis=1)
            levels *= 1 - 1e-9  # all that are left have as much, up to rounding
            arrays["residual"] = np.linalg.norm(shots.waveforms - done.fit, axis=1)
            self.how_told = ", as the file has it"
        else:
            levels = noise_threshold(done)
        start = np.zeros(len(shots), dtype=np.int64) if shots.start is None else shots.start
        arrays |= {"thresholds": levels, "starts": start}
        if self._whole:
            arrays |= {"amplitudes": done.amplitudes, "fit": done.fit}
        for name, values in arrays.items():
            self._lists.setdefault(name, []).append(values)
        self._tables.append(return_table(done, levels, self._done))
        rows = np.array(
            [shot - self._done for shot in sorted(self._chosen) if 0 <= shot - self._done < len(shots)], int
        )
        if rows.size:
            ends: Any = types.SimpleNamespace(status=arrays["status"][rows], residual=arrays["residual"][rows])
            part: Any = dataclasses.replace(
                done, shots=shots.part(rows), result=ends, amplitudes=done.amplitudes[rows], fit=done.fit[rows]
            )
            self._shown.append((part, levels[rows], rows + self._done))
        self._done += len(shots)

    def of_all(self, name: str) -> np.ndarray:
        """Return status, violation, insertions, removals, thresholds or starts of all shots."""
        return np.concatenate(self._lists[name]) if name in self._lists else np.zeros(0, dtype=int)

    @property
    def table(self) -> dict[str, np.ndarray]:
        """The returns of all shots."""
        names = [name for name in self._tables[0] if all(name in table for table in self._tables)]
        return {name: np.concatenate([table[name] for table in self._tables]) for name in names}

    def whole_arrays(self) -> dict[str, np.ndarray]:
        """Return amplitudes, fits, statuses and residuals of all shots."""
        return {name: np.concatenate(self._lists[name]) for name in ("amplitudes", "fit", "status", "residual")}

    def to_plot(self) -> tuple[Any, list[str], np.ndarray]:
        """Return the chosen shots, what each is called, and their thresholds."""
        parts = [part for part, _, _ in self._shown]
        if not parts:
            return None, [], np.zeros(0)
        labels = []
        for part, _, numbers in self._shown:
            about = part.shots.about or {}
            for row, number in enumerate(numbers.tolist()):
                words = [str(about[name][row]) for name in ("beam", "shot_number") if name in about]
                labels.append(" ".join([f"shot {number}", *words]))
        levels = np.concatenate([one for _, one, _ in self._shown])
        if len(parts) == 1:
            return parts[0], labels, levels
        ends: Any = types.SimpleNamespace(
            status=np.concatenate([part.result.status for part in parts]),
            residual=np.concatenate([part.result.residual for part in parts]),
        )
        amplitudes, fit = (np.concatenate([getattr(part, name) for part in parts]) for name in ("amplitudes", "fit"))
        whole: Any = dataclasses.replace(
            parts[0], shots=join_shots([part.shots for part in parts]), result=ends, amplitudes=amplitudes, fit=fit
        )
        return whole, labels, levels

    def beams_in_words(self) -> list[str]:
        """Say of each beam how many shots were done and skipped, and why."""
        lines = []
        for beam, held in self.beams.items():
            why = ", ".join(f"{number} skipped: {reason}" for reason, number in held["skipped"].items())
            lines.append(f"{beam}: {held['done']} of {held['shots']} shots done" + (f" ({why})" if why else ""))
        return lines

    def beams_in_json(self) -> list[dict[str, Any]] | None:
        """Return the same for JSON; None where the file has no beams."""
        return [{"beam": beam, **held} for beam, held in self.beams.items()] or None
