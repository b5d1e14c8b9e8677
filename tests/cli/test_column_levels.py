"""``dpdist levels``: what a column holds, for the curator, as an option that ingestion reads back."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from dpdist.cli.column_levels import command
from dpdist.cli.listed_names import listed_names
from dpdist.data.proposed_levels import values_of
from dpdist.errors import DataError

VALUES = ["b", "a, quoted", "b", "NA", 'with "marks"', "b", "a, quoted", "two\nlines"]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_levels_of_a_column_are_proposed_as_ingestion_reads_them(tmp_path: Path, kind: str) -> None:
    place, table = tmp_path / f"t.{kind}", pd.DataFrame({"n": range(8), "c": VALUES})
    if kind == "parquet":
        table.assign(c=table["c"].astype("category")).to_parquet(place)
    else:
        text = table.to_csv(index=False).encode()
        place.write_bytes(gzip.compress(text) if kind == "csv.gz" else text)
    result = CliRunner().invoke(command, [str(place), "c"])
    assert result.exit_code == 0 and "The curator's side" in result.output and "1 of 8 rows are empty" in result.output
    words = shlex.split(result.output[result.output.index("--levels") : result.output.index("--label-levels")])
    assert words[1].partition("=")[0] == "c"
    assert listed_names(words[1].partition("=")[2]) == ("b", "a, quoted", "two\nlines", 'with "marks"')
    facts = json.loads(CliRunner().invoke(command, [str(place), "c", "--fewest", "2", "--json"]).output)
    assert facts["levels"] == ["b", "a, quoted"] and facts["left_out"] == 2 and facts["private"] is False


def test_what_is_no_category_is_refused(tmp_path: Path) -> None:
    pd.DataFrame({"n": range(10_001)}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="more than 10,000 different values"):
        values_of(str(tmp_path / "t.csv"), "n")
    with pytest.raises(DataError, match="no column 'm'"):
        values_of(str(tmp_path / "t.csv"), "m")
    with pytest.raises(DataError, match="there is no file"):
        values_of(str(tmp_path / "u.csv"), "m")


def test_numbers_are_told_from_categories(tmp_path: Path) -> None:
    pd.DataFrame({"n": [1.5, None, 2.0], "c": ["1", None, "b"]}).to_csv(tmp_path / "t.csv", index=False)
    said = CliRunner().invoke(command, [str(tmp_path / "t.csv"), "n"]).output
    assert "n=indicator (as a number)" in said and "needs no levels, but its public --range" in said
    said = CliRunner().invoke(command, [str(tmp_path / "t.csv"), "c"]).output
    assert "--missing c=level\n" in said and "--range" not in said
