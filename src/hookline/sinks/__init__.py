"""Sinks: where the rows of a watch go, several at once: `watch(model, to=["runs/a", sinks.TensorBoard("logs")])`.

>>> from hookline import sinks
>>> sinks.RunStore("runs/a").path.name
'a'
"""

from hookline.runfiles.journal import why_no_wal
from hookline.runfiles.store import RunStore
from hookline.sinks.console import Console
from hookline.sinks.mlflow import MLflow
from hookline.sinks.parquet import Parquet
from hookline.sinks.protocol import Sink
from hookline.sinks.tensorboard import TensorBoard
from hookline.sinks.trackers import Trackio, Wandb

__all__ = ["Console", "MLflow", "Parquet", "RunStore", "Sink", "TensorBoard", "Trackio", "Wandb", "why_no_wal"]
