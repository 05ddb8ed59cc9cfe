"""A real Slurm on loopback whose nodes are emulated: munge, a controller and a daemon for each node.

Needs root and Debian's packages `slurmctld`, `slurmd`, `slurm-client` and `munge`. Its processes run in the
foreground and end with it. GPUs are null devices. Everything is in one folder, which others do not share.

Other releases of Slurm run, too: WATTSCHED_SLURM_ROOTS names the root folders of other Debians that have
these packages (as `debootstrap` makes them), with colons between. Each process sees such a root by mounts of
its own, which nobody else sees and which are gone when it ends.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from itertools import count, zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from benchmarks.ending import ended_by_signals, wait_until

ClusterT = TypeVar("ClusterT", bound="EmulatedSlurm")

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo", "scontrol")
OF_ACCOUNTING = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb", "mariadb-install-db")
GPUS = 8
AGENT = Path(__file__).resolve().parents[1] / "deploy" / "wattsched-agent"
_ENTER = """#!/bin/sh
exec unshare --mount sh -c 'mount --rbind /dev {root}/dev && mount --rbind /proc {root}/proc &&
mount --bind {folder} {root}{folder} && exec chroot {root} /usr/bin/env PATH={path} "$@"' enter {name} "$@"
"""
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def agent_module(**given: Any) -> ModuleType:
    """Return a module of its own with the code of the shipped agent, and what is given for names in it."""
    spec = spec_from_loader("wattsched_agent", SourceFileLoader("wattsched_agent", str(AGENT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(given)
    return module


def roots() -> list[Path | None]:
    """List the places of a Slurm to run: this machine's own, and roots of other Debians."""
    named = os.environ.get("WATTSCHED_SLURM_ROOTS", "").split(":")
    return [None, *(Path(name) for name in named if name)]


def missing(root: Path | None = None, programs: tuple[str, ...] = PROGRAMS) -> str:
    """Why it cannot run here; empty where it can."""
    path = None if root is None else ":".join(f"{root}{folder}" for folder in _PATH.split(":"))
    absent = [name for name in programs if shutil.which(name, path=path) is None]
    if absent:
        return f"Slurm is not installed{f' in {root}' if root else ''}: there is no {', '.join(absent)}"
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root only"
    if root and subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "mounts of our own are not allowed here"
    return ""


def release(root: Path | None = None) -> str:
    """Release of the Slurm that is there, such as 22.05."""
    inside = [] if root is None else ["chroot", str(root)]
    told = subprocess.run([*inside, "slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    return ".".join(told.split()[1].split(".")[:2])


def free_ports() -> Iterator[int]:
    """Ports that nobody listens on, each once; where to look first depends on the process."""
    first = int(os.environ.get("SLURM_PORT", 22_000 + os.getpid() * 61 % 1_800))
    for port in count(first):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)):
                yield port


class EmulatedSlurm:
    """A cluster in a folder; it has to be stopped.

    Parameters
    ----------
    nodes : int
        Of eight A100 each, `per_rack` to a switch.
    prolog, epilog : str
        Shell commands that slurmd runs before and after a job.
    root : Path, optional
        Of another Debian, whose Slurm is run.
    gres : sequence of str, optional
        GRES of the first nodes in place of theirs, such as ``gpu:a100:1,gpu:a100_1g.5gb:7``.

    Attributes
    ----------
    environment : dict of str to str
        In which Slurm's commands are those of this cluster.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        *,
        per_rack: int = 2,
        prolog: str = "",
        epilog: str = "",
        root: Path | None = None,
        gres: Sequence[str] = (),
    ) -> None:
        self.folder, self.nodes, self.names = folder, nodes, [f"g{i}" for i in range(1, nodes + 1)]
        self.ports, self.root = free_ports(), root
        self.gres = dict(zip_longest(self.names, gres, fillvalue=f"gpu:A100:{GPUS}"))
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        if root is not None:
            self.environment["PATH"] = f"{self._commands_of(root)}:{os.environ['PATH']}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "spool", "log", "run"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, script in {"prolog": prolog, "epilog": epilog}.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\nexit 0\n")
            (folder / name).chmod(0o755)
        for number in range(max(sum(map(int, re.findall(r":(\d+)", one))) for one in self.gres.values())):
            device = folder / f"gpu{number}"
            if not device.exists():
                os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
        self._write(per_rack)

    def _commands_of(self, root: Path) -> Path:
        """A folder with commands that run those of another root, in which our folder is, too."""
        commands = self.folder / "bin"
        for made in (commands, Path(f"{root}{self.folder}")):
            made.mkdir(parents=True, exist_ok=True)
        shutil.copy("/etc/hosts", root / "etc")  # the database looks for this machine's name
        for name in (*PROGRAMS, *OF_ACCOUNTING):
            text = _ENTER.format(root=root, folder=self.folder, path=_PATH, name=name)
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        return commands

    def _write(self, per_rack: int) -> None:
        folder, host, ports = self.folder, socket.gethostname().split(".")[0], self.ports
        lines = {
            "ClusterName": "emulated",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": next(ports),
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/run/munge",
            "CredType": "cred/munge",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SchedulerType": "sched/backfill",
            "SlurmdParameters": "config_overrides",
            "TopologyPlugin": "topology/tree",
            "GresTypes": "gpu,shard" if "shard:" in str(self.gres) else "gpu",
            "MpiDefault": "none",
            "JobAcctGatherType": "jobacct_gather/none",
            **self.accounting(),
            "ReturnToService": 2,
            "KillWait": 5,
            "Prolog": folder / "prolog",
            "Epilog": folder / "epilog",
            "StateSaveLocation": folder / "state",
            "SlurmdSpoolDir": folder / "spool/%n",
            "SlurmctldPidFile": folder / "run/slurmctld.pid",
            "SlurmdPidFile": folder / "run/%n.pid",
            "SlurmctldLogFile": folder / "log/slurmctld",
            "SlurmdLogFile": folder / "log/%n",
        }
        nodes = [
            f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={next(ports)} CPUs=16 "
            f"RealMemory=32000 Gres={self.gres[name]} State=UNKNOWN"
            for name in self.names
        ]
        partition = "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
        settings = [f"{name}={value}" for name, value in lines.items()]
        (folder / "slurm.conf").write_text("\n".join([*settings, *nodes, partition, ""]))
        (folder / "gres.conf").write_text("".join(self._devices()))
        if float(release(self.root)) >= 23.11:  # others neither know the word nor need it
            (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        racks = [self.names[i : i + per_rack] for i in range(0, self.nodes, per_rack)]
        switches = [f"SwitchName=r{i} Nodes={','.join(rack)}" for i, rack in enumerate(racks, start=1)]
        switches.append(f"SwitchName=root Switches=r[1-{len(racks)}]")
        (folder / "topology.conf").write_text("\n".join([*switches, ""]))

    def _devices(self) -> Iterator[str]:
        """Lines that say which devices the GPUs of each type are, in turn, and how many shards there are."""
        for name, gres in self.gres.items():
            first = 0
            for entry in gres.split(","):
                kind, *of_type, number = entry.split(":")
                last = first + int(number) - 1
                what = f"File={self.folder}/gpu[{first}-{last}]" if kind == "gpu" else f"Count={number}"
                yield f"NodeName={name} Name={kind} {''.join(f'Type={one} ' for one in of_type)}{what}\n"
                first = last + 1

    def accounting(self) -> dict[str, Any]:
        """Settings of the accounting: there is none."""
        return {"AccountingStorageType": "accounting_storage/none"}

    def start(self) -> None:
        """Start everything and wait for all nodes; a RuntimeError if they are not there within a minute."""
        run = self.folder / "run"
        self.run("mungekey", "-c", "-f", "-k", str(run / "key"))
        options = {"key-file": "key", "socket": "munge", "pid-file": "munge.pid", "log-file": "munge.log"}
        options |= {"seed-file": "munge.seed"}
        listed = [f"--{name}={run / file}" for name, file in options.items()]
        self._spawn("munged", "munged", "--foreground", "--force", *listed)
        wait_until((run / "munge").exists, 10.0, "munge did not come up")
        self.start_controller()
        for name in self.names:
            self._spawn(name, "slurmd", "-D", "-N", name, "-f", str(self.folder / "slurm.conf"))
        wait_until(self._all_idle, 60.0, f"the nodes did not come up; see {self.folder / 'log'}")

    def _all_idle(self) -> bool:
        done = self.run("sinfo", "--noheader", "--format=%D", "--states=idle", check=False)
        return done.split() == [str(self.nodes)]

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))

    def stop_controller(self) -> None:
        """Stop slurmctld and wait for its end."""
        process = self._processes.pop("slurmctld")
        process.terminate()
        process.wait(timeout=30)

    def stop(self) -> None:
        """Cancel all jobs and end all processes."""
        self.run("scancel", "--user=root", check=False)
        time.sleep(1.0)
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
        if self.root is not None:
            Path(f"{self.root}{self.folder}").rmdir()

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command of the cluster's; its standard output."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
        return done.stdout

    def submit(self, script: str, *options: str) -> int:
        """Submit a job; its number."""
        words = ("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}")
        return int(self.run(*words).split(";")[0])

    def _spawn(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
            )


@contextmanager
def started(cluster: ClusterT) -> Iterator[ClusterT]:
    """A cluster that runs, and is stopped in the end, also where a signal ends the program."""
    with ended_by_signals():
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def emulated_slurm(folder: Path, nodes: int, **options: Any) -> AbstractContextManager[EmulatedSlurm]:
    """A Slurm of so many nodes, `started`."""
    return started(EmulatedSlurm(folder, nodes, **options))
