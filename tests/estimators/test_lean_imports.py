"""What an import does without, and that nobody misses it: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_first_estimator_imports_neither_and_both_come_when_they_are_asked_for():
    assert said(
        "import sys, dpdist\n"
        "dpdist.LogisticRegression()\n"
        "import dpdist.local; dpdist.local.Mean\n"
        "print('pandas' in sys.modules, 'scipy.stats' in sys.modules, 'scipy.optimize' in sys.modules)\n"
        "from sklearn.utils import fixes\n"
        "print(fixes.pd.DataFrame({'a': [1]}).shape, fixes.scipy.stats.mode([1, 1, 2]).mode)\n"
        "import pandas, scipy.stats\n"
        "print(pandas is sys.modules['pandas'], type(pandas).__name__, scipy.stats.norm.sf(0.0))"
    ).split("\n") == ["False False False", "(1, 1) 1", "True module 0.5"]


def test_frames_are_read_whenever_pandas_came():
    frame = "pandas.DataFrame({'a': [0.1, 0.2], 'b': [0.3, 0.4]})"
    fit = f"dpdist.Mean(second_moment=1.0, epsilon=1.0, delta=1e-6).fit({frame}).feature_names_in_"
    for program in (
        f"import pandas, dpdist; print({fit})",
        f"import dpdist; dpdist.Mean; import pandas; print({fit})",
        f"import sklearn.linear_model, dpdist, pandas; print({fit})",
    ):
        assert said(program) == "['a' 'b']"


def test_where_they_were_imported_before_nothing_is_put_off():
    assert said(
        "import pandas, scipy.stats\n"
        "import dpdist.central\n"
        "from sklearn.utils import fixes\n"
        "print(fixes.pd is pandas, type(fixes.pd).__name__)"
    ) == "True module"  # fmt: skip


def test_a_module_that_is_imported_meanwhile_works_too():
    """By another thread, say, while scikit-learn is imported."""
    assert said(
        "import sys\n"
        "from dpdist.estimators.lean_imports import PutOff\n"
        "sys.modules['pandas'] = PutOff('pandas')\n"
        "import pandas\n"
        "from pandas import DataFrame\n"
        "import pandas.core\n"
        "print(DataFrame.__name__, pandas.Series([1]).sum(), sys.modules['pandas'].__name__)"
    ) == "DataFrame 1 pandas"  # fmt: skip


def test_the_collector_of_memory_is_left_as_it_was():
    assert said(
        "import gc, dpdist\n"
        "dpdist.Budget; print(gc.isenabled())\n"
        "gc.disable(); dpdist.LogisticRegression; print(gc.isenabled())"
    ).split("\n") == ["True", "False"]
