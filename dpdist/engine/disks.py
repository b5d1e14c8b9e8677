"""What kind of disk a folder is on: what is written there may outlive the machine, or vanish with it."""

from __future__ import annotations

import os
from pathlib import Path

MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs"})
CONTAINER = frozenset({"overlay", "aufs"})


def mount_of(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Type and device of the file system that holds a path; empty where the system does not tell.

    Examples
    --------
    >>> mount_of("/proc/self/status")
    ('proc', 'proc')
    """
    real = os.path.realpath(path)
    best, found = "", ("", "")
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return found
    for line in lines:
        device, at, kind, *_ = line.split(" ")
        at = at.replace("\\040", " ")
        if (real == at or real.startswith(at.rstrip("/") + "/")) and len(at) >= len(best):
            best, found = at, (kind, device)
    return found


def is_encrypted_or_memory(path: str | os.PathLike[str]) -> bool:
    """Whether what is written there is gone, or unreadable, once the machine is off (dm-crypt, tmpfs)."""
    kind, device = mount_of(path)
    if kind in MEMORY:
        return not _swaps()
    name = os.path.basename(os.path.realpath(device)) if device.startswith("/dev/") else ""
    try:
        return Path("/sys/class/block", name, "dm", "uuid").read_text(encoding="ascii").startswith("CRYPT-")
    except OSError:
        return False


def _swaps() -> bool:
    try:
        return len(Path("/proc/swaps").read_text(encoding="utf-8").splitlines()) > 1
    except OSError:
        return False
