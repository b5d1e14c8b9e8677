"""``dpdist docs``: the pages to read."""

from __future__ import annotations

from pathlib import Path

import click

from dpdist.errors import DpdistError

PACKAGE = Path(__file__).parents[1]


def built() -> Path | None:
    """The first page, where pages were built: in an installed wheel, or in a checkout."""
    places = (PACKAGE / "site", PACKAGE.parent / "deploy" / "site" / "_build" / "html")
    return next((place / "index.html" for place in places if (place / "index.html").exists()), None)


@click.command("docs")
@click.option("--open/--no-open", "open_", default=True, show_default=True, help="In a browser.")
def command(open_: bool) -> None:
    """Print where the pages of this version are, and open them in a browser.

    They are part of an installed wheel if they were built before it was. In a checkout of the source they are built by

    \b
      pip install ".[docs]"
      python -m sphinx deploy/site deploy/site/_build/html

    \b
    Examples:
      dpdist docs
      dpdist docs --no-open
    """
    page = built()
    if page is None:
        source = PACKAGE.parent / "deploy" / "site"
        where = f"in {source}" if source.is_dir() else "in deploy/site of the source, which is not here"
        raise DpdistError(
            f"the pages are not built; their text is {where}. In a checkout: pip install '.[docs]', then python -m "
            "sphinx deploy/site deploy/site/_build/html"
        )
    click.echo(str(page))
    if open_:
        click.launch(str(page))
