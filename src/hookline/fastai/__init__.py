"""fastai's names, with its arguments and results, on this engine; none of them needs fastai."""
