"""Packing: what is read the same however it is packed, and which archives are refused."""

import gzip
import inspect
import io
import stat
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
from datafiles import SHORT, jena_text, ten_minutes, write, zip_of

from sklearn_restrans.datasets import fetch_jena_climate, fetch_sst2, load_etth1, packing
from sklearn_restrans.datasets.packing import MAX_BYTES


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


# ---- limits ---------------------------------------------------------------------------------

METHODS = {
    "stored": zipfile.ZIP_STORED,
    "deflate": zipfile.ZIP_DEFLATED,
    "bzip2": zipfile.ZIP_BZIP2,
    "lzma": zipfile.ZIP_LZMA,
}


def packed_as(how, data, name="weather.csv"):
    """The bytes of a file, as they are, in gzip, or in a zip archive of some method."""
    if how == "plain":
        return data
    if how == "gzip":
        return gzip.compress(data)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", METHODS[how]) as archive:
        archive.writestr(name, data)
    return content.getvalue()


def declare_size(archive, size):
    """Write a false unpacked size into the directory of a zip archive of one member."""
    archive = bytearray(archive)
    entry = archive.rindex(b"PK\1\2")
    archive[entry + 24 : entry + 28] = struct.pack("<I", size)
    return bytes(archive)


def refusal(fetch, *args, **settings):
    """The message and the peak of memory, in bytes, of a call that raises ValueError."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:
            fetch(*args, **settings)
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("how", ["plain", "gzip", *METHODS])
def test_the_limit_counts_unpacked_bytes(tmp_path, how):
    text = jena_text(ten_minutes(3000)).encode()
    file = tmp_path / "weather.bin"
    file.write_bytes(packed_as(how, text))
    assert len(fetch_jena_climate(file, max_bytes=max(len(text), file.stat().st_size))) == 3000
    with pytest.raises(ValueError, match=rf"weather.bin holds more than max_bytes={len(text) - 1}"):
        fetch_jena_climate(file, max_bytes=len(text) - 1)


@pytest.mark.parametrize("how", ["gzip", "deflate"])
def test_a_bomb_takes_no_more_memory_than_the_limit(tmp_path, how):
    file = tmp_path / "bomb.bin"
    file.write_bytes(packed_as(how, bytes(64_000_000)))
    message, peak = refusal(fetch_jena_climate, file, max_bytes=2_000_000)
    assert message.startswith("bomb.bin holds more than max_bytes=2000000 bytes")
    # The limit, one chunk of 1 MiB and the growth of a buffer; all of it would be 64 MB.
    assert peak < 8_000_000


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("declared", [10, 1_500_000])
def test_a_declared_size_is_not_trusted(tmp_path, how, declared):
    file = tmp_path / "liar.zip"
    file.write_bytes(declare_size(packed_as(how, bytes(20_000_000)), declared))
    message, peak = refusal(fetch_jena_climate, file, max_bytes=25_000_000)
    assert "liar.zip is a damaged or truncated archive" in message
    # bzip2 unpacks whole blocks, of which 20 MB of zeros are one, in a buffer that grows by
    # doubling; LZMA has a dictionary of 8 MiB; the others unpack in steps of 1 MiB.
    assert peak < {"bzip2": 60_000_000, "lzma": 15_000_000}.get(how, 8_000_000)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "sparse.csv"
    with file.open("wb") as sparse:
        sparse.write(SHORT.encode())
        sparse.truncate(3 * 2**30)
    message, peak = refusal(fetch_jena_climate, file)
    assert "sparse.csv holds more than max_bytes=134217728 bytes" in message
    assert peak < 1_000_000
    file.unlink()


def test_the_default_limit_leaves_room_for_the_real_archives():
    assert MAX_BYTES > 3 * 42_000_000  # the ten-minute weather of Jena, unpacked
    for fetch in (fetch_jena_climate, load_etth1, fetch_sst2):
        assert inspect.signature(fetch).parameters["max_bytes"].default == MAX_BYTES


@pytest.mark.parametrize("max_bytes", [0, -1, 1.5, True, None, "1 GB"])
def test_a_limit_that_is_not_a_count_is_refused(tmp_path, max_bytes):
    for fetch in (fetch_jena_climate, load_etth1, fetch_sst2):
        with pytest.raises(ValueError, match="max_bytes must be an integer >= 1, got"):
            fetch(tmp_path, max_bytes=max_bytes)


def test_a_directory_of_very_many_members_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_MOST_MEMBERS", 20)
    text = jena_text(ten_minutes(2))
    for n_others in (19, 20):
        others = [(f"notes{i}.txt", "x") for i in range(n_others)]
        file = zip_of(tmp_path / "many.zip", ("weather.csv", text), *others)
        if n_others == 19:
            assert len(fetch_jena_climate(file)) == 2
    with pytest.raises(ValueError, match=r"many.zip is a zip archive of more than 20 files"):
        fetch_jena_climate(file)


# ---- hostile archives -----------------------------------------------------------------------


def test_nothing_of_an_archive_reaches_the_disk(tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    text = jena_text(ten_minutes(2))
    names = ["../weather.csv", "/weather.csv", "..\\weather.csv", "a/../../weather.csv"]
    for name in names:
        assert len(fetch_jena_climate(zip_of(folder / "a.zip", (name, text)))) == 2
    link = zipfile.ZipInfo("weather.csv")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("folder.csv/", "")  # a folder is not a file
        archive.writestr(link, "../../secret.csv")
    with pytest.raises(ValueError, match=r"a.zip, line 1: expected a header"):
        fetch_jena_climate(folder / "a.zip")
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "a.zip"]


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_members_of_one_name_are_two(tmp_path):
    text = jena_text(ten_minutes(2))
    file = zip_of(tmp_path / "twice.zip", ("weather.csv", text), ("weather.csv", text))
    with pytest.raises(ValueError, match=r"twice.zip .* 2 match; it holds: weather.csv, weather"):
        fetch_jena_climate(file)


@pytest.mark.parametrize("how", ["gzip", *METHODS])
def test_damage_anywhere_is_a_sentence_with_the_name_of_the_file(tmp_path, how):
    text = jena_text(ten_minutes(5)).encode()
    whole = packed_as(how, text)
    expected = fetch_jena_climate(write(tmp_path, text.decode()))
    file = tmp_path / "damaged.bin"
    refused = 0
    for place in range(0, len(whole), 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            frame = fetch_jena_climate(file)
        except ValueError as error:
            assert "damaged.bin" in str(error) and len(str(error)) < 500
            refused += 1
        else:  # a byte that says nothing about the content, such as one of a date
            pd.testing.assert_frame_equal(frame, expected)
    assert refused > len(whole) / 6  # the content, its checksum and its lengths


# ---- random damage --------------------------------------------------------------------------

PIECES = [b"\0", b"\n", b"\r", b",", b'"', b"\t", b"\xff", b"\xc2\xa0", b"\xef\xbb\xbf", b"PK\3\4"]
PIECES += [b"PK\1\2", b"PK\5\6", b"\x1f\x8b\x08", b"1_0", b"9" * 30, b"True", b"1e400", b"nan"]


def mutated(rng, data):
    """One to three random changes: bytes flipped, removed, repeated, or pieces put in."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(0, len(data) + 1))
        kind = rng.integers(0, 5)
        if kind == 0 and data:
            data[place % len(data)] = rng.integers(256)
        elif kind == 1:
            del data[place : place + int(rng.integers(1, 20))]
        elif kind == 2:
            data[place:place] = PIECES[rng.integers(len(PIECES))]
        elif kind == 3:
            data[place:place] = data[: int(rng.integers(0, 60))]
        else:
            del data[place + int(rng.integers(0, 100)) :]
    return bytes(data)


@pytest.mark.parametrize("run", range(3))
def test_random_damage_gives_data_or_a_sentence(tmp_path, seed, run):
    rng = np.random.default_rng([seed, run])
    weather = jena_text(ten_minutes(12)).encode()
    oil = b"date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n2016-07-01 00:00:00,1,2,3,4,5,6,7\n"
    films = "sentence\tlabel\na fine film \t1\ncrème -lrb- \t0\n".encode()
    cases = [(fetch_jena_climate, weather), (load_etth1, oil), (fetch_sst2, films)]
    file = tmp_path / "input.bin"
    for fetch, data in cases:
        for how in ("plain", "gzip", "deflate", "lzma"):
            whole = packed_as(how, data, "train.tsv" if fetch is fetch_sst2 else "weather.csv")
            for _ in range(15):
                file.write_bytes(mutated(rng, whole))
                try:
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", "input.bin", UserWarning)
                        result = fetch(file)
                except ValueError as error:
                    assert "input.bin" in str(error) and len(str(error)) < 500
                    continue
                if fetch is not fetch_sst2:
                    assert result.index.is_monotonic_increasing and result.index.is_unique
                    assert set(result.dtypes) == {np.dtype("float64")}
                    assert not np.isinf(result.to_numpy()).any()
