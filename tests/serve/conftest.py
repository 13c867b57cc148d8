"""Fixtures that the tests of the server share: one model, one registry, one process, for all of them."""

from __future__ import annotations

from learning_worlds import one_thread as one_thread
from serve.served import registry as registry
from serve.served import server as server
from serve.served import walk_run as walk_run
from world_model import new_world as new_world
from world_model import world as world
from world_model import world_predictor as world_predictor
from world_model import world_run as world_run
