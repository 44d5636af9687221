"""Packing: what is read the same however it is packed, and which archives are refused."""

import gzip

import pandas as pd
import pytest
from datafiles import SHORT, jena_text, ten_minutes, write, zip_of

from sklearn_restrans.datasets import fetch_jena_climate


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
