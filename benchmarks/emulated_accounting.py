"""The accounting of an emulated Slurm: Debian's `slurmdbd` with a MariaDB of its own, in the same folder.

Needs the packages of `emulated_slurm`, `slurmdbd` and `mariadb-server`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks import emulated_slurm
from benchmarks.ending import wait_until

ACCOUNTS = ("vision", "speech")


def missing(root: Path | None = None) -> str:
    """Why it cannot run here; empty where it can."""
    return emulated_slurm.missing(root, (*emulated_slurm.PROGRAMS, *emulated_slurm.OF_ACCOUNTING))


class AccountedSlurm(emulated_slurm.EmulatedSlurm):
    """A cluster whose jobs are accounted for, of the accounts `ACCOUNTS`."""

    def accounting(self) -> dict[str, Any]:
        """Settings of slurmctld; those of slurmdbd are in a file of their own."""
        folder = self.folder
        self.port, self.database_port = next(self.ports), next(self.ports)
        of_daemon = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={folder}/run/munge",
            "DbdHost": "localhost",
            "DbdAddr": "127.0.0.1",
            "DbdPort": self.port,
            "SlurmUser": "root",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": self.database_port,
            "StorageUser": "slurm",
            "StoragePass": "slurm",
            "LogFile": folder / "log/slurmdbd",
            "PidFile": folder / "run/slurmdbd.pid",
        }
        file = folder / "slurmdbd.conf"
        file.write_text("\n".join([*(f"{name}={value}" for name, value in of_daemon.items()), ""]))
        file.chmod(0o600)
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": self.port,
            "AccountingStoragePass": f"{folder}/run/munge",  # where munge listens
            "AccountingStorageTRES": "gres/gpu,gres/gpu:A100",
        }

    def start_controller(self) -> None:
        """Start the database, its daemon and slurmctld, and make the accounts."""
        folder, socket = self.folder, self.folder / "run" / "database"
        data = folder / "database"
        self.run(
            *("mariadb-install-db", "--user=root", f"--datadir={data}"),
            "--auth-root-authentication-method=normal",
        )
        self._spawn(
            "mariadbd",
            *("mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}"),
            *(f"--port={self.database_port}", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=64M"),
        )
        wait_until(socket.exists, 20.0, "the database did not come up")
        rights = "grant all on slurm_acct_db.* to 'slurm'@'{}' identified by 'slurm';"
        said = "create database slurm_acct_db;" + "".join(map(rights.format, ("localhost", "127.0.0.1")))
        self.run("mariadb", f"--socket={socket}", "--user=root", f"--execute={said}")
        self._spawn("slurmdbd", "slurmdbd", "-D")
        wait_until(self._has_cluster, 20.0, "Slurm's accounting did not come up")
        for account in ACCOUNTS:
            self.run("sacctmgr", "-i", "add", "account", account)
            self.run("sacctmgr", "-i", "add", "user", "root", f"account={account}")
        super().start_controller()

    def _has_cluster(self) -> bool:
        return "emulated" in self.run("sacctmgr", "-i", "add", "cluster", "emulated", check=False)


def accounted_slurm(folder: Path, nodes: int, **options: Any) -> AbstractContextManager[AccountedSlurm]:
    """A Slurm with accounting of so many nodes, `started`."""
    return emulated_slurm.started(AccountedSlurm(folder, nodes, **options))
