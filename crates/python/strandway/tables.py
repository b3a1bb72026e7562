"""Tables as columns that numpy, pandas and polars read without a copy per row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_DTYPES = {"d": "f8", "q": "i8", "I": "u4"}


class Table(Mapping[str, Any]):
    """Columns of equal length by name.

    A column of numbers is a numpy array where numpy is installed, else a `memoryview`; a column of names is a list. Numbers
    that are absent are NaN, and -1 in columns of whole numbers.

    >>> table = Table.of_rows([{"name": "a", "us": 1.5}, {"name": "b", "us": None}])
    >>> table.columns
    ['name', 'us']
    >>> table["name"], len(table["us"])
    (['a', 'b'], 2)
    """

    def __init__(self, columns: Mapping[str, tuple[str, bytes, list[str] | None] | list[Any]]) -> None:
        """Takes per column a list; or a format, bytes in this machine's order, and the names that its numbers stand for."""
        self._columns = dict(columns)
        self._made: dict[str, Any] = {}

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Table:
        """Makes a table of dicts. A key that a row lacks is absent there."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns: dict[str, Any] = {}
        for name in names:
            values = [row.get(name) for row in rows]
            if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
                values = [math.nan if value is None else value for value in values]
            columns[name] = values
        return cls(columns)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._columns)

    def __getitem__(self, name: str) -> Any:
        """One column."""
        if name not in self._made:
            self._made[name] = self._column(self._columns[name])
        return self._made[name]

    @staticmethod
    def _column(column: Any) -> Any:
        if isinstance(column, list):
            if column and all(isinstance(value, int | float) and not isinstance(value, bool) for value in column):
                numpy = _numpy()
                return column if numpy is None else numpy.asarray(column)
            return column
        form, block, names = column
        view = memoryview(block).cast(form)
        if names is not None:
            return [names[place] for place in view]
        numpy = _numpy()
        return view if numpy is None else numpy.frombuffer(block, dtype=_DTYPES[form])

    def __iter__(self) -> Iterator[str]:
        """The names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """The number of columns; `rows` has the number of rows."""
        return len(self._columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self[self.columns[0]]) if self._columns else 0

    def to_dict(self) -> dict[str, Any]:
        """The columns as a dict."""
        return {name: self[name] for name in self}

    def to_pandas(self) -> Any:
        """A pandas `DataFrame`. Names are categorical, numbers are not copied."""
        import pandas

        def column(name: str) -> Any:
            given: Any = self._columns[name]
            if not isinstance(given, list) and given[2] is not None:
                codes = memoryview(given[1]).cast(given[0])
                return pandas.Categorical.from_codes(list(codes), categories=given[2])
            return self[name]

        return pandas.DataFrame({name: column(name) for name in self}, copy=False)

    def to_polars(self) -> Any:
        """A polars `DataFrame`."""
        import polars

        return polars.DataFrame(self.to_dict())

    def __repr__(self) -> str:
        """The names of columns and the number of rows."""
        return f"Table of {self.rows:,} rows: {', '.join(self.columns)}"

    def _repr_html_(self) -> str:
        from html import escape

        shown = min(self.rows, 20)
        head = "".join(f"<th>{escape(name)}</th>" for name in self)
        lines = ("<tr>" + "".join(f"<td>{escape(_text(self[name][row]))}</td>" for name in self) + "</tr>" for row in range(shown))
        more = f"<p>{self.rows - shown:,} more rows</p>" if self.rows > shown else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.6g}"
    return str(value)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
