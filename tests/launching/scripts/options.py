"""Options that look like hookline's own."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("-m", "--model")
parser.add_argument("--to")
parser.add_argument("--every", type=int)
parser.add_argument("rest", nargs="*")
print(parser.parse_args())
