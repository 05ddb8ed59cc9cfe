"""How far apart two colours are for people without one kind of cones.

The colours that they see: Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of
color vision deficiency" (IEEE TVCG 15, 2009), the matrices of severity 1, on linear sRGB. Their distance:
CIEDE2000, as Sharma, Wu and Dalal write it ("The CIEDE2000 color-difference formula: implementation notes,
supplementary test data, and mathematical observations", Color Research and Application 30, 2005), in CIELAB
under D65.
"""

from __future__ import annotations

import numpy as np

PROTANOPE = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPE = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = TO_XYZ.sum(axis=1)


def distance(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """The smaller of the distances that a protanope and a deuteranope see between two colours of sRGB."""
    seen = ([seen_by(matrix, rgb) for rgb in (first, second)] for matrix in (PROTANOPE, DEUTERANOPE))
    return min(ciede2000(*pair) for pair in seen)


def seen_by(matrix: np.ndarray, rgb: tuple[float, ...]) -> np.ndarray:
    """CIELAB of a colour as it is seen."""
    srgb = np.array(rgb[:3])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    relative = TO_XYZ @ np.clip(matrix @ linear, 0, 1) / WHITE
    f = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(first: np.ndarray, second: np.ndarray) -> float:
    """Difference of two colours in CIELAB."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    grey = c1 * c2 == 0
    dh = 0.0 if grey else (h2 - h1 + 180) % 360 - 180
    d_l, d_c, d_h = l2 - l1, c2 - c1, 2 * np.sqrt(c1 * c2) * np.sin(np.radians(dh / 2))
    mean_l, c = (l1 + l2) / 2, (c1 + c2) / 2
    h = h1 + h2 if grey else (h1 + dh / 2) % 360
    t = 1 - 0.17 * _cos(h - 30) + 0.24 * _cos(2 * h) + 0.32 * _cos(3 * h + 6) - 0.2 * _cos(4 * h - 63)
    s_l = 1 + 0.015 * (mean_l - 50) ** 2 / np.sqrt(20 + (mean_l - 50) ** 2)
    s_c, s_h = 1 + 0.045 * c, 1 + 0.015 * c * t
    turned = 60 * np.exp(-(((h - 275) / 25) ** 2))
    r = -np.sin(np.radians(turned)) * 2 * np.sqrt(c**7 / (c**7 + 25.0**7))
    return float(np.sqrt((d_l / s_l) ** 2 + (d_c / s_c) ** 2 + (d_h / s_h) ** 2 + r * d_c / s_c * d_h / s_h))


def _cos(degrees: float) -> float:
    return float(np.cos(np.radians(degrees)))
