"""Peak memory of a process with everything that it starts (Linux)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

INTERVAL_S = 0.1


def peak_mib_of(process: subprocess.Popen[bytes]) -> float:
    """Wait for a process, and give the largest sum of the resident sizes of it and its descendants.

    Memory that processes share counts once for each.
    """
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, sum(_resident_mib(pid) for pid in _family(process.pid)))
        time.sleep(INTERVAL_S)
    return peak


def _family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:  # it has just ended
                continue
    return found


def _resident_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)
