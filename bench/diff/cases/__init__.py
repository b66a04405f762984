"""Cases: pairs that `hookline.diff` may be tuned on. B is a port of A, with a mistake that ports have."""
