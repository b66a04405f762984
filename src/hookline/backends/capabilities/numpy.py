"""What works on numpy's arrays: statistics and files. A recording read where its framework is missing has them."""

from hookline.backends.capabilities.declaring import FEATURES, Framework, No

NO_MODELS = No("numpy has arrays and no models", "use a framework; lines.reduce and load_recording take arrays")

FRAMEWORK = Framework(
    name="numpy",
    package="numpy",
    roots=("numpy",),
    home="hookline.backends.numpy",
    models="",
    tested=("1.23", "3"),
    answers={feature: None if feature == "save" else NO_MODELS for feature in FEATURES},
)
