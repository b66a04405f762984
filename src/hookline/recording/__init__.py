"""Recording: keeps what crosses the sites of a model, to read, audit, save and load."""
