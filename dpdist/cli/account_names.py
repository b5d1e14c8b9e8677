"""Which account of a ledger a user means: by a path, a URL, the id of a dataset or a name."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from dpdist.cli.info import stored_account
from dpdist.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from dpdist.privacy.ledger.ledger import Ledger


def existing(path: str | None) -> contextlib.closing[Ledger]:
    """A ledger that is there."""
    from dpdist.privacy.ledger.ledger import Ledger

    return contextlib.closing(Ledger.existing(path))


def is_location(dataset: str) -> bool:
    """Whether a path or a URL is meant."""
    return "://" in dataset or os.path.exists(os.path.expanduser(dataset))


def find(book: Ledger, dataset: str) -> str:
    """Return the account that the user means by a path, a URL, the id of a dataset or a name."""
    known = book.accounts()
    named = dataset if dataset in known else book.account_of(dataset)
    if named is not None:
        carried = None
        if is_location(dataset):
            with contextlib.suppress(DataError):
                carried = stored_account(dataset)
        if carried not in (None, named):
            raise DataError(
                f"{dataset!r} is both a name in the ledger and a store that pays from another account ({carried}); "
                f"write ./{dataset} for the store, or {carried} for its account"
            )
        return named
    if not is_location(dataset):
        hint = did_you_mean(dataset, known) or "'dpdist budget show' lists the accounts"
        raise DataError(f"there is no dataset at {dataset!r} and no account of that name in {book.path}; {hint}")
    carried = stored_account(dataset)
    if carried is None:
        raise DataError(
            f"the store {dataset!r} carries no id yet, so nothing was ever charged to it under one. It gets an id when "
            "it is first opened for a run or for 'dpdist budget set'; if runs gave it one (dataset_id=), name that id"
        )
    return carried


def find_or_name(book: Ledger, dataset: str, new: bool) -> str:
    """The same for an account that may be new; a store without an id is given one."""
    from dpdist.data import Dataset
    from dpdist.privacy.budget import check_account

    if new and not is_location(dataset):
        return book.account_of(dataset) or check_account(dataset)
    if dataset not in book.accounts() and is_location(dataset) and stored_account(dataset) is None:
        return Dataset.open(dataset).account
    try:
        return find(book, dataset)
    except DataError as error:
        if not is_location(dataset):
            error.add_note("To open an account of that name (account=, or the id of a dataset), add --new.")
        raise
