"""A cluster DNS in one file: A records of services (and of the endpoints of headless ones), read from the API server.

dns.py ADDRESS [PORT]        KUBECONFIG must be set; other names get NXDOMAIN (the node has no way out)
"""

import base64
import functools
import json
import os
import re
import socket
import socketserver
import ssl
import struct
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path


def api_from(kubeconfig):
    """A `get(path)` for a kubeconfig with embedded certificates (what control-plane.sh writes)."""
    text = Path(kubeconfig).read_text()

    def field(name):
        return re.search(name + r": \"?([^\s,}\"]+)", text).group(1)

    server = field("server")
    context = ssl.create_default_context(cadata=base64.b64decode(field("certificate-authority-data")).decode())
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
        for name in ("client-certificate-data", "client-key-data"):
            pem.write(base64.b64decode(field(name)).decode())
        pem.flush()
        context.load_cert_chain(pem.name)

    def get(path):
        with urllib.request.urlopen(server + path, context=context, timeout=5) as answer:
            return json.load(answer)

    return get


class Names:
    def __init__(self, get, seconds=2):
        self.get, self.seconds, self.cache = get, seconds, {}

    def addresses(self, name):
        """Addresses of [pod.]service.namespace.svc.cluster.local; None: no such name."""
        *pod, service, namespace, svc, cluster, local = ["", "", "", *name.rstrip(".").lower().split(".")]
        pod = [p for p in pod if p]
        if (svc, cluster, local) != ("svc", "cluster", "local") or not service or len(pod) > 1:
            return None
        hit = self.cache.get(name)
        if hit is None or time.monotonic() - hit[0] > self.seconds:
            hit = self.cache[name] = (time.monotonic(), self.ask(service, namespace, pod))
        return hit[1]

    def ask(self, service, namespace, pod):
        base = f"/api/v1/namespaces/{namespace}"
        try:
            ip = self.get(f"{base}/services/{service}")["spec"].get("clusterIP")
            if not pod and ip not in (None, "", "None"):
                return [ip]
            subsets = self.get(f"{base}/endpoints/{service}").get("subsets") or []
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return None
            raise
        found = [a["ip"] for s in subsets for a in s.get("addresses", []) if not pod or a.get("hostname") == pod[0]]
        return found or None


def answer(query, names):
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii"))
        at += 1 + query[at]
    (kind,) = struct.unpack(">H", query[at + 1 : at + 3])
    try:
        ips, code = names.addresses(".".join(labels)), 0
        if ips is None:
            ips, code = [], 3  # NXDOMAIN
    except Exception as e:
        print(".".join(labels), repr(e), flush=True)
        ips, code = [], 2  # SERVFAIL: the client asks again
    ips = ips if kind == 1 else []
    head = query[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(ips), 0, 0)
    return head + query[12 : at + 5] + b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(a) for a in ips)


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        query, sock = self.request
        sock.sendto(answer(query, self.server.names), self.client_address)


def main():
    address, port = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 53
    with socketserver.ThreadingUDPServer((address, port), Handler) as server:
        server.daemon_threads = True
        api = functools.cache(api_from)  # read at the first question: the node starts this before its API server
        server.names = Names(lambda path: api(os.environ["KUBECONFIG"])(path))
        server.serve_forever()


if __name__ == "__main__":
    main()
