"""Parts of the catalogue that its script fits itself."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pandas as pd
import pytest


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_memory_bound_share_comes_back(load_script: Callable[[str], ModuleType], share: float) -> None:
    clock = np.linspace(0.5, 1.0, 30)
    slowdown = pd.Series(share + (1 - share) / clock)
    fitted = load_script("catalogue").fit_memory_bound_share(clock, slowdown)
    assert fitted == pytest.approx(share, abs=1e-9)
