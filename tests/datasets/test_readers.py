"""Formats: the values read from a text, and what is refused, with its line."""

import numpy as np
import pytest
from datafiles import SHORT, jena_text, ten_minutes, write

from sklearn_restrans.datasets import fetch_jena_climate, fetch_sst2


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
