"""An API server in a few lines, for tests of the command line without a cluster: it keeps objects, and runs none."""

from __future__ import annotations

import http.server
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]


class PretendAPI(http.server.ThreadingHTTPServer):
    """Objects by plural and name, in one namespace; `fail` is a status to answer with."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, dict[str, Object]] = {}
        self.fail: int | None = None
        self.logs: dict[str, str] = {}
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, plural: str, body: Object) -> Object:
        meta = body["metadata"]
        meta |= {"uid": f"uid-{meta['name']}", "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        return self.objects.setdefault(plural, {}).setdefault(meta["name"], body)

    def kubeconfig(self, path: Path) -> Path:
        user, cluster = {"name": "u", "user": {}}, {"server": f"http://127.0.0.1:{self.server_port}"}
        context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [user],
                    "contexts": [context],
                    "current-context": "c",
                }
            )
        )
        return path


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PretendAPI

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.server.asked.append(f"{self.command} {url.path}")
        if url.path.rstrip("/") == "/version":
            return self._send(200, {"gitVersion": "v1.34.0"})
        if self.server.fail is not None:
            return self._send(self.server.fail, {"message": "not today"})
        plural, *name = url.path.partition("/namespaces/team/")[2].split("/")
        objects = self.server.objects.setdefault(plural, {})
        if name[1:] == ["log"]:
            return self._send(200, self.server.logs[name[0]])
        if self.command == "POST":
            new = json.loads(body)
            if new["metadata"]["name"] in objects:
                return self._send(409, {"message": "already there"})
            return self._send(201, self.server.add(plural, new))
        if name:
            if name[0] not in objects:
                return self._send(404, {"message": "not there"})
            if self.command == "DELETE":
                return self._send(200, objects.pop(name[0]))
            if self.command == "PATCH":
                notes = json.loads(body)["metadata"]["annotations"]
                objects[name[0]]["metadata"].setdefault("annotations", {}).update(notes)
            return self._send(200, objects[name[0]])
        found = [each for each in objects.values() if _selected(each, parse_qs(url.query))]
        return self._send(200, {"kind": "List", "items": found, "metadata": {}})

    def _send(self, status: int, body: Object | str) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _selected(each: Object, query: dict[str, list[str]]) -> bool:
    labels = each["metadata"].get("labels", {})
    for wanted in filter(None, query.get("labelSelector", [""])[0].split(",")):
        name, sign, value = wanted.partition("=")
        if name not in labels or (sign and labels[name] != value):
            return False
    for wanted in filter(None, query.get("fieldSelector", [""])[0].split(",")):
        if each["metadata"]["name"] != wanted.partition("=")[2]:
            return False
    return True
