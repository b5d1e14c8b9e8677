"""Runs that are submitted to a node, and what they left, wherever that is kept."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from dpdist import Dataset
from tests.kubernetes.cluster import Node


class Place(ABC):
    """A node with a job."""

    def __init__(self, node: Node, folder: Path, job: str) -> None:
        self.node = node
        self.job = folder / "job.yaml"
        self.job.write_text(job)

    @abstractmethod
    def output(self, name: str) -> str:
        """Where the results of a run go."""

    @abstractmethod
    def values(self) -> dict[str, bytes]:
        """Every value that was released so far, by its id."""

    def dpdist(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "dpdist.cli", *map(str, words), "--namespace", "dpdist"]

    def submit(self, name: str, *words: object) -> subprocess.Popen[str]:
        """Start `dpdist submit --wait` of the job."""
        command = self.dpdist("submit", self.job, "--name", name, "--output", self.output(name), "--wait", *words)
        self.process = self.node.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.process

    def attempts(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.node.run(*self.dpdist("status", name, "--json")).stdout)
        return found

    def until(self, more: int, patience: float = 120) -> None:
        """Wait until so many values are released in addition."""
        before, give_up = len(self.values()), time.monotonic() + patience
        while len(self.values()) < before + more:
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended: {self.process.communicate()}")
            if time.monotonic() > give_up:
                pods = self.node.kubectl("get", "pods", "-n", "dpdist")
                raise AssertionError(f"{len(self.values()) - before} of {more} values;\n{pods}")
            time.sleep(0.05)

    def kill(self, pod: str) -> None:
        """End it without a word."""
        self.node.kubectl("delete", "pod", "-n", "dpdist", "--force", "--grace-period=0", "--wait=false", pod)


def ended(process: subprocess.Popen[str], patience: float = 240) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=patience)
    return process.returncode, out, err


def write_rows(path: str, n: int = 300_000, d: int = 10, partitions: int = 30) -> Dataset:
    """A dataset with two classes."""
    X = np.random.default_rng(0).normal(size=(n, d)) / 2
    return Dataset.from_arrays(path, X=X, y=(X[:, 0] > 0).astype(int), partition_rows=n // partitions)
