"""``dpdist figures``."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.cli.command import call
from tests.figures.test_run_figure import FIGURES, SMALL


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "small.yaml").write_text(SMALL)
    return tmp_path / "figures"


def test_without_a_name_they_are_listed(capsys):
    said = call(capsys, "figures", "--folder", FIGURES[0].parent)
    assert said.code == 0 and [line.split()[0] for line in said.out.splitlines()[1:]] == [p.stem for p in FIGURES]
    listed = json.loads(call(capsys, "figures", "--folder", FIGURES[0].parent, "--json").out)["figures"]
    assert all(each["title"] and each["source"] for each in listed)


def test_a_figure_for_people_and_programs(capsys, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("dpdist.cli.progress_bar.EVERY", 0.0)
    words = ("figures", "small", "--folder", folder, "--output", tmp_path / "out", "--seeds", "1")
    said = call(capsys, *words)
    assert said.code == 0 and "run 1 of 6" in said.err, "progress goes to stderr"
    for part in (
        "small: A test",
        "seeds 0 to 0",
        f"{tmp_path}/out/small.svg",
        "Trivial",
        "Not private",
        "Epsilon",
        "Delta",
    ):
        assert part in said.out, part
    said = call(capsys, *words, "--json")
    assert said.code == 0 and said.err == "", "nothing is left to run"
    (record,) = json.loads(said.out)["figures"]
    assert record["id"] == "small" and len(record["rows"]) == 6
    assert {"error", "nonprivate_error", "trivial_error", "epsilon", "delta", "seeds"} <= set(record["rows"][0])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "small.parquet", "small.png", "small.runs", "small.svg",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("smal",), "nor a figure 'smal' in .*did you mean 'small'"),
        (("nowhere.yaml",), "not found"),
        (("small", "--set", "data.m=3"), "--set data.m=3.*unknown key"),
        (("small", "--preset", "huge"), "quick.*full"),
    ],
)
def test_user_errors_exit_with_2(capsys, folder, words, message):
    import re

    said = call(capsys, "figures", *words, "--folder", folder)
    assert said.code == 2 and said.out == "" and re.search(message, said.err, re.DOTALL), said.err


def test_those_of_the_package_are_found_from_anywhere(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call(capsys, "figures")
    assert said.code == 0 and [line.split()[0] for line in said.out.splitlines()[1:]] == [p.stem for p in FIGURES]
    said = call(capsys, "figures", "fig-3.1", "--yaml")
    assert said.code == 0 and said.out == (FIGURES[0].parent / "fig-3.1.yaml").read_text()
    said = call(capsys, "figures", "fig-3.11")
    assert said.code == 2 and "nor a figure 'fig-3.11'; did you mean 'fig-3.1'" in said.err
    assert call(capsys, "figures", "--folder", tmp_path).code == call(capsys, "figures", "--yaml").code == 2


def test_the_extra_is_named_if_it_is_missing(capsys, folder, monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else find(name, *a))
    said = call(capsys, "figures", "small", "--folder", folder, "--output", tmp_path / "out")
    assert said.code == 2 and "pip install 'dpdist[figures]'" in said.err
    assert not (tmp_path / "out").exists()
