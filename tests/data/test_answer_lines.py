"""Answers of a crowd from lines and from wide tables are the same records; bad lines are named."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.data import answers_from_csv, answers_from_lines, pack_answers
from dpdist.errors import DataError
from dpdist.local.crowd.truth_inference import TruthInference
from dpdist.local.statistics.task_answers import TaskAnswers

USERS, TASKS = [f"u{i}" for i in range(40)], [f"t{j}" for j in range(19)]


def table(seed=0):
    generator = np.random.default_rng(seed)
    return generator.choice([0.0, 1.0, np.nan], (len(USERS), len(TASKS)))


def lines_of(cells):
    found = [(USERS[i], TASKS[j], str(int(cells[i, j]))) for i, j in zip(*np.nonzero(~np.isnan(cells)), strict=True)]
    np.random.default_rng(1).shuffle(found)
    return [tuple(line) for line in found]


def test_lines_in_any_order_and_a_wide_table_are_the_same_records():
    cells = table()
    packed = answers_from_lines(lines_of(cells), users=USERS, tasks=TASKS)
    assert np.array_equal(packed, pack_answers(cells)) and packed.shape == (40, 6)
    for unanswered in ("coin", "symbol", "public"):
        tight, plain = (TaskAnswers(19, 2, unanswered, packed=p) for p in (True, False))
        assert np.array_equal(tight.values({"X": packed}), plain.values({"X": cells}))


def test_a_file_becomes_a_dataset_that_is_fitted(tmp_path):
    cells = table()
    text = "\n".join(["when,task,answer,user"] + [f"now,{t},{a},{u}" for u, t, a in lines_of(cells)])
    (tmp_path / "a.csv").write_text(text)
    data = answers_from_csv(tmp_path / "a.csv", tmp_path / "a.zarr", users=USERS, tasks=TASKS, unit="answer")
    assert data.schema.unit == "answer" and data.n_rows == 40
    model = TruthInference(layout="packed", n_tasks=19, unanswered="public", epsilon=1.0, random_state=0).fit(data)
    assert model.labels_.shape == (19,)
    with pytest.raises(DataError, match="has no column 'worker'"):
        answers_from_csv(tmp_path / "a.csv", columns=("worker", "task", "answer"), users=USERS, tasks=TASKS)


def test_more_than_two_answers_are_bytes():
    found = answers_from_lines(
        [("a", "y", "2"), ("b", "x", "0")], users=list("ab"), tasks=list("xy"), answers=list("012")
    )
    assert found.tolist() == [[255, 2], [0, 255]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("zoe", "t0", "1"), "line 2: the user 'zoe' was not declared"),
        (("u0", "t99", "1"), "line 2: the task 't99' was not declared"),
        (("u0", "t1", "maybe"), "line 2: the answer 'maybe' was not declared"),
        (("u0", "t0", "1"), "line 2: 'u0' answered 't0' before"),
        (("u0", "t0"), "line 2 has 2 values"),
    ],
)
def test_bad_lines_are_named(line, message):
    with pytest.raises(DataError, match=message):
        answers_from_lines([("u0", "t0", "0"), line], users=USERS, tasks=TASKS)


def test_cells_that_are_no_answers_are_named():
    with pytest.raises(DataError, match=r"row 1, column 0 is .*7"):
        pack_answers(np.array([[0.0, 1.0], [7.0, np.nan]]))
    for names in ({"users": "u0"}, {"answers": [0, 1]}, {"tasks": range(19)}):
        with pytest.raises(DataError, match="names as they stand in the lines"):
            answers_from_lines([], **{"users": USERS, "tasks": TASKS, **names})
    for names in ({"users": ["a", "a"]}, {"tasks": []}, {"answers": ["1"]}):
        with pytest.raises(DataError, match="different"):
            answers_from_lines([], **{"users": USERS, "tasks": TASKS, **names})
