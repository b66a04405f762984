"""What several tests share: models, rows, pages, comparisons. Every suite imports them as `tests.support`."""
