"""Corpora: where token ids come from, and the shards that they are kept in."""
