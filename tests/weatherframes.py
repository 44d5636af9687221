"""Hourly weather made of random walks, with and without gaps, shared by the forecasting tests."""

import numpy as np
import pandas as pd

SEEDS = [0, 1, 2]


def weather(n_rows, seed=0, start="2024-01-01 00:10"):
    """Hourly random walks T and p without a gap."""
    walks = np.random.default_rng(seed).normal(size=(n_rows, 2)).cumsum(axis=0)
    return pd.DataFrame(walks, columns=["T", "p"], index=pd.date_range(start, None, n_rows, "h"))


def irregular_weather(n_rows, seed):
    """Hourly rows with gaps of minutes to days, after which the clock's minute differs."""
    rng = np.random.default_rng(seed)
    minutes = np.full(n_rows, 60)
    gaps = rng.choice(np.arange(1, n_rows), size=8, replace=False)
    minutes[gaps] += 10 * rng.integers(1, 30, size=8)
    minutes[gaps[0]] += 4000
    frame = weather(n_rows, seed)
    frame.index = pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes.cumsum(), unit="min")
    return frame
