"""The sessions in which the blocks of a page are run; without Sphinx, so that tests run the same."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import warnings
from typing import Any

_SESSIONS: dict[str, tuple[dict[str, Any], str]] = {}


def run(page: str, code: str, raises: str | None = None) -> str:
    """What the block prints, in the session of its page."""
    names, folder = _SESSIONS.setdefault(page, ({"__name__": "__main__"}, tempfile.mkdtemp()))
    before, out = os.getcwd(), io.StringIO()
    os.environ["DPDIST_LEDGER"] = os.path.join(folder, "ledger.sqlite")
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(code, page, "exec", dont_inherit=True), names)
    except Exception as error:
        if raises != type(error).__name__:
            raise RuntimeError(f"{page}: a block fails with {type(error).__name__}: {error}") from error
        out.write(f"{type(error).__name__}: {error}")
    else:
        if raises is not None:
            raise RuntimeError(f"{page}: a block should raise {raises}, and does not")
    finally:
        os.chdir(before)
    return out.getvalue().rstrip()
