"""The tour: a small version of every system, beside SciPy where it can, in one HTML report.

One module a chapter, each with a ``CHAPTER``; `run` takes them in turn, `page` tells what came out.
"""

from __future__ import annotations

from stepwell.arrays.places import Place
from stepwell.lab.tour.chapter import Account, Chapter, Comparison, Stage
from stepwell.lab.tour.page import tour_page
from stepwell.lab.tour.run import CHAPTERS, Stop, Tour, take_tour

__all__ = ["CHAPTERS", "Account", "Chapter", "Comparison", "Place", "Stage", "Stop", "Tour", "take_tour", "tour_page"]
