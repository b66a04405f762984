"""python -m hookline: the command line."""

from hookline.cli.main import main

if __name__ == "__main__":
    main()
