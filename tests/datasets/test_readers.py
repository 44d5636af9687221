"""Formats: the values read from a text, and what is refused, with its line."""

import re
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from datafiles import SHORT, jena_text, ten_minutes, write

from sklearn_restrans.datasets import fetch_jena_climate, fetch_sst2, load_etth1, readers


def test_values_times_and_names_are_those_of_the_text(tmp_path):
    file = write(tmp_path, jena_text(ten_minutes(3, "2009-02-01 23:50")))
    frame = fetch_jena_climate(file)
    assert list(frame) == SHORT.split(",")[1:]
    assert frame.index.name == "Date Time" and frame.index.tz is None
    # Day first: 01.02. is the first of February.
    assert list(frame.index) == list(ten_minutes(3, "2009-02-01 23:50"))
    assert frame["T (degC)"].tolist() == [-3.1, -2.1, -1.1]
    assert set(frame.dtypes) == {np.dtype("float64")}
    assert frame.attrs == {
        "source": "weather.csv",
        "frequency": "10min",
        "gaps": [],
        "n_missing": 0,
        "n_duplicates": 0,
        "n_unsorted": 0,
    }


# ---- what is refused ------------------------------------------------------------------------

GOOD = "01.01.2009 00:10:00,990.0,1.0,2.0,5.0\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "weather.csv is empty; expected a header line and data rows"),
        (" \n\n", "weather.csv is empty"),
        (SHORT + "\n", "weather.csv has a header line but no data rows"),
        (
            "date,OT\n1,2\n",
            r"weather.csv, line 1: expected a header that starts with 'Date Time' and has "
            r"p \(mbar\), T \(degC\); .* not found in 'date,OT'",
        ),
        (GOOD, "line 1: expected a header that starts with 'Date Time'"),
        ("p (mbar),Date Time,T (degC)\n1,2,3\n", "line 1: expected a header that starts with"),
        ("Date Time,T (degC),p (mbar),T (degC)\n", r"columns \['T \(degC\)'\] appear twice"),
        ("\n<!DOCTYPE html>\n<html></html>\n", "line 2: .*This looks like a web page, not data"),
        (
            f"{SHORT}\n{GOOD}\n{GOOD[:-9]}",
            r"weather.csv, line 4: expected 5 fields, found 3 in '01.01.2009 00:10:00,990.0,1.0'",
        ),
        (f"{SHORT}\n{GOOD}{GOOD[:-1]},7\n", "line 3: expected 5 fields, found 6"),
        (
            f"{SHORT}\n{GOOD}" + GOOD.replace(",1.0,", ",warm,"),
            r"line 3: expected a finite number in column 'T \(degC\)', found 'warm'",
        ),
        (f"{SHORT}\n" + GOOD.replace(",1.0,", ",inf,"), "line 2: .*, found 'inf'"),
        (f"{SHORT}\n" + GOOD.replace(",1.0,", ",True,"), "line 2: .*, found 'True'"),
        (f"{SHORT}\n" + GOOD.replace(",1.0,", ",1_000,"), "line 2: .* 'T .*', found '1_000'"),
        (f"{SHORT}\n" + GOOD.replace(",1.0,", ",١,"), "line 2: .* 'T .*', found '١'"),
        (
            f"{SHORT}\n{GOOD}" + GOOD.replace("01.01.", "01.13."),
            r"line 3: expected a time written like '31.12.2009 23:50:00' \(31 December 2009\), "
            r"found '01.13.2009 00:10:00'",
        ),
        (f"{SHORT}\n" + GOOD.replace("01.01.2009", "2009-01-01"), "line 2: expected a time"),
        (f"{SHORT}\n" + GOOD.replace("01.01.2009", "01/01/2009"), "line 2: expected a time"),
        (f"{SHORT}\n" + GOOD.replace("01.01.2009 00:10:00", ""), "line 2: .*found ''"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_file_line_and_expectation(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        fetch_jena_climate(write(tmp_path, text))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "dev.tsv is empty"),
        ("sentence\tlabel\n", "dev.tsv has a header line but no data rows"),
        ("a film\t1\n", r"dev.tsv, line 1: expected the header 'sentence<TAB>label', found 'a f"),
        ("sentence\tlabel\nfine\t1\n\nfine\t2\n", r"line 4: .*label 0 or 1, found 'fine\\t2'"),
        ("sentence\tlabel\nfine 1\n", "line 2: expected a sentence, one tab and the label"),
        ("sentence\tlabel\nfine\tfilm\t1\n", "line 2: expected a sentence, one tab"),
        ("sentence\tlabel\nfine\t1\n \t1\n", r"line 3: expected a sentence, one .*found ' \\t1'"),
    ],
)
def test_a_file_that_is_not_sst2_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        fetch_sst2(write(tmp_path, text, "dev.tsv"), "dev")


# ---- size, time and length of messages ------------------------------------------------------


@pytest.mark.parametrize("content", ["\ufeff", "\ufeff\n\n", "\u00a0\n\u2003", '""\n', "\r\r"])
def test_a_file_without_a_visible_character_is_empty(tmp_path, content):
    for fetch in (fetch_jena_climate, load_etth1, fetch_sst2):
        if fetch is not fetch_sst2 or '"' not in content:  # where quotes are text
            with pytest.raises(ValueError, match=r"weather\.csv is empty; expected a header line"):
                fetch(write(tmp_path, content))


HOSTILE = {
    "commas": ",a" * 200_000,
    "repeated columns": SHORT + ",a" * 400 + ",b" * 400,
    "long repeated column": f"{SHORT},{'a' * 300_000},{'a' * 300_000}",
    "one line": "a" * 400_000,
    "zeros": "\0" * 400_000,
    "one very long line": "a" * 3_000_000,
    "a very long line": f"{SHORT}\n{GOOD}\n{'😀' * 1_200_000}\n",
    "long cell": f"{SHORT}\n01.01.2009 00:10:00,{'9' * 300_000}e,1,1,1\n",
    "long time": f"{SHORT}\n{'0' * 300_000},1,1,1,1\n",
    "long name": f"{SHORT},{'b' * 300_000}\n01.01.2009 00:10:00,1,1,1,1,x\n",
    "many fields": f"{SHORT}\n{'1,' * 200_000}\n",
    "wide signs": f"{SHORT}\n{chr(0x10FFFF) * 200}\n",
    "sst2 header": "sentence" * 50_000,
    "sst2 line": "sentence\tlabel\n" + "a" * 400_000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_at_once_in_a_short_sentence(tmp_path, case):
    file = write(tmp_path, HOSTILE[case], "n" * 240 + ".csv")
    for fetch in (fetch_jena_climate, load_etth1, fetch_sst2):
        begun = time.perf_counter()
        with pytest.raises(ValueError, match="nnnn") as caught:
            fetch(file)
        # Measured 0.01 s. The first case took 12 s when the header was searched once per column.
        assert time.perf_counter() - begun < 1.0
        assert len(str(caught.value)) < 500


def peak_of(fetch, file):
    """Result, or the message of a ValueError, and the peak of memory in bytes."""
    tracemalloc.start()
    try:
        return fetch(file), tracemalloc.get_traced_memory()[1]
    except ValueError as error:
        return str(error), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("head", ["", SHORT + "\n", SHORT + "\n" + GOOD])
def test_short_lines_take_a_small_multiple_of_the_file(tmp_path, head):
    file = write(tmp_path, head + "x\n" * 500_000)
    message, peak = peak_of(fetch_jena_climate, file)
    assert re.search("line [123]: expected", message)
    # The content and one block of lines, which is 2 MiB with their numbers: measured 3 to 4 MB.
    # All lines at once took 85 MB for each MB of the file.
    assert peak < 12_000_000


def test_memory_is_a_small_multiple_of_the_file_and_time_is_linear(tmp_path):
    times, peaks = [], []
    for n in (8_000, 24_000):
        file = write(tmp_path, jena_text(ten_minutes(n)))
        begun = time.perf_counter()
        assert fetch_jena_climate(file).shape == (n, 4)
        times.append(time.perf_counter() - begun)
        peaks.append(peak_of(fetch_jena_climate, file)[1])
    size = file.stat().st_size
    assert size > 1_000_000
    # Measured: 1.6 to 3.4 bytes for every byte added to the file.
    assert peaks[1] - peaks[0] < 8 * size * 2 / 3
    # Three times the rows; 8 leaves room for a busy machine, a quadratic reader takes 9 times.
    assert times[1] < 8 * max(times[0], 0.1)


# ---- blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 60, 500, 10**6])
def test_the_size_of_a_block_changes_nothing(tmp_path, monkeypatch, block):
    text = jena_text(ten_minutes(60)).replace("\n", "\n\n").replace("0.00", "")
    text = text.replace(",1.50,", ",100000000000000000000000,")  # no integer of 64 bits
    file = write(tmp_path, text)
    with pytest.warns(UserWarning, match="impossible"):
        expected = fetch_jena_climate(file)
    monkeypatch.setattr(readers, "_BLOCK", block)
    with pytest.warns(UserWarning, match="impossible"):
        pd.testing.assert_frame_equal(fetch_jena_climate(file), expected)
    file = write(tmp_path, text + "\n01.01.2010 00:00:00,1,1,warm,1\n")
    with pytest.raises(ValueError, match=r"line 124: expected a finite number .*'wv.*'warm'"):
        fetch_jena_climate(file)


@pytest.mark.parametrize(
    "cell", ["1\0", "1\0002", "\0", "1 2", "0x10", "1e400", "--1", "1e", "TRUE"]
)
def test_a_cell_that_is_not_a_number_is_refused_whatever_pandas_reads(tmp_path, cell):
    text = f"{SHORT}\n{GOOD}" + GOOD.replace("00:10", "00:20").replace(",1.0,", f",{cell},")
    with pytest.raises(ValueError, match=r"line 3: expected a finite number in .*'T \(degC\)'"):
        fetch_jena_climate(write(tmp_path, text))


@pytest.mark.parametrize("cell", ["1", "1.", ".5", "+1", "1e1", "-1E-1", "9" * 25, " 1 ", "0" * 99])
def test_every_way_to_write_a_number_is_read(tmp_path, cell):
    text = f"{SHORT}\n" + GOOD.replace(",5.0", f",{cell}")
    frame = fetch_jena_climate(write(tmp_path, text))
    # 1e-15: pandas 2 drops the digits after the 15th
    np.testing.assert_allclose(frame["SWDR (W/m²)"], float(cell), rtol=1e-15)
