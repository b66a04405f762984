"""Unseen: pairs that nobody looks at while `hookline.diff` is written, so that nothing is tuned on them."""
