"""The account of a dataset as plain data, for programs, and as text, for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpdist.cli.output import as_list, as_table, cost, moment

if TYPE_CHECKING:
    from dpdist.privacy.accounting.filter import Limit
    from dpdist.privacy.ledger.ledger import Ledger
    from dpdist.privacy.ledger.records import RunRecord

RULES = {
    "basic": "basic: the epsilons, and the deltas, of all runs are added",
    "gaussian": "gaussian: the squared Gaussian parameters of all runs are added, which lets more runs in",
}
RELATIONS = {
    "replace-one": "replace-one: one privacy unit's data replaced by any other; the number of rows is public",
    "add-or-remove-one": "add-or-remove-one: one privacy unit's data added or removed; the number of rows is private",
}
_SHOW_TITLES = {
    "account": "Account",
    "runs": "Runs",
    "spent_epsilon": "Spent epsilon",
    "spent_delta": "delta",
    "left_epsilon": "Left epsilon",
    "left_delta": "delta",
    "limit_epsilon": "Limit epsilon",
    "limit_delta": "delta",
    "composition": "Rule",
    "last_run": "Last run",
}
SHOW_COLUMNS = [*_SHOW_TITLES, "neighbours", "unit"]
_RUN_TITLES = {
    "when": "When",
    "by": "By",
    "run": "Run",
    "epsilon": "Epsilon",
    "delta": "Delta",
    "n_releases": "Releases",
    "label": "Label",
}
RUN_COLUMNS = ["when", "by", "run", "dataset", "label"]
RUN_COLUMNS += ["epsilon", "delta", "mu", "neighbours", "unit", "split", "fold", "n_releases"]
RELEASE_TITLES = {
    "index": "No.",
    "name": "Release",
    "mechanism": "Mechanism",
    "noise_std": "Noise (std)",
    "sensitivity": "Sensitivity",
    "cost": "Cost",
    "recorded": "Recorded",
}

# -- records to plain data ----------------------------------------------------------------------------------------


def account_of(book: Ledger, name: str) -> dict[str, Any]:
    from dpdist.privacy.accounting.filter import left, total

    state, last, where = book.account(name), book.last_run(name), book.move(name)
    limit = state.limit
    spent = total(limit, state.total)
    remaining = None if limit is None else left(limit, spent)
    return {
        "account": name,
        "datasets": book.datasets(name),
        "limit": limit and {"epsilon": limit.budget.epsilon, "delta": limit.budget.delta},
        "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
        "left": remaining and {"epsilon": remaining.epsilon, "delta": remaining.delta},
        "composition": limit.composition if limit else "basic",
        "neighbours": state.neighbours and state.neighbours.value,
        "unit": state.unit,
        "moved_to": where.path if where is not None and where.stage == "gone" else None,
        "runs": book.n_runs(name),
        "last_run": last and last.when,
        "limits": [limit_of(when, each) for when, each in book.limits(name)],
    }


def limit_of(when: str, limit: Limit) -> dict[str, Any]:
    return {
        "when": when,
        "epsilon": limit.budget.epsilon,
        "delta": limit.budget.delta,
        "neighbours": limit.neighbours.value,
        "composition": limit.composition,
    }


def event_of(when: str, what: str, why: str) -> dict[str, Any]:
    return {"when": when, "what": what, "why": why}


def run_of(record: RunRecord) -> dict[str, Any]:
    charge = record.charge
    return {
        "run": record.run_id,
        "dataset": record.dataset_id,
        "when": record.when,
        "by": record.user,
        "label": record.label,
        "epsilon": charge.epsilon,
        "delta": charge.delta,
        "mu": charge.mu,
        "neighbours": charge.neighbours.value,
        "unit": record.unit,
        "split": charge.split,
        "fold": charge.fold,
        "n_releases": len(record.releases),
        "releases": [
            {
                "index": release.index,
                "name": release.name,
                "mechanism": release.mechanism,
                "noise_std": release.noise_std if math.isfinite(release.noise_std) else None,
                "sensitivity": release.sensitivity,
                "cost": release.cost,
                "recorded": release.when,
            }
            for release in record.releases
        ],
    }


def flat(account: dict[str, Any]) -> dict[str, Any]:
    row = dict(account)
    for name in ("limit", "spent", "left"):
        row |= {f"{name}_{part}": (account[name] or {}).get(part) for part in ("epsilon", "delta")}
    return row


# -- plain data to sentences --------------------------------------------------------------------------------------


def all_accounts_text(path: str, accounts: Sequence[dict[str, Any]]) -> str:
    if not accounts:
        return f"The ledger {path} has no account yet."
    rows = [flat(account) for account in accounts]
    for row in rows:
        row["last_run"] = row["last_run"] and moment(row["last_run"])
    return as_table(rows, _SHOW_TITLES)


def account_text(path: str, account: dict[str, Any]) -> str:
    limit, spent, runs = account["limit"], account["spent"], account["runs"]
    lines = [("Account", account["account"]), ("Ledger", path)]
    if account["datasets"] not in ([], [account["account"]]):
        lines.append(("Datasets", ", ".join(account["datasets"])))
    if limit:
        lines.append(("Limit", f"{cost(**limit)}; set {moment(account['limits'][-1]['when'])}"))
    else:
        lines.append(("Limit", "none: spending is recorded and not limited; set one with 'dpdist budget set'"))
    if account["moved_to"]:
        lines.append(("Moved", f"to {account['moved_to']}: it is charged there, and here no more"))
    last = f", the last {moment(account['last_run'])}" if runs else ""
    lines.append(("Spent", f"{cost(**spent)}, by {runs} run{'' if runs == 1 else 's'}{last}"))
    if limit:
        lines.append(("Left", cost(**account["left"])))
    lines.append(("Rule", RULES[account["composition"]]))
    if account["neighbours"]:
        lines.append(("Neighbours", RELATIONS[account["neighbours"]]))
    if account["unit"]:
        lines.append(("Unit", f"it is about {_subject(account['unit'])}"))
    text = as_list(lines)
    if runs:
        text += f"\n\n{_meaning(spent, account['neighbours'], account['unit'])}"
    earlier = [
        each
        for each in account["limits"]
        if limit and (each["epsilon"] > limit["epsilon"] or each["delta"] > limit["delta"])
    ]
    if earlier:
        highest = max(earlier, key=lambda each: (each["epsilon"], each["delta"]))
        text += (
            f"\n\nThe limit was {cost(highest['epsilon'], highest['delta'])} from {moment(highest['when'])} on, and\n"
            "was lowered later: over the whole life of the dataset, the promise is the earlier one."
        )
    return text


def _subject(unit: str | None) -> str:
    parts = {"label": "the label of one row (the features are taken for public)", "answer": "one answer of one row"}
    return parts.get(unit or "", f"all data of one {unit or 'privacy unit'}")


def _meaning(spent: dict[str, float], neighbours: str, unit: str | None) -> str:
    change = "Replacing" if neighbours == "replace-one" else "Adding or removing"
    other = " by any other" if neighbours == "replace-one" else ""
    factor = f" = {math.exp(spent['epsilon']):.4g}" if spent["epsilon"] < 300 else ""
    but = f", up to a probability of {spent['delta']:.6g}" if spent["delta"] else ""
    return (
        f"What this means: {change.lower()} {_subject(unit)}{other} changes the probability of anything\n"
        f"that was released by at most a factor e^{spent['epsilon']:.6g}{factor}{but}. Runs with a fixed\n"
        "random_state are charged too, but are simulations without this guarantee."
    )


def history_text(
    account: str,
    runs: Sequence[dict[str, Any]],
    limits: Sequence[dict[str, Any]],
    events: Sequence[dict[str, Any]],
    releases: bool,
) -> str:
    parts = [f"Runs of the account {account}, oldest first" if runs else f"No run was ever charged to {account}."]
    rows = [{**run, "when": moment(run["when"]), "by": run["by"] or "not recorded"} for run in runs]
    titles = _RUN_TITLES
    if len({run["dataset"] for run in runs}) > 1:
        titles = {**_RUN_TITLES, "dataset": "Dataset"}
    if releases:
        for run in rows:
            lines = [{**line, "recorded": moment(line["recorded"])} for line in run["releases"]]
            table = as_table(lines, RELEASE_TITLES) if lines else "No release was made."
            parts.append(f"{as_table([run], titles)}\n\n{_indented(table)}")
    elif rows:
        parts.append(as_table(rows, titles))
    if limits:
        of_limits = {"when": "Limit set", "epsilon": "Epsilon", "delta": "Delta", "composition": "Rule"}
        of_limits["neighbours"] = "Neighbours"
        parts.append(as_table([{**limit, "when": moment(limit["when"])} for limit in limits], of_limits))
    if events:
        shown = [{**event, "when": moment(event["when"])} for event in events]
        parts.append(as_table(shown, {"when": "Of the ledger", "what": "What", "why": "By"}))
    return "\n\n".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
