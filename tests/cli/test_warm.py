"""``dpdist warm``: what was compiled is there for the next process, also from a copy; no data, nothing charged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numba
import pytest

from dpdist.jobs import warming
from tests.cli.command import call

METHOD = "saa-clipmean"
STORED = """
method: {method}
{more}
data: {{path: nowhere.zarr, arrays: {{X: X, y: late}}}}
budget: {{epsilon: 1.0, delta: 1.0e-6}}
"""


def warmed(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "dpdist.cli", "warm", *words, "--json"], capture_output=True, text=True, check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder), "DPDIST_LEDGER": str(folder / "none" / "ledger.sqlite")},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_what_is_compiled_once_is_loaded_after_that_also_from_a_copy(tmp_path):
    first = warmed(tmp_path / "image", METHOD)
    assert first["folder"].startswith(str(tmp_path / "image"))
    assert first["jobs"][0]["id"] == METHOD and first["jobs"][0]["compiled"]
    shutil.copytree(tmp_path / "image", tmp_path / "pod")
    assert warmed(tmp_path / "pod", METHOD)["jobs"][0]["compiled"] == []
    assert not list(tmp_path.glob("*/none"))  # no ledger was asked


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_job_on_stored_data_is_fitted_to_made_up_rows(tmp_path, monkeypatch, capsys, dtype):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "nightly.yaml"
    more = "estimator: LogisticRegression\nparams: {classes: [0, 1], row_norm: 1.0}"
    file.write_text(STORED.format(method="dp-gd", more=more))
    done = call(capsys, "warm", "nightly.yaml", "--dtype", dtype)
    assert (done.code, done.err) == (0, "") and done.out.startswith("dp-gd: ") and "Kept in " in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["nightly.yaml"]  # it made nothing


def test_what_cannot_be_compiled_beforehand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "survey.yaml").write_text(
        STORED.format(method="mean-ldp-gauss", more="params: {second_moment: 5.0}").replace(", y: late", "")
    )
    for words, told in [
        ((), "JOB"),
        (("dp-gdd",), "dp-gd"),
        (("nowhere.yaml",), "nowhere.yaml"),
        (("dp-gd", "--dtype", "int8"), "float32"),
        (("dp-gd", "--set", "params.row_norm=-1"), "row_norm"),
        (("survey.yaml",), "dpdist warm mean-ldp-gauss"),
    ]:
        done = call(capsys, "warm", *words)
        assert done.code == 2 and told in done.err and not done.out, (words, done)
    monkeypatch.setattr(warming, "scale_row", numba.njit(lambda x: x))  # as compiled where no folder can be written
    done = call(capsys, "warm", "dp-gd")
    assert done.code == 2 and "NUMBA_CACHE_DIR" in done.err
