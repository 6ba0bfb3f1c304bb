"""Figures: schedules step by step, cost against size, measured beside predicted, the bandwidth hierarchy.

Nothing else in the package draws or needs matplotlib (``pip install "dthw[draw]"``). Every function returns a
`matplotlib.figure.Figure` in one of two themes; `save` writes it as SVG, the same bytes each time.

>>> from dthw import draw
>>> from dthw.collectives.algorithms import recursive_doubling
>>> len(draw.schedule(recursive_doubling(8)).axes)  # the start, three rounds and the key
5
"""

from dthw.draw.curves import curves
from dthw.draw.hierarchy import Rung, hierarchy
from dthw.draw.measured import measured
from dthw.draw.schedules import schedule
from dthw.draw.style import DARK, LIGHT, THEMES, Theme
from dthw.draw.svg import save, svg

__all__ = ["DARK", "LIGHT", "THEMES", "Rung", "Theme", "curves", "hierarchy", "measured", "save", "schedule", "svg"]
