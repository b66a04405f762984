"""Networks: the references of the pairs, small and by hand."""
