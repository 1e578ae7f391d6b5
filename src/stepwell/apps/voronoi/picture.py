"""Pictures to be stippled: read from files or drawn here, and how dark they are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell.arrays.checks import require_each, require_finite, require_real
from stepwell.common.array_files import read_array_file
from stepwell.common.checks import read_choice, read_real, require_shape
from stepwell.common.files import Unreadable, damage_told, open_regular

TONES = ("display", "linear")


@dataclass(frozen=True)
class Picture:
    """A colour picture on white paper.

    Attributes
    ----------
    colours : array, (rows, columns, 3)
        Red, green and blue as a display takes them (sRGB), 0 to 1.
    name : str
        Where it comes from.
    """

    colours: np.ndarray
    name: str

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.colours.shape[0]), int(self.colours.shape[1])

    def resized(self, longest: int) -> Picture:
        """Return the picture with so many pixels along its longer side.

        Pixels are averaged where there are more than needed and interpolated where there are fewer.
        """
        rows, columns = self.shape
        if longest == max(rows, columns):
            return self
        Image = _load_pillow().Image
        scale = longest / max(rows, columns)
        shape = (max(1, round(columns * scale)), max(1, round(rows * scale)))
        how = Image.Resampling.BOX if scale < 1 else Image.Resampling.BICUBIC
        # Light adds up, display values do not: the average of black and white is the grey of a fine checkerboard.
        channels = []
        for k in range(3):  # one by one: a photograph in floating point is large
            light = linear_light(self.colours[..., k]).astype(np.float32)
            channels.append(np.asarray(Image.fromarray(light).resize(shape, how)))
        return Picture(display_values(np.clip(np.stack(channels, axis=-1), 0, 1).astype(np.float64)), self.name)

    def darkness(self, *, tone: str = "display", invert: bool = False, gamma: float = 1.0) -> np.ndarray:
        """Return how much of each pixel's paper is to be covered by ink, 0 to 1.

        Parameters
        ----------
        tone : {"display", "linear"}
            ``linear`` is 1 minus the luminance: the paper reflects as much light as the picture sends, and where dots
            are too small to be seen one by one the drawing looks like it. That takes much ink: 79 % for the middle
            grey of a display. ``display`` is 1 minus the grey value of the display, even steps of which look even:
            lighter, as one shades with dots that are meant to be seen.
        invert : bool, default False
            White ink on black paper: cover what is bright.
        gamma : float, default 1
            The power to which the darkness is raised; above 1 the light tones become lighter.
        """
        read_choice("tone", tone, TONES)
        gamma = read_real("gamma", gamma, above=0)
        luminance = linear_light(self.colours) @ np.array([0.2126, 0.7152, 0.0722])  # ITU-R BT.709
        grey = display_values(luminance) if tone == "display" else luminance
        dark: np.ndarray = np.clip(grey if invert else 1.0 - grey, 0.0, 1.0) ** gamma
        # Half a step of an eight-bit picture is no ink at all: white stays white.
        return np.where(dark < 0.5 / 255, 0.0, dark)

    def coverage(self, *, invert: bool = False) -> np.ndarray:
        """Return how much of each pixel's paper coloured ink is to cover, 0 to 1.

        At least as much as the channel farthest from the paper needs, so that inks exist that give the colour exactly;
        its square root, so that they are colours of the picture rather than pure ones.

        Parameters
        ----------
        invert : bool, default False
            Black paper instead of white.
        """
        farthest = self.colours.max(axis=2) if invert else 1.0 - self.colours.min(axis=2)
        share: np.ndarray = np.sqrt(np.where(farthest < 0.5 / 255, 0.0, farthest))
        return share


def linear_light(values: np.ndarray) -> np.ndarray:
    """Return the light that a display sends for sRGB values, 0 to 1 (IEC 61966-2-1).

    Examples
    --------
    >>> linear_light(np.array([0.0, 0.5, 1.0])).round(3).tolist()
    [0.0, 0.214, 1.0]
    """
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def display_values(light: np.ndarray) -> np.ndarray:
    """Return the sRGB values at which a display sends so much light, 0 to 1: the inverse of `linear_light`.

    Examples
    --------
    >>> display_values(np.array([0.0, 0.214, 1.0])).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * np.maximum(light, 0.0) ** (1 / 2.4) - 0.055)


def read_picture(path: str | os.PathLike[str]) -> Picture:
    """Read a picture; what is transparent shows white paper.

    Parameters
    ----------
    path : path
        Any format that Pillow reads, eight or sixteen bits, grey or colour; or an .npy file with a grey picture
        (rows, columns), 0 for black and 1 for white.

    Returns
    -------
    Picture
    """
    path = os.fspath(path)
    name = os.path.basename(path)
    if path.lower().endswith(".npy"):
        grey = read_npy(path)
        require_each((grey >= 0) & (grey <= 1), path, grey, "grey from 0 to 1")
        return Picture(np.repeat(grey[..., None].astype(np.float64), 3, axis=2), name)
    _load_pillow()
    from PIL import Image, ImageOps, UnidentifiedImageError

    with open_regular(path) as file, damage_told(path):
        try:
            with Image.open(file) as image:
                colours = _on_paper(ImageOps.exif_transpose(image))
        except UnidentifiedImageError:
            raise Unreadable(f"{path}: not a picture that Pillow can read") from None
    return Picture(colours, name)


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """Read finite numbers (rows, columns) from an .npy file; anything else under that name is a ValueError."""
    array = read_array_file(path)
    require_shape(array.ndim == 2 and array.size > 0, os.fspath(path), array, "(rows, columns), at least one of each")
    require_real(os.fspath(path), array)
    require_finite(os.fspath(path), array)
    return array


def _load_pillow() -> Any:
    """Return the package PIL with its Image; without it an error says how to get it."""
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError("pictures need Pillow: pip install 'stepwell[plot]'") from error
    return PIL


def _on_paper(image: Any) -> np.ndarray:
    """Colours of a Pillow image over white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        grey = np.asarray(image, dtype=np.float64)
        if not np.all(np.isfinite(grey)):
            raise ValueError("there are pixels that are not finite")
        # Modes of 32 bits say nothing of their white: it is the least of 1 (fractions), 255 and 65535 that holds all.
        top = float(grey.max(initial=0.0)) if image.mode in ("I", "F") else 65535.0
        white = 1.0 if image.mode == "F" and top <= 1 else 255.0 if top <= 255 else 65535.0
        return np.repeat(np.clip(grey / white, 0, 1)[..., None], 3, axis=2)
    if not {"A", "a"} & set(image.getbands()) and "transparency" not in image.info:
        return np.asarray(image.convert("RGB")) / 255
    rgba = np.asarray(image.convert("RGBA")) / 255
    alpha = rgba[..., 3:]
    paper: np.ndarray = rgba[..., :3] * alpha + (1.0 - alpha)
    return paper
