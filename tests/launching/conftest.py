"""What is in `scripts` is run by tests, and no module of them."""

collect_ignore_glob = ["scripts/*"]
