"""From what users pass to batches of tensors, one way down.

X goes through `inputs` (what it may be), `split` (which rows train), `scaling` and `sources`
(tensors, without copying what can be viewed) to `batches`; y through `targets`.
"""
