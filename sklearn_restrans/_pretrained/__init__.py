"""Folders of pretrained encoders: their sizes, their tokenizer, their weights."""
