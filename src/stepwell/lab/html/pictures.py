"""Arrays as PNG pictures inside a page."""

from __future__ import annotations

import base64
import html
import re
import struct
import zlib

import numpy as np

#: Blue for negative, pale for zero, red for positive: the ends and the middle of a scale for errors.
_COLD, _NEUTRAL, _WARM = (33, 102, 172), (247, 247, 247), (178, 24, 43)


def png_bytes(pixels: np.ndarray) -> bytes:
    """Encode a picture as PNG.

    Parameters
    ----------
    pixels : array of uint8, (rows, columns) or (rows, columns, 3)
        Grey, or red, green and blue.

    Examples
    --------
    >>> png_bytes(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    grey_levels = pixels.ndim == 2
    if pixels.dtype != np.uint8 or not (grey_levels or (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise ValueError(
            f"pixels: got {pixels.dtype} {pixels.shape}; allowed: uint8, (rows, columns) or (rows, columns, 3)"
        )
    rows, columns = pixels.shape[:2]
    if not rows or not columns:
        raise ValueError(f"pixels: got shape {pixels.shape}; a picture needs at least one pixel")
    # Every row begins with the number of its filter: 0, none.
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1)
    header = struct.pack(">IIBBBBB", columns, rows, 8, 0 if grey_levels else 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def png_image(pixels: np.ndarray, alt: str) -> str:
    """Return the HTML of a picture that carries its own data.

    Parameters
    ----------
    pixels : array of uint8
        As for `png_bytes`.
    alt : str
        What the picture shows, for those who do not see it.

    Examples
    --------
    >>> png_image(np.zeros((2, 3), np.uint8), "night").startswith('<img width="3" height="2" alt="night" src="data:')
    True
    """
    data = base64.b64encode(png_bytes(pixels)).decode("ascii")
    return (
        f'<img width="{pixels.shape[1]}" height="{pixels.shape[0]}" alt="{html.escape(alt)}" '
        f'src="data:image/png;base64,{data}">'
    )


def svg_image(document: str, alt: str) -> str:
    """Return an SVG document as an element of a page.

    Parameters
    ----------
    document : str
        A whole SVG file with a ``viewBox``; its size on paper is left out, the page decides.
    alt : str
        What the drawing shows, for those who do not see it.

    Examples
    --------
    >>> svg_image('<?xml version="1.0"?><svg xmlns="ns" width="9mm" viewBox="0 0 9 9"><path d="M0 0h9"/></svg>', "line")
    '<svg viewBox="0 0 9 9" role="img" aria-label="line"><path d="M0 0h9"/></svg>'
    """
    opening = re.search(r"<svg\b[^>]*>", document)
    box = re.search(r'\bviewBox="[^"]*"', opening.group()) if opening else None
    if opening is None or box is None:
        raise ValueError("document: got text without an svg element that has a viewBox")
    return f'<svg {box.group()} role="img" aria-label="{html.escape(alt)}">{document[opening.end() :].strip()}'


def grey(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return grey levels: black at `low`, white at `high`.

    Examples
    --------
    >>> grey(np.array([[0.0, 1.0, 2.0, 3.0]]), 0.0, 2.0).tolist()
    [[0, 128, 255, 255]]
    """
    share = np.clip((values - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    return np.asarray(np.floor(share * 255 + 0.5), dtype=np.uint8)


def diverging(values: np.ndarray, most: float) -> np.ndarray:
    """Return colours for signed values: blue at -`most`, pale at 0, red at `most`.

    Examples
    --------
    >>> diverging(np.array([[-1.0, 0.0, 1.0]]), 1.0).tolist()
    [[[33, 102, 172], [247, 247, 247], [178, 24, 43]]]
    """
    share = np.clip(values / (most if most > 0 else 1.0), -1.0, 1.0)
    channels = [
        np.interp(share, (-1.0, 0.0, 1.0), (cold, neutral, warm))
        for cold, neutral, warm in zip(_COLD, _NEUTRAL, _WARM, strict=True)
    ]
    return np.asarray(np.rint(np.stack(channels, axis=-1)), dtype=np.uint8)
