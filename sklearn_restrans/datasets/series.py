"""Readings by time: their order, step, gaps and impossible values, as the loaders report them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import numpy as np
import pandas as pd

from .packing import cut, file_name

_SENTINEL = -9999.0

# Smallest and largest reading an instrument at the surface of the Earth can give: the records of
# the World Meteorological Organization, rounded outwards. Hygrometers may exceed 100 % slightly.
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


def order_times(frame: pd.DataFrame) -> tuple[pd.DataFrame, int, int]:
    """Keep the first row of every time stamp, and sort.

    Returns
    -------
    frame : DataFrame
        With a strictly increasing index.
    n_duplicates : int
        Rows dropped because their time stamp had come before.
    n_unsorted : int
        Rows, among those kept, that came after a row with a later time stamp.
    """
    repeated = frame.index.duplicated()
    if repeated.any():  # each of the two steps copies the whole frame
        frame = frame[~repeated]
    times = frame.index.asi8
    late = times < np.maximum.accumulate(times)
    if late.any():
        frame = frame.sort_index()
    return frame, int(repeated.sum()), int(late.sum())


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
    before, after = index[positions], index[positions + 1]
    return [
        {"start": str(start), "end": str(end), "length": str(length)}
        for start, end, length in zip(before, after, after - before, strict=True)
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
    frame = frame.copy(deep=False)  # columns are replaced, never written into
    counts = {"-9999": {}, "impossible values": {}}
    for column in frame.columns:
        readings = frame[column]
        sentinel = readings == _SENTINEL
        low, high = limits.get(column, (-np.inf, np.inf))
        outside = ((readings < low) | (readings > high)) & ~sentinel
        counts["-9999"][column] = int(sentinel.sum())
        counts["impossible values"][column] = int(outside.sum())
        if sentinel.any() or outside.any():
            frame[column] = readings.mask(sentinel | outside)
    changes = []
    for label, by_column in counts.items():
        found = [f"{n} in {cut(column, 40)}" for column, n in by_column.items() if n]
        more = f" and in {len(found) - 30} more columns" if len(found) > 30 else ""
        if found:
            changes.append(f"{label} became missing (NaN): {', '.join(found[:30])}{more}")
    return frame, changes


def parse_frequency(frequency: str | timedelta | None) -> pd.Timedelta | None:
    """Return the step that the argument `frequency` of a loader asks for."""
    if frequency is None:
        return None
    fault = f"frequency must be None or a positive duration such as '1h', got {frequency!r:.80}."
    if not isinstance(frequency, str | timedelta) or frequency == "":
        raise ValueError(fault)
    if isinstance(frequency, str) and not frequency[:1].isdigit():
        frequency = f"1{frequency}"
    try:
        step = pd.Timedelta(frequency)
    except (ValueError, OverflowError) as error:
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
        raise ValueError(f"frequency must be None for {file_name(source)}, which has only one row.")
    if step < own:
        raise ValueError(
            f"frequency={_step_name(step)!r} is finer than the step of {file_name(source)}, "
            f"{_step_name(own)!r}; pass a multiple of that step, or None."
        )
    if step % own:
        raise ValueError(
            f"frequency={_step_name(step)!r} is not a multiple of the step of {file_name(source)}, "
            f"{_step_name(own)!r}; pass a multiple of that step, since no reading is interpolated."
        )
    return frame.iloc[:: step // own]


def describe(frame: pd.DataFrame, source: str, n_duplicates: int, n_unsorted: int) -> pd.DataFrame:
    """Describe the readings in ``frame.attrs`` and return the frame."""
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
