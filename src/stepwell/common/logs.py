"""The logger of the package, ``logging.getLogger("stepwell")``: silent until somebody asks.

Commands say there what they begin and end with, long runs how far they are;
``logging.basicConfig(level="INFO")`` shows it.
"""

from __future__ import annotations

import logging

log = logging.getLogger("stepwell")
log.addHandler(logging.NullHandler())
