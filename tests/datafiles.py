"""Small files in the formats of the data sets, written by the tests that read them."""

import zipfile

import pandas as pd

CLASSIC = (
    "Date Time,p (mbar),T (degC),Tpot (K),Tdew (degC),rh (%),VPmax (mbar),VPact (mbar),"
    "VPdef (mbar),sh (g/kg),H2OC (mmol/mol),rho (g/m**3),wv (m/s),max. wv (m/s),wd (deg)"
)
SHORT = "Date Time,p (mbar),T (degC),wv (m/s),SWDR (W/m²)"


def ten_minutes(n, start="2009-01-01 00:10"):
    """Times of `n` readings."""
    return pd.date_range(start, periods=n, freq="10min")


def jena_text(times, header=SHORT, values=(990.25, -3.1, 1.5, 0.0)):
    """Readings as the public archives write them; column c of row i is values[c] + i % 50."""
    rows = [
        ",".join([time.strftime("%d.%m.%Y %H:%M:%S"), *(f"{v + i % 50:.2f}" for v in values)])
        for i, time in enumerate(times)
    ]
    return "\n".join([header, *rows]) + "\n"


def write(folder, text, name="weather.csv", encoding="utf-8"):
    """Write a text file, with the folder it needs, and return its path."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode(encoding))
    return file


def zip_of(file, *members):
    """Write a zip archive of (name, text) pairs and return its path."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members:
            archive.writestr(name, text)
    return file
