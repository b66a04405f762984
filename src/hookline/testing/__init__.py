"""Testing: the zoo of awkward models, and a proof that a model was left as it was.

Public, for authors of backends and of code that works with hooks.
"""

from hookline.testing.untouched import Touched as Touched
from hookline.testing.untouched import untouched as untouched
from hookline.testing.zoo import ZOO as ZOO
from hookline.testing.zoo import Specimen as Specimen
