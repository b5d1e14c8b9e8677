"""Container images without docker: a docker-archive tar that `node.sh load` (or `ctr -n k8s.io images import`) takes.

image.py root DIR NAME:TAG OUT.tar [--cmd ARG ...]
    pack a directory as the only layer

image.py env PYTHON NAME:TAG OUT.tar [--add FILE_OR_DIR ...] [--cmd ARG ...]
    pack the environment of a Python interpreter (usually of a venv) as it stands on this machine: interpreter,
    standard library, installed packages, the shared libraries they need, CA certificates, a shell.
    The environment moves to /opt/env (pods mount an empty /tmp, where it may be here); all other paths are the same as
    outside. Packages installed with `-e` are not inside: install without, or --add.
"""

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SKIP = re.compile(r"test|tests|idlelib|lib2to3|ensurepip|turtledemo|\.git|config-3.*")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = "/opt/env"
TOOLS = "sh env id ls cat sleep date mkdir rm kill"


def write(out, name, fill, *, cmd, env):
    """Write the archive; `fill(tar)` adds the files of its one layer."""
    with tempfile.TemporaryFile(dir=Path(out).resolve().parent) as layer:
        with tarfile.open(fileobj=layer, mode="w") as tar:
            fill(tar)
        size = layer.tell()
        layer.seek(0)
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
        config = json.dumps(
            {
                "architecture": machine,
                "os": "linux",
                "history": [{}],
                "config": {"Cmd": cmd, "Env": env},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }
        ).encode()
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
        layer.seek(0)
        with tarfile.open(out, "w") as tar:
            for member, length, file in (
                (config_name, len(config), io.BytesIO(config)),
                ("manifest.json", len(manifest), io.BytesIO(manifest)),
                ("layer.tar", size, layer),
            ):
                info = tarfile.TarInfo(member)
                info.size = length
                tar.addfile(info, file)


def needed_libraries(elfs):
    """The shared libraries, and the loader, that ELF files need on this machine."""
    found = set()
    for k in range(0, len(elfs), 200):
        ldd = subprocess.run(["ldd", *elfs[k : k + 200]], capture_output=True, text=True, check=False)
        found |= set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", ldd.stdout, re.M))
    return sorted(os.path.normpath(p) for p in found)


class Layer:
    """A tar whose members sit where they sit on this machine; symlinks stay symlinks and bring their targets."""

    def __init__(self, tar, prefix):
        self.tar, self.made, self.added, self.elfs = tar, set(), set(), []
        self.prefix = Path(prefix)

    def place(self, path):
        inside = path == self.prefix or self.prefix in path.parents
        return str(Path(ENVIRONMENT) / path.relative_to(self.prefix) if inside else path)[1:]

    def member(self, name, kind, *, mode=0o755, data=b"", target=""):
        self.directory(os.path.dirname(name))
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.size, info.linkname = kind, mode, len(data), target
        self.tar.addfile(info, io.BytesIO(data))

    def directory(self, name, mode=0o755):
        if name and name not in self.made:
            self.made.add(name)
            self.member(name, tarfile.DIRTYPE, mode=mode)

    def add(self, path, skip=None):
        path = Path(path)
        for parent in reversed(path.parents):  # such as /lib -> usr/lib
            if parent.is_symlink():
                self.add(parent)
                return self.add(parent.resolve() / path.relative_to(parent), skip)
        if path in self.added or not os.path.lexists(path):
            return
        self.added.add(path)
        name = self.place(path)
        if path.is_symlink():
            self.member(name, tarfile.SYMTYPE, target=os.readlink(path))
            target = Path(os.path.normpath(path.parent / os.readlink(path)))
            if target.is_file():
                self.add(target)
        elif path.is_dir():
            self.directory(name)
            for child in sorted(path.iterdir()):
                if not (child.is_dir() and (SKIP.fullmatch(child.name) or child == skip)):
                    self.add(child, skip)
        elif path.is_file():
            info = tarfile.TarInfo(name)
            info.mode, info.size, info.mtime = (
                path.stat().st_mode & 0o755 | 0o444,
                path.stat().st_size,
                path.stat().st_mtime,
            )
            self.directory(os.path.dirname(name))
            with open(path, "rb") as file:
                start = file.read(4)
                file.seek(0)
                if start == b"\x7fELF":
                    self.elfs.append(str(path))
                elif start[:2] == b"#!" and path.parent == self.prefix / "bin":
                    file = io.BytesIO(file.read().replace(bytes(self.prefix), ENVIRONMENT.encode(), 1))
                    info.size = len(file.getbuffer())
                self.tar.addfile(info, file)


def environment(python, extra):
    """The `fill` and the environment variables of an image of a Python environment."""
    code = (
        "import json, ssl, sys, sysconfig as s; b = {'base': sys.base_prefix, 'platbase': sys.base_exec_prefix}; "
        "print(json.dumps([sys.prefix, sys.base_prefix, sys._base_executable, s.get_path('stdlib', vars=b), "
        "s.get_path('purelib'), s.get_path('platlib'), ssl.get_default_verify_paths().openssl_cafile]))"
    )
    prefix, base, executable, stdlib, *rest = json.loads(subprocess.check_output([python, "-c", code], text=True))
    *packages, cafile = rest
    programs = os.path.dirname(executable)

    def fill(tar):
        layer = Layer(tar, prefix)
        layer.directory("tmp", 0o1777)
        for name in ("dev", "etc", "proc", "root", "run", "sys", "var"):
            layer.directory(name)
        for name, text in {
            "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
            "group": "root:x:0:\nnogroup:x:65534:\n",
            "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        }.items():
            layer.member(f"etc/{name}", tarfile.REGTYPE, mode=0o644, data=text.encode())
        for path in (
            "/bin/sh",
            executable,
            f"{programs}/python3",
            cafile,
            *extra,
            *filter(None, map(shutil.which, TOOLS.split())),
        ):
            layer.add(path)
        layer.add(stdlib, skip=Path(stdlib, "site-packages"))
        for path in [prefix] if prefix != base else packages:
            layer.add(path)
        for kind in ("dns", "files"):  # what the C library opens by name
            for path in Path("/lib").glob(f"*-linux-gnu/libnss_{kind}.so.2"):
                layer.add(path)
        while layer.elfs:
            elfs, layer.elfs = layer.elfs, []
            for path in needed_libraries(elfs):
                layer.add(path)

    return fill, [f"PATH={ENVIRONMENT}/bin:{programs}:{PATH}", "PYTHONUNBUFFERED=1", "LC_ALL=C.UTF-8"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="kind", required=True)
    for kind, what in (("root", "DIR"), ("env", "PYTHON")):
        p = sub.add_parser(kind)
        p.add_argument("source", metavar=what)
        p.add_argument("name", metavar="NAME:TAG")
        p.add_argument("out", metavar="OUT.tar")
        p.add_argument("--add", nargs="*", default=[], type=os.path.abspath, help="more files (env only)")
        p.add_argument("--cmd", nargs=argparse.REMAINDER, help="the image's default command")
    a = parser.parse_args()
    if a.kind == "root":
        fill, env = (lambda tar: tar.add(a.source, arcname=".")), [f"PATH={PATH}"]
    else:
        fill, env = environment(a.source, a.add)
    write(a.out, a.name, fill, cmd=a.cmd or ["/bin/sh"], env=env)
    print(f"{a.name}: {os.path.getsize(a.out) / 1e6:.0f} MB in {a.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
