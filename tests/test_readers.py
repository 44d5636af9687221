"""Formats: what is read the same however it is packed, and what is refused, with its line."""

import gzip

import numpy as np
import pandas as pd
import pytest
from datafiles import SHORT, jena_text, ten_minutes, write, zip_of

from sklearn_restrans.datasets import fetch_jena_climate, fetch_sst2


def test_every_packing_and_encoding_gives_the_same_frame(tmp_path):
    text = jena_text(ten_minutes(20))
    plain = fetch_jena_climate(write(tmp_path, text))
    packed = tmp_path / "weather.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    served = text.replace("\n", "\r\n").replace(",", ",  ")  # Latin-1, CRLF, padded, quoted names
    header, rest = served.split("\r\n", 1)
    header = ",".join(f'"{name}"' for name in SHORT.split(","))
    files = [
        packed,
        write(tmp_path, header + "\r\n" + rest, "mpi_roof.csv", "latin-1"),
        write(tmp_path, "\ufeff" + text, "bom.csv"),
        write(tmp_path, text.replace("\n", "\n\n"), "blank_lines.csv"),
        write(tmp_path, text.replace("\n", "\r"), "old_mac.csv"),
        zip_of(
            tmp_path / "a.zip",
            ("sub/weather.CSV", text),
            ("__MACOSX/sub/._weather.csv", "x"),
            ("readme.txt", "x"),
        ),
        # told apart by content, not by name
        write(tmp_path, text, "plain.csv.gz"),
    ]
    for file in files:
        pd.testing.assert_frame_equal(fetch_jena_climate(file), plain)
        assert fetch_jena_climate(str(file)).attrs["source"] == file.name


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
        ("Date Time,T (degC),p (mbar),T (degC)\n", r"columns \['T \(degC\)'\] come twice"),
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


def test_damaged_and_foreign_archives_are_refused(tmp_path):
    text = jena_text(ten_minutes(300)).encode()
    packed = gzip.compress(text)
    archive = zip_of(tmp_path / "whole.zip", ("weather.csv", text)).read_bytes()
    for name, data in {
        "short.csv.gz": packed[:-100],
        "flipped.csv.gz": packed[:200] + b"\0\0\0\0" + packed[204:],
        "short.zip": archive[:-100],
        "flipped.zip": archive[:200] + b"\0\0\0\0" + archive[204:],
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=f"{name} is a damaged or truncated archive"):
            fetch_jena_climate(tmp_path / name)
    none = zip_of(tmp_path / "none.zip", ("notes.txt", "x"))
    with pytest.raises(ValueError, match=r"none.zip .* exactly one \*.csv.*holds: notes.txt"):
        fetch_jena_climate(none)
    two = zip_of(tmp_path / "two.zip", ("a.csv", text), ("b.csv", text))
    with pytest.raises(ValueError, match=r"2 match; it holds: a.csv, b.csv"):
        fetch_jena_climate(two)
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9)
    with pytest.raises(ValueError, match=r"picture.csv, line 1: expected a header"):
        fetch_jena_climate(tmp_path / "picture.csv")


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
