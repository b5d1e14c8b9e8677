"""What kind of disk a folder is on: what is written there may outlive the machine, or vanish with it."""

from __future__ import annotations

import os
from pathlib import Path

try:
    import resource
except ImportError:  # no Unix
    resource = None  # type: ignore[assignment]

MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs"})
CONTAINER = frozenset({"overlay", "aufs"})
OWN = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"})
"""Of this machine alone: whoever writes to a file does so through the same system, which can make him wait."""


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


def bytes_read() -> int:
    """Bytes that this process has read from disks so far, and not from the system's memory; 0 where nobody counts."""
    return 0 if resource is None else 512 * resource.getrusage(resource.RUSAGE_SELF).ru_inblock


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
