"""The estimators: their parameters, the way of the data through fit, and what is kept of it."""
