"""Flat tables of options for tests that try many: ``n_rounds=4, clip_norm=0.2`` as the objects that read them."""

from __future__ import annotations

from typing import Any

from dpdist.central.linear.automatic import SOLVERS
from dpdist.central.linear.bounding import GRADIENTS, ROWS


def objects(**options: Any) -> dict[str, Any]:
    """Parameters of a linear estimator, of which those of solvers, gradients and rows are put into these.

    Where no solver is named, parameters of plain gradient descent are its; where no gradient is named, ``clip_norm``
    is that of the clip. What is None counts as left out, and what nobody reads stays where it is: the estimator is to
    refuse it.

    >>> objects(solver="mirror", n_rounds=4, gradient="truncate", scale=1.5)
    {'solver': MirrorDescent(n_rounds=4, start=None, step_size=None, combine='auto'), 'gradient': Truncate(scale=1.5)}
    """
    for owner, offered, usual in (("solver", SOLVERS, "gradient"), ("gradient", GRADIENTS, "norm"), ("rows", ROWS, "")):
        read_by_any = {name for kind in offered.values() for name in kind.parameters()}
        options = {name: value for name, value in options.items() if name not in read_by_any or value is not None}
        kind = offered.get(options.get(owner, usual))
        own = {name: options.pop(name) for name in (kind.parameters() if kind else ()) if name in options}
        if kind and own:
            options[owner] = kind(**own)
    return options
