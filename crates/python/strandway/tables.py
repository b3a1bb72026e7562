"""Tables as columns that numpy, pandas and polars read without a copy per row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_DTYPES = {"d": "f8", "q": "i8", "I": "u4"}

Raw = tuple[str, bytes, list[str] | None] | list[Any]


class Table(dict[str, Any]):
    """Columns of equal length by name: a dict whose `len` is the number of rows, as that of a frame.

    A column of numbers is a numpy array where numpy is installed, else a `memoryview`; a column of names is a list. Numbers
    that are absent are NaN, and -1 in columns of whole numbers. Iterating gives the names of the columns, and `len(table.columns)` their
    number. pandas, polars and pyarrow take a table as they take a dict, and whatever reads Arrow's streams takes it, too.

    >>> table = Table.of_rows([{"name": "a", "us": 1.5}, {"name": "b", "us": None}, {"name": "c", "us": 2.5}])
    >>> table.columns, len(table)
    (['name', 'us'], 3)
    >>> table["name"], len(table["us"])
    (['a', 'b', 'c'], 3)
    """

    def __init__(self, columns: Mapping[str, Raw] | None = None) -> None:
        """Takes per column a list; or a format, bytes in this machine's order, and the names that its numbers stand for."""
        self._raw = dict(columns or {})
        super().__init__({name: _column(column) for name, column in self._raw.items()})

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
        return list(self)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.values()), ()))

    def __len__(self) -> int:
        """The number of rows; that of columns is `len(table.columns)`."""
        return self.rows

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets tables go to other processes, also without numpy."""
        return (Table, ({name: self._raw.get(name, column) for name, column in self.items()},))

    def to_dict(self) -> dict[str, Any]:
        """The columns as a dict."""
        return dict(self.items())

    def _names(self, name: str) -> tuple[list[int], list[str]] | None:
        """The numbers of a column of names, and the names that they stand for."""
        raw = self._raw.get(name)
        if not isinstance(raw, tuple) or raw[2] is None:
            return None
        return list(memoryview(raw[1]).cast(raw[0])), raw[2]  # type: ignore[call-overload]

    def to_pandas(self) -> Any:
        """A pandas `DataFrame`. Names are categorical, numbers are not copied."""
        import pandas

        def column(name: str) -> Any:
            named = self._names(name)
            return self[name] if named is None else pandas.Categorical.from_codes(named[0], categories=named[1])

        return pandas.DataFrame({name: column(name) for name in self}, copy=False)

    def to_polars(self) -> Any:
        """A polars `DataFrame`."""
        import polars

        return polars.DataFrame(self.to_dict())

    def to_arrow(self) -> Any:
        """A pyarrow `Table`. Names are a dictionary column."""
        import pyarrow

        def column(name: str) -> Any:
            named = self._names(name)
            if named is None:
                return pyarrow.array(self[name])
            return pyarrow.DictionaryArray.from_arrays(pyarrow.array(named[0], pyarrow.int32()), pyarrow.array(named[1]))

        return pyarrow.table({name: column(name) for name in self})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's stream of this table; pyarrow or polars makes it."""
        try:
            made = self.to_arrow()
        except ImportError:
            try:
                made = self.to_polars()
            except ImportError as error:
                raise ImportError("a table as an Arrow stream needs pyarrow or polars; install one of them") from error
        return made.__arrow_c_stream__(requested_schema)

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


def _column(column: Raw) -> Any:
    numpy = _numpy()
    if isinstance(column, tuple):
        form, block, names = column
        view = memoryview(block).cast(form)  # type: ignore[call-overload]
        if names is not None:
            return [names[place] for place in view]
        return view if numpy is None else numpy.frombuffer(block, dtype=_DTYPES[form])
    if isinstance(column, list):
        numbers = column and all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)
        return numpy.asarray(column) if numbers and numpy is not None else column
    return column


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
