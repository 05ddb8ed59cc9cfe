"""Output of Slurm's own commands on a cluster: asked for, saved and read again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from wattsched.adapters.agents import written_in
from wattsched.adapters.rounds import UnansweredError
from wattsched.instances.errors import InputError
from wattsched.instances.io import read_json, write_atomically
from wattsched.reading.inputs import echo

COMMANDS = {
    "nodes": ("scontrol", "--all", "--json", "show", "node"),
    "jobs": ("squeue", "--all", "--json"),
    "partitions": ("scontrol", "--all", "--oneliner", "show", "partition"),
    "reservations": ("scontrol", "--oneliner", "show", "reservation"),
    "topology": ("scontrol", "--oneliner", "show", "topology"),
}
"""Part of a snapshot -> the command whose output it is."""

BEFORE_23_02 = ("sinfo", "--all", "--json")
"""Command for nodes where scontrol does not know ``--json``: until 23.02 gave its output another shape."""

OPTIONAL = ("topology",)
"""Parts that clusters may lack: without a topology plugin the command fails."""

AGENTS = "agents"
"""Part of a snapshot that has the reports of the nodes' agents; it may lack."""

Snapshot = dict[str, str]
"""Outputs of `COMMANDS`, ``time``: seconds since 1970, as text, and reports of agents."""


class SlurmError(UnansweredError):
    """Slurm did not answer, or refused."""


def ask(*command: str, timeout_s: float = 30.0, environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a command of Slurm, perhaps with more variables; a `SlurmError` without one."""
    name = command[0]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError:
        raise SlurmError(f"'{name}' is not installed on this machine") from None
    except OSError as error:
        raise SlurmError(f"'{name}' cannot be run: {(error.strerror or str(error)).lower()}") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"'{name}' did not answer within {timeout_s:g} s") from None
    if done.returncode:
        lines = [line.removeprefix(f"{name}: ") for line in (done.stderr or done.stdout).strip().splitlines()]
        text = "; ".join(lines) or f"exit code {done.returncode}"
        raise SlurmError(f"{name}: {echo(text, quote='', most=400)}")
    return done.stdout


def take(time_s: float, timeout_s: float = 30.0, settings: Path | None = None) -> Snapshot:
    """Ask Slurm for all that a round needs; no answer is a `SlurmError`, never an empty cluster.

    Jobs are asked for after nodes: one that starts in between is counted where it runs. Agents report in the
    folder of the `settings`.
    """
    found = {"time": repr(time_s)}
    for part, command in COMMANDS.items():
        try:
            found[part] = ask(*command, timeout_s=timeout_s)
        except SlurmError as error:
            if part == "nodes" and "unrecognized option" in str(error):
                found[part] = ask(*BEFORE_23_02, timeout_s=timeout_s)
            elif part in OPTIONAL:
                found[part] = ""
            else:
                raise
    return found if settings is None else {**found, AGENTS: json.dumps(written_in(settings))}


def accounting() -> dict[str, set[str]] | None:
    """Names of all accounts and QOS; None where Slurm keeps no accounts."""
    lists = {"account": "account", "qos": "name"}
    try:
        found = {kind: ask("sacctmgr", "-nP", "list", kind, f"format={name}") for kind, name in lists.items()}
    except SlurmError:
        return None
    return {kind: set(text.split()) for kind, text in found.items()}


def load(path: str | Path) -> Snapshot:
    """Read a saved snapshot."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise InputError(["is no snapshot of Slurm: it must be an object"], str(path))
    known = ("time", *COMMANDS, *([AGENTS] if AGENTS in document else []))
    faults = [f"{part}: is missing" for part in known if part not in document]
    faults += [f"{part}: must be a text" for part in known if not isinstance(document.get(part, ""), str)]
    if faults:
        raise InputError(faults, str(path))
    return {part: document[part] for part in known}


def save(path: str | Path, snapshot: Snapshot) -> None:
    """Write a snapshot in one step."""
    write_atomically(path, (json.dumps(snapshot, indent=1) + "\n").encode())
