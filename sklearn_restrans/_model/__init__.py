"""The Transformer itself, on torch alone: its formulas, its start, and exact shortcuts."""
