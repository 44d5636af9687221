"""Where files come from: argument, data folder, cache, and a download that is all or nothing."""

import contextlib
import gzip
import hashlib
import http.server
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datafiles import CLASSIC, jena_text, ten_minutes, write, zip_of

from sklearn_restrans.datasets import fetch_jena_climate, fetch_sst2, load_etth1, loaders


@pytest.fixture(autouse=True)
def _nothing_of_the_user_is_touched(monkeypatch, tmp_path):
    """No data folder, a cache of our own, and no proxy between a test and its server."""
    for name in ("SKLEARN_RESTRANS_DATA", "SKLEARN_RESTRANS_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SKLEARN_RESTRANS_CACHE", str(tmp_path / "cache"))
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


def test_search_order_is_path_then_data_folder_then_cache(tmp_path, monkeypatch):
    rows = {"path": 1, "data": 2, "cache": 3}
    files = {
        place: write(tmp_path / place / "jena", jena_text(ten_minutes(n)), "jena_2009_2016.csv")
        for place, n in rows.items()
    }
    monkeypatch.setenv("SKLEARN_RESTRANS_DATA", str(tmp_path / "data"))
    assert len(fetch_jena_climate(files["path"])) == 1
    assert len(fetch_jena_climate(tmp_path / "path")) == 1
    assert len(fetch_jena_climate(tmp_path / "path" / "jena")) == 1
    assert len(fetch_jena_climate()) == 2
    files["data"].rename(tmp_path / "data" / "jena_climate_2009_2016.csv")  # not in its subfolder
    assert len(fetch_jena_climate()) == 2
    (tmp_path / "data" / "jena_climate_2009_2016.csv").unlink()
    assert len(fetch_jena_climate()) == 3
    monkeypatch.setenv("SKLEARN_RESTRANS_DATA", "")
    assert len(fetch_jena_climate()) == 3


def test_an_empty_path_is_refused(tmp_path):
    for fetch in (fetch_jena_climate, load_etth1, fetch_sst2):
        with pytest.raises(ValueError, match="path must name a file or a folder, got ''; leave"):
            fetch("")


def test_the_best_file_of_a_folder_is_taken_and_a_tie_is_refused(tmp_path):
    for n, name in enumerate(
        ["jena_climate_2009_2016.csv.zip", "jena_2009_2016_hourly.csv.gz", "mpi_roof_a.csv"], 1
    ):
        write(tmp_path, jena_text(ten_minutes(n)), name)
    write(tmp_path, jena_text(ten_minutes(4)), "mpi_roof_b.csv")
    assert len(fetch_jena_climate(tmp_path)) == 1
    (tmp_path / "jena_climate_2009_2016.csv.zip").unlink()
    assert len(fetch_jena_climate(tmp_path)) == 2
    (tmp_path / "jena_2009_2016_hourly.csv.gz").unlink()
    with pytest.raises(ValueError, match=r"several files .*mpi_roof_a.csv, mpi_roof_b.csv; give"):
        fetch_jena_climate(tmp_path)


def test_places_that_do_not_exist_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"path must name an existing .*nowhere\.csv'"):
        fetch_jena_climate(tmp_path / "nowhere.csv")
    with pytest.raises(FileNotFoundError, match=r"holds none of ETTh1.csv"):
        load_etth1(tmp_path)
    with pytest.raises(TypeError, match="path must be a str or path-like object, got 3"):
        fetch_jena_climate(3)
    monkeypatch.setenv("SKLEARN_RESTRANS_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"SKLEARN_RESTRANS_DATA must name .*nowhere"):
        fetch_jena_climate()


@pytest.fixture
def forbidden(tmp_path):
    """A folder that this process may not enter, also where the tests run as root."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)  # nobody
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o700)


PLACES = {
    "unknown user": ("~nouser/x", "names the home directory of an unknown user, got '~nouser/x'"),
    "long name": ("n" * 300, "must name .* got 'nnn"),
    "long path": ("/".join(["n" * 200] * 50), "must name .* got 'nnn"),
    "NUL": ("a\0b", r"must name .* got 'a\\x00b'"),
    "half of a pair": ("\ud800", r"must name .* got '\\ud800'"),
    "device": ("/dev/zero", "must name .* got '/dev/zero'"),
}


@pytest.mark.parametrize("case", PLACES)
def test_places_that_cannot_be_are_named_with_their_origin(tmp_path, monkeypatch, case):
    place, message = PLACES[case]
    for fetch in (fetch_jena_climate, load_etth1, fetch_sst2):
        with pytest.raises(FileNotFoundError, match=f"path {message}") as caught:
            fetch(place)
        assert len(str(caught.value)) < 400
    if case in ("NUL", "half of a pair", "device"):
        return  # the first two cannot stand in a variable, and a cache may be made
    for name in ("DATA", "CACHE"):
        with monkeypatch.context() as patch:
            patch.setenv(f"SKLEARN_RESTRANS_{name}", place)
            with pytest.raises(
                FileNotFoundError, match=f"variable SKLEARN_RESTRANS_{name} {message}"
            ):
                load_etth1()


@pytest.mark.parametrize("path", [3, b"file.csv", True, ["a"], np.array(["a", "b"]), np.array(1)])
def test_a_path_of_another_type_is_refused(path):
    for fetch in (fetch_jena_climate, load_etth1, fetch_sst2):
        with pytest.raises(TypeError, match="path must be a str or path-like object, got"):
            fetch(path)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_folders_without_permission_are_named_with_their_origin(forbidden, monkeypatch):
    message = "must name a file or folder that can be read, got .*closed.*Permission denied"
    for path in (forbidden, forbidden / "weather.csv"):
        with pytest.raises(PermissionError, match=f"path {message}"):
            fetch_jena_climate(path)
    for name in ("DATA", "CACHE"):
        with monkeypatch.context() as patch:
            patch.setenv(f"SKLEARN_RESTRANS_{name}", str(forbidden))
            with pytest.raises(PermissionError, match=f"SKLEARN_RESTRANS_{name} {message}"):
                fetch_jena_climate()


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_without_permission_is_named(monkeypatch):
    # Read by nobody: a file of root in a folder that all may enter.
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder), jena_text(ten_minutes(2)))
        Path(folder).chmod(0o755)
        file.chmod(0)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(PermissionError, match=r"weather.csv' cannot be read .*denied"):
                fetch_jena_climate(file)
        finally:
            if root:
                os.seteuid(0)


def test_a_cache_that_is_a_file_or_cannot_be_made_is_named(tmp_path, monkeypatch):
    file = write(tmp_path, "x", "cache.txt")
    for cache, message in (
        (file, "SKLEARN_RESTRANS_CACHE must name a folder, got the file .*cache.txt"),
        (file / "inner", "SKLEARN_RESTRANS_CACHE must name a folder that can be written to"),
        ("/proc/cache", "SKLEARN_RESTRANS_CACHE must name a folder that can be written to"),
    ):
        monkeypatch.setenv("SKLEARN_RESTRANS_CACHE", str(cache))
        with pytest.raises(OSError, match=message):
            load_etth1()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A mirror on this machine. `answers` holds one entry per request: file content, or a fault."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            mirror.asked.append(self.path)
            answer = mirror.answers.pop(0)
            if answer is None:
                self.send_error(404)
                return
            content, sent = answer
            self.send_response(200)
            if content is None:  # without a declared size
                content, sent = sent, len(sent)
            else:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client may have heard enough
                self.wfile.write(content[:sent])

        def log_message(self, *_):
            """Keep quiet."""

    mirror = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    mirror.answers, mirror.asked = [], []
    thread = threading.Thread(target=mirror.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    monkeypatch.setenv("SKLEARN_RESTRANS_MIRROR", f"http://127.0.0.1:{mirror.server_port}/files/")
    yield mirror
    mirror.shutdown()
    mirror.server_close()
    thread.join()


def whole(content):
    return content, len(content)


def jena_archive(tmp_path, last="2016-12-31 23:50"):
    times = ten_minutes(5).append(pd.DatetimeIndex([last]))
    text = jena_text(times, CLASSIC, [990.0] + [1.0] * 13)
    file = zip_of(tmp_path / "made.zip", ("jena_climate_2009_2016.csv", text))
    return file.read_bytes()


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir())


def test_download_is_kept_and_a_second_call_needs_no_network(server, tmp_path):
    server.answers = [whole(jena_archive(tmp_path))]
    first = fetch_jena_climate()
    pd.testing.assert_frame_equal(fetch_jena_climate(), first)
    assert first.shape == (6, 14)
    assert server.asked == ["/files/jena_climate_2009_2016.csv.zip"]
    assert (tmp_path / "cache/jena/jena_climate_2009_2016.csv.zip").is_file()


def test_a_broken_download_leaves_nothing_behind_and_a_second_call_succeeds(server, tmp_path):
    good = jena_archive(tmp_path)
    page = b"<html>Sign in to this network</html>"
    breaks = {
        "cut": (good, len(good) // 2),
        "missing": None,
        "page": whole(page),
        "part of the years": whole(jena_archive(tmp_path, "2012-01-01 00:00")),
    }
    for answer in breaks.values():
        server.answers = [answer]
        with pytest.raises((OSError, ValueError), match=r"[Dd]ownload.*http://127\.0\.0\.1"):
            fetch_jena_climate()
        assert files_in(tmp_path / "cache") == []
        assert list((tmp_path / "cache/jena").iterdir()) == []
    server.answers = [whole(good)]
    assert len(fetch_jena_climate()) == 6


def test_a_download_without_network_names_the_remedies(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("SKLEARN_RESTRANS_MIRROR", f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(OSError, match="Call again, or give the file as path, or put it in the"):
        fetch_jena_climate()


def test_a_download_with_another_hash_is_refused_and_not_kept(server, tmp_path, monkeypatch):
    text = b"date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n2016-07-01 00:00:00,1,2,3,4,5,6,7\n"
    server.answers = [whole(text), whole(text)]
    with pytest.raises(ValueError, match=r"sha256 is [0-9a-f]{64}, expected f18de3.*Nothing was"):
        load_etth1()
    assert files_in(tmp_path / "cache") == []
    known = f"sha256:{hashlib.sha256(text).hexdigest()}"
    monkeypatch.setattr(loaders, "_ETTH1", loaders._ETTH1._replace(known_hash=known))
    assert load_etth1()["OT"].tolist() == [7.0]


def test_a_download_larger_than_the_limit_is_stopped(server, tmp_path):
    """By its declared size before anything is sent, and by what came where none is declared."""
    size = 3_000_000
    server.answers = [(bytes(size), 4096), (None, bytes(size))]
    for _ in range(2):
        with pytest.raises(ValueError, match=r"ETTh1.*is larger than max_bytes=500000; pass a lar"):
            load_etth1(max_bytes=500_000)
        assert files_in(tmp_path / "cache") == []


def test_a_folder_in_the_place_of_a_download_is_named(server, tmp_path):
    (tmp_path / "cache/jena/jena_climate_2009_2016.csv.zip").mkdir(parents=True)
    server.answers = [whole(jena_archive(tmp_path))]
    with pytest.raises(OSError, match="SKLEARN_RESTRANS_CACHE must name a folder that can be wri"):
        fetch_jena_climate()


@pytest.mark.parametrize("mirror", ["nowhere", "ftp://x", "http://[", "http://" + "x" * 9000])
def test_a_mirror_that_is_not_an_address_is_named_in_a_short_sentence(monkeypatch, mirror):
    monkeypatch.setenv("SKLEARN_RESTRANS_MIRROR", mirror)
    with pytest.raises(OSError, match=r"Downloading .* failed: .*Call again, or") as caught:
        load_etth1()
    assert len(str(caught.value)) < 600


def test_one_glue_archive_serves_train_and_dev_and_refuses_test(server, tmp_path, monkeypatch):
    archive = zip_of(
        tmp_path / "made.zip",
        ("SST-2/train.tsv", "sentence\tlabel\na fine film \t1\nnot \t0\n"),
        ("SST-2/dev.tsv", "sentence\tlabel\ndull \t0\n"),
        ("SST-2/test.tsv", "index\tsentence\n0\tdull\n"),
    ).read_bytes()
    known = f"md5:{hashlib.md5(archive).hexdigest()}"
    monkeypatch.setattr(loaders, "_SST2", loaders._SST2._replace(known_hash=known))
    with pytest.raises(FileNotFoundError, match=r"test\.tsv is not .* GLUE hides the labels"):
        fetch_sst2(subset="test")
    server.answers = [whole(archive)]
    sentences, labels = fetch_sst2()
    assert sentences == ["a fine film", "not"] and labels.tolist() == [1, 0]
    assert fetch_sst2(subset="dev")[0] == ["dull"]
    assert server.asked == ["/files/SST-2.zip"]
    with pytest.raises(ValueError, match=r"SST-2.zip, line 1: GLUE hides the labels"):
        fetch_sst2(subset="test")


def test_without_pooch_files_on_disk_work_and_a_download_says_what_is_missing(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pooch", None)
    file = write(tmp_path, jena_text(ten_minutes(2)))
    assert len(fetch_jena_climate(file)) == 2
    for cache in (str(tmp_path), ""):
        monkeypatch.setenv("SKLEARN_RESTRANS_CACHE", cache)
        with pytest.raises(ImportError, match="needs pooch: pip install pooch"):
            load_etth1()


def test_real_etth1_is_the_public_file(data_dir, server):
    frame = load_etth1(data_dir)
    assert frame.shape == (17420, 7) and frame.attrs["gaps"] == []
    ends = ["2016-07-01 00:00", "2018-06-26 19:00"]
    assert list(frame.index[[0, -1]]) == [pd.Timestamp(end) for end in ends]
    # They are single-precision numbers printed in 16 to 17 digits: off by 5e-16 at most, and by
    # 1.5e-15 with pandas 2, whose reader drops the digits after the 15th.
    np.testing.assert_allclose(frame, frame.astype("float32"), rtol=2e-15)
    unpacked = gzip.decompress((data_dir / "ett" / "ETTh1.csv.gz").read_bytes())
    server.answers = [whole(unpacked)]  # passes the known hash of the public address
    pd.testing.assert_frame_equal(load_etth1(), frame)
